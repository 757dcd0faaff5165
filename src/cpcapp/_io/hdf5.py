"""HDF5 files of strangers: read only in a process of its own, after a look at what they hold.

HDF5 may loop for ever, crash or take any amount of memory on damaged bytes.
"""

from __future__ import annotations

from collections.abc import Container
from importlib import import_module
from pathlib import Path
from typing import Any

from cpcapp._io.worker import Answer, Worker, limit_memory

# What is read into memory may take the first number of bytes, or the second number times the size
# of the file. Strings of any length count as so many bytes each, as Python keeps them.
_MAX_SMALL = 256 << 20
_MAX_RATIO = 64
_STRING_BYTES = 128
_MAX_OBJECTS = 100_000
# Besides what is read, which passes through several copies.
_SPARE_MEMORY = 512 << 20
_COPIES = 3

# Set by hand: a damaged file is given up within ten seconds, and the slowest disk of today reads
# two megabytes in a second.
_SECONDS = 8.0
_BYTES_PER_SECOND = 2e6


class Hdf5Process:
    """A process that reads one file, with limits on time and memory; it ends with this object."""

    def __init__(self, module: str, path: Path, *arguments: str) -> None:
        self._seconds = _SECONDS + path.stat().st_size / _BYTES_PER_SECOND
        self._worker = Worker(module, *arguments)

    def ask(self, request: dict[str, Any]) -> Answer:
        """Return the answer to a request, or raise `WorkerError`."""
        return self._worker.ask(request, self._seconds)


def check_contents(path: str, streamed: Container[str] = ()) -> None:
    """Raise unless a file keeps all it has itself, and what is read into memory is bounded.

    ``streamed`` names parts that are not read into memory as a whole. The memory that this process
    may take is limited too.
    """
    max_bytes = max(_MAX_SMALL, _MAX_RATIO * Path(path).stat().st_size)
    limit_memory(_SPARE_MEMORY + _COPIES * max_bytes)
    h5py: Any = import_module("h5py")
    with h5py.File(path, "r") as file:
        total, count, groups, seen = 0, 0, ["/"], set()
        while groups:
            group = file[place := groups.pop()]
            address = h5py.h5o.get_info(group.id).addr
            if address in seen:
                continue
            seen.add(address)
            for name in group:
                count += 1
                if count > _MAX_OBJECTS:
                    raise ValueError(f"it has more than {_MAX_OBJECTS} parts")
                inner, link = f"{place.rstrip('/')}/{name}", group.get(name, getlink=True)
                if isinstance(link, h5py.SoftLink):
                    continue
                part = None if isinstance(link, h5py.ExternalLink) else group[name]
                is_dataset = isinstance(part, h5py.Dataset)
                if part is None or (is_dataset and (part.is_virtual or part.external)):
                    raise ValueError(f"its {inner} lies in another file")
                if isinstance(part, h5py.Group):
                    groups.append(inner)
                elif is_dataset and inner not in streamed:
                    of_one = _STRING_BYTES if part.dtype.hasobject else part.dtype.itemsize
                    total += int(part.size or 0) * of_one
        if total > max_bytes:
            parts = "parts besides X" if streamed else "parts"
            raise ValueError(
                f"its {parts} take {total >> 20} MB in memory, more than {max_bytes >> 20}"
            )
