"""Where a damaged gzip file is damaged."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 16
_GZIP_HEADER = 31  # as zlib wants it


def locate_gzip_damage(path: Path) -> str:
    r"""Return which lines of a compressed text are in doubt, and why.

    Parameters
    ----------
    path : Path
        It can't be unpacked as a whole.

    Examples
    --------
    >>> import gzip, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "t.gz"
    >>> _ = path.write_bytes(gzip.compress(b"a\n1\n2\n3\n")[:-4])
    >>> locate_gzip_damage(path)
    'after line 4: it is cut off'
    """
    n_lines, engine = 0, _new_engine()
    with path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            while data:
                before = engine.copy()
                try:
                    n_lines += engine.decompress(data).count(b"\n")
                except zlib.error:
                    return _describe(before, data, n_lines)
                data = engine.unused_data
                if engine.eof:
                    # Several of them may follow each other, and zeros the last.
                    data, engine = data.lstrip(b"\0"), _new_engine()
    return f"after line {n_lines}: it is cut off"


def _describe(engine: Any, data: bytes, n_lines: int) -> str:
    """Unpack byte by byte up to the damage: what comes with an error is lost."""
    for place in range(len(data)):
        try:
            n_lines += engine.decompress(data[place : place + 1]).count(b"\n")
        except zlib.error as error:
            if "data check" in str(error) or "length check" in str(error):
                return f"in line {n_lines} or before it: its checksum is wrong"
            reason = str(error).partition(": ")[2] or str(error)
            return f"after line {n_lines}: {reason}"
    return f"after line {n_lines}"


def _new_engine() -> Any:
    return zlib.decompressobj(_GZIP_HEADER)
