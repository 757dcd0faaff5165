"""HDF5 files of strangers: read only in processes of their own, after a look at what they hold.

HDF5 may loop for ever, crash or take any amount of memory on damaged bytes.
"""

from __future__ import annotations

from collections.abc import Container
from importlib import import_module
from pathlib import Path
from typing import Any

from cpcapp._io.worker import limit_memory

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


def reading_seconds(path: Path) -> float:
    """Return how long it may take to read a file."""
    return _SECONDS + path.stat().st_size / _BYTES_PER_SECOND


def check_contents(path: str, streamed: Container[str] = ()) -> None:
    """Raise unless a file keeps all it has itself, and what is read into memory is bounded.

    The memory that this process may take is limited too.

    Parameters
    ----------
    path : str
    streamed : container of str
        Parts that are not read into memory as a whole.
    """
    max_bytes = max(_MAX_SMALL, _MAX_RATIO * Path(path).stat().st_size)
    limit_memory(_SPARE_MEMORY + _COPIES * max_bytes)
    h5py: Any = import_module("h5py")
    with h5py.File(path, "r") as file:
        total, count, waiting = 0, 0, ["/"]
        seen = set()
        while waiting:
            place = waiting.pop()
            group = file[place]
            address = h5py.h5o.get_info(group.id).addr
            if address in seen:
                continue
            seen.add(address)
            for name in group:
                count += 1
                if count > _MAX_OBJECTS:
                    raise ValueError(f"it has more than {_MAX_OBJECTS} parts")
                inner = f"{place.rstrip('/')}/{name}"
                link = group.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    raise ValueError(f"its {inner} lies in another file")
                if isinstance(link, h5py.SoftLink):
                    continue
                found = group[name]
                if isinstance(found, h5py.Group):
                    waiting.append(inner)
                elif isinstance(found, h5py.Dataset):
                    total += _memory_of(found, inner, streamed)
        if total > max_bytes:
            parts = "parts besides X" if streamed else "parts"
            raise ValueError(
                f"its {parts} take {total >> 20} MB in memory, more than {max_bytes >> 20}"
            )


def _memory_of(dataset: Any, name: str, streamed: Container[str]) -> int:
    """Return how many bytes a part takes that is read completely."""
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"its {name} lies in another file")
    if name in streamed:
        return 0
    dtype = dataset.dtype
    return int(dataset.size or 0) * (_STRING_BYTES if dtype.hasobject else dtype.itemsize)
