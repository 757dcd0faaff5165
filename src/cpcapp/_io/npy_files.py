"""NumPy files of strangers: what they claim is checked before memory is taken for it."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

# A small file that unpacks to less than the first number of bytes, or to less than the second
# number times its own size, is read. Tables of counts shrink to a tenth, and seldom to a fiftieth.
_MAX_SMALL = 256 << 20
_MAX_RATIO = 64
_MAX_MEMBERS = 10_000
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def check_npy(file: IO[bytes], size: int) -> None:
    """Raise ValueError unless a ``.npy`` file holds the array that its header promises.

    Parameters
    ----------
    file : binary file
        At its start.
    size : int
        Bytes of the whole file.
    """
    try:
        version = np.lib.format.read_magic(file)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            raise ValueError(f"its version {version} is not read")
        shape, _, dtype = readers[version](file)
    except zipfile.BadZipFile:
        raise
    except Exception as error:  # the header is parsed as Python, which has many errors
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise ValueError(f"its header is damaged ({reason})") from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects (allow_pickle=False)")
    held = size - file.tell()
    if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != held:
        raise ValueError(
            f"its header promises shape {_shown(shape)} of {dtype}, but it holds {held} bytes"
        )


def read_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read all arrays of a ``.npz`` archive, none of them with pickle.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    dict of str to ndarray

    Raises
    ------
    ValueError
        With the reason, in one line, if the archive is damaged, encrypted, or unpacks to far more
        than its own size.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.npz"
    >>> np.savez(path, a=np.ones((2, 3)), b=np.arange(2))
    >>> {name: array.shape for name, array in read_npz(path).items()}
    {'a': (2, 3), 'b': (2,)}
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                members = _check_directory(archive, size)
                return {member.filename[:-4]: _read(archive, member) for member in members}
        except (ValueError, OSError, MemoryError):
            raise
        # zipfile answers damaged bytes with errors of many kinds.
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(reason) from error


def _check_directory(archive: zipfile.ZipFile, size: int) -> list[zipfile.ZipInfo]:
    members = archive.infolist()
    if len(members) > _MAX_MEMBERS:
        raise ValueError(f"it has {len(members)} members, more than {_MAX_MEMBERS}")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two of its members have the same name")
    for member in members:
        name = member.filename
        if not name.endswith(".npy"):
            raise ValueError(f"its member {name!r} is no array (.npy)")
        if member.flag_bits & _ENCRYPTED:
            raise ValueError(f"its member {name!r} is encrypted; save it without a password")
        if member.compress_type not in _METHODS:
            raise ValueError(f"its member {name!r} is packed by a method that is not read")
    total = sum(member.file_size for member in members)
    if total > max(_MAX_SMALL, _MAX_RATIO * size):
        raise ValueError(
            f"its {size >> 20} MB unpack to {total >> 20} MB; if you trust it, save it without "
            "compression (numpy.savez)"
        )
    return members


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    try:
        with archive.open(member) as file:
            check_npy(file, member.file_size)
        with archive.open(member) as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            file.read(1)  # the checksum is compared where the member ends
            return array
    except MemoryError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"its member {member.filename!r} is damaged: {reason}") from error


def _shown(shape: tuple[int, ...]) -> str:
    return str(shape) if len(str(shape)) <= 60 else f"{str(shape)[:57]}..."
