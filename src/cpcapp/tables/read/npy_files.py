"""NumPy files of strangers: what they claim is checked before memory is taken for it."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.tables.messages import one_line

# A small file that unpacks to less than the first number of bytes, or to less than the second
# number times its own size, is read. Tables of counts shrink to a tenth, and seldom to a fiftieth.
_MAX_SMALL = 256 << 20
_MAX_RATIO = 64
_MAX_MEMBERS = 10_000


def open_npy(path: Path) -> NDArray[Any]:
    """Map a ``.npy`` file into memory, or raise ValueError if it holds not what it promises."""
    with path.open("rb") as file:
        _check_header(file, path.stat().st_size)
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of a ``.npz`` archive; raise ValueError with the reason why they can't be."""
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if total > max(_MAX_SMALL, _MAX_RATIO * size):
                raise ValueError(
                    f"its {size >> 20} MB unpack to {total >> 20} MB; if you trust it, save it "
                    "without compression (numpy.savez)"
                )
            if len(members) > _MAX_MEMBERS or len(set(archive.namelist())) < len(members):
                raise ValueError("it has too many members, or two of the same name")
            return {
                member.filename.removesuffix(".npy"): _read_member(archive, member)
                for member in members
            }
    except (ValueError, OSError):
        raise
    except Exception as error:  # zipfile answers damaged bytes with errors of many kinds
        raise ValueError(one_line(error)) from error


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    try:
        with archive.open(member) as file:
            _check_header(file, member.file_size)
        with archive.open(member) as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            file.read(1)  # the checksum is compared where the member ends
            return array
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"its member {member.filename!r} is damaged: {one_line(error)}") from error


def _check_header(file: IO[bytes], size: int) -> None:
    """Raise ValueError unless a ``.npy`` file of so many bytes has the size that it promises."""
    header = np.lib.format
    try:
        version = header.read_magic(file)
        first = version == (1, 0)
        if not first and version != (2, 0):
            raise ValueError(f"its version {version} is not read")
        read = header.read_array_header_1_0 if first else header.read_array_header_2_0
        shape, _, dtype = read(file)
    except zipfile.BadZipFile:
        raise
    except Exception as error:  # the header is parsed as Python, which has many errors
        raise ValueError(f"its header is damaged ({one_line(error)[:120]})") from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects (allow_pickle=False)")
    held = size - file.tell()
    if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != held:
        shown = str(shape) if len(str(shape)) <= 60 else f"{str(shape)[:57]}..."
        raise ValueError(f"its header promises shape {shown} of {dtype}, but it holds {held} bytes")
