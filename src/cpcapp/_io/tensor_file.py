"""Safetensors files with a JSON header of this package: what all its models are kept in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp import __version__
from cpcapp._io.files import atomic_write

Tensors = dict[str, NDArray[Any]]
# Headers that are read ahead. No file of this package comes near.
_MAX_HEADER = 1 << 20


def write_tensors(
    path: str | os.PathLike[str], tensors: Tensors, header: dict[str, Any], kind: str, version: int
) -> None:
    """Write arrays, and a header of all that JSON knows, with the kind of file and its version."""
    from safetensors.numpy import save

    whole = {"format": kind, "format_version": version, **header}
    data = save(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
        metadata={"cpcapp": json.dumps(whole)},
    )
    with atomic_write(path) as file:
        file.write(data)


def read_tensors(
    path: str | os.PathLike[str], kind: str, version: int, *, max_bytes: int
) -> tuple[dict[str, Any], Tensors]:
    """Return header and arrays of a file that `write_tensors` wrote.

    Files of more than ``max_bytes`` are not read: a hostile one can't fill the memory. A ValueError
    says in one line why it is no such file.
    """
    return parse_tensors(read_tensor_file(path, max_bytes=max_bytes), kind, version)


def read_tensor_file(path: str | os.PathLike[str], *, max_bytes: int) -> bytes:
    """Return the content of a file; see `read_tensors`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}")
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= max_bytes:
            data = file.read(max_bytes + 1)  # it may grow meanwhile
            if len(data) <= max_bytes:
                return data
    raise ValueError(f"it is larger than {max_bytes >> 20} MB")


def read_format(path: str | os.PathLike[str]) -> str | None:
    """Return the kind that a file says it is, reading no more than its header; None for others."""
    with Path(path).open("rb") as file:
        start = file.read(_MAX_HEADER)
    try:
        return str(_header(start)["format"])
    except ValueError:
        return None


def parse_tensors(data: bytes, kind: str, version: int) -> tuple[dict[str, Any], Tensors]:
    """Return header and arrays of the content of a file; see `read_tensors`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    header = _header(data)
    if header["format"] != kind:
        raise ValueError(
            f"it is another kind of file of this package: {header['format']!r}, not {kind!r}"
        )
    given = header.get("format_version")
    if given != version:
        advice = "make it again from its data, or use the cpcapp that wrote it"
        if isinstance(given, int) and given > version:
            advice = "install a newer cpcapp"
        raise ValueError(
            f"its format is version {given!r}, this is cpcapp {__version__}, which reads version "
            f"{version}; {advice}"
        )
    try:
        return header, load(data)
    except SafetensorError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _header(data: bytes) -> dict[str, Any]:
    """Return the header that this package has written, from the start of a file."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("it is cut off, or no safetensors file")
    try:
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["cpcapp"])
        if header["format"].startswith("cpcapp-"):
            return header  # type: ignore[no-any-return]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise ValueError("it has no header of this package")
