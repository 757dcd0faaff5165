"""The segments in front of the pixels of a JPEG file, without decoding anything."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")
# More than any real file has in front of its pixels.
_MAX_SEGMENTS = 20_000


def jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    r"""Yield marker and content of each segment, up to the first scan or the end of the file.

    Parameters
    ----------
    data : bytes
        Anything; what is no JPEG has no segments.

    Yields
    ------
    marker : int
        The second byte, such as 0xDB for tables.
    content : bytes
        Without the length; cut off where the file is.

    Examples
    --------
    >>> list(jpeg_segments(b"\xff\xd8\xff\xfe\0\5hi!\xff\xda\0\2pixels"))
    [(254, b'hi!')]
    """
    if not data.startswith(b"\xff\xd8"):
        return
    at = 2
    for _ in range(_MAX_SEGMENTS):
        found = _MARKER.search(data, at)
        if not found or found[1] in (b"\xd9", b"\xda"):
            return
        start = found.end()
        at = start + max(int.from_bytes(data[start : start + 2], "big"), 2)
        yield found[1][0], data[start + 2 : at]
