"""What the header of a JPEG file says about how it was compressed, and whose tables it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np

from cpcapp.splicing.photo.jpeg import STANDARD_TABLE, file_quality
from cpcapp.splicing.photo.jpeg_segments import jpeg_segments

Table = tuple[int, ...]

# ITU-T T.81, table K.2: colour differences, row by row.
_STANDARD_COLOURS = np.full((8, 8), 99, dtype=np.float64)
_STANDARD_COLOURS[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
# By N. Robidoux, for light and colours: what mozjpeg uses unless told otherwise.
_MOZJPEG = np.array(
    [
        *(16, 16, 16, 18, 25, 37, 56, 85),
        *(16, 17, 20, 27, 34, 40, 53, 75),
        *(16, 20, 24, 31, 43, 62, 91, 135),
        *(18, 27, 31, 40, 53, 74, 106, 156),
        *(25, 34, 43, 53, 69, 94, 131, 189),
        *(37, 40, 62, 74, 94, 124, 169, 238),
        *(56, 53, 91, 106, 131, 169, 226, 311),
        *(85, 75, 135, 156, 189, 238, 311, 418),
    ],
    dtype=np.float64,
).reshape(8, 8)
# Tables of Adobe Photoshop that Pillow ships as presets. That "medium" is quality 5 of 12 and
# "high" quality 8 stands in files of Photoshop that record their quality.
_PHOTOSHOP = {
    "low": "Adobe Photoshop's tables, low quality",
    "medium": "Adobe Photoshop's tables at quality 5 of 12",
    "high": "Adobe Photoshop's tables at quality 8 of 12",
    "maximum": "Adobe Photoshop's tables, maximum quality",
    "web_low": 'Adobe Photoshop\'s tables, "save for web" low',
    "web_medium": 'Adobe Photoshop\'s tables, "save for web" medium',
    "web_high": 'Adobe Photoshop\'s tables, "save for web" high',
    "web_very_high": 'Adobe Photoshop\'s tables, "save for web" very high',
    "web_maximum": 'Adobe Photoshop\'s tables, "save for web" maximum',
}
# By the digest of both tables, seen in a file of Photoshop CC that records quality 12.
_PHOTOSHOP_BY_DIGEST = {"27a9c73da59c2fd2": "Adobe Photoshop's tables at quality 12 of 12"}
# In the order of the file: each diagonal, up and down by turns.
_ZIGZAG = sorted(np.ndindex(8, 8), key=lambda at: (sum(at), at[0] if sum(at) % 2 else at[1]))
_FACTORS = {
    ((1, 1), (1, 1)): "4:4:4",
    ((2, 1), (1, 1)): "4:2:2",
    ((2, 2), (1, 1)): "4:2:0",
    ((1, 2), (1, 1)): "4:4:0",
    ((4, 1), (1, 1)): "4:1:1",
}
# Frames: all but the markers of Huffman tables, arithmetic coding and extensions.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})


@dataclass(frozen=True)
class JpegFacts:
    """How a JPEG file was compressed.

    Attributes
    ----------
    quality : int or None
        From 1 to 100, by the table of the light: exact for standard tables, else the quality of
        standard tables with about the same mean step. None if the table is missing or senseless.
    tables : str or None
        Whose tables they are, such as ``"standard tables at quality 85"``; None if they are of a
        camera or an editor that is not known here.
    subsampling : str
        ``"4:4:4"`` for colours at full size, ``"4:2:0"`` at half of it, and so on; ``"grey"``
        without colours; ``"unknown"``.
    progressive : bool
    """

    quality: int | None
    tables: str | None
    subsampling: str
    progressive: bool


def read_jpeg_facts(data: bytes) -> JpegFacts | None:
    """Read how a JPEG file was compressed.

    Parameters
    ----------
    data : bytes
        The file.

    Returns
    -------
    JpegFacts or None
        None if it is no JPEG, or has no frame.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing.photo.jpeg import encode_jpeg
    >>> read_jpeg_facts(encode_jpeg(np.zeros((16, 16, 3), np.uint8), quality=85))
    JpegFacts(quality=85, tables='standard tables at quality 85', subsampling='4:2:0',
              progressive=False)
    """
    tables: dict[int, Table] = {}
    frame: tuple[int, bytes] | None = None
    for marker, content in jpeg_segments(data):
        if marker == 0xDB:
            tables |= _parse_tables(content)
        elif marker in _FRAMES and frame is None:
            frame = marker, content
    if frame is None:
        return None
    components = [
        (content >> 4, content & 15, table)
        for content, table in zip(frame[1][7::3], frame[1][8::3], strict=False)
    ][: frame[1][5] if len(frame[1]) > 5 else 0]
    used = [tables.get(table) for _, _, table in components]
    light = used[0] if used else None
    colours = used[1] if len(used) == 3 else None
    name, quality = (None, None) if light is None else _name_tables(light, colours)
    if quality is None and light is not None and min(light) > 0:
        quality = file_quality(light)
    factors = [(across, down) for across, down, _ in components]
    return JpegFacts(quality, name, _subsampling(factors), frame[0] in _PROGRESSIVE)


def _parse_tables(content: bytes) -> dict[int, Table]:
    """Return the tables of a segment, by their number, row by row."""
    tables, at = {}, 0
    while at < len(content):
        wide, number = content[at] >> 4, content[at] & 15
        size = 128 if wide else 64
        stored = content[at + 1 : at + 1 + size]
        at += 1 + size
        if len(stored) < size:
            break
        values = np.frombuffer(stored, ">u2" if wide else "u1")
        table = np.empty((8, 8), dtype=int)
        for place, value in zip(_ZIGZAG, values.tolist(), strict=True):
            table[place] = value
        tables[number] = tuple(table.ravel().tolist())
    return tables


def _subsampling(factors: Sequence[tuple[int, int]]) -> str:
    if len(factors) == 1:
        return "grey"
    if len(factors) != 3 or factors[1] != factors[2]:
        return "unknown"
    return _FACTORS.get((factors[0], factors[1]), "unknown")


def _name_tables(light: Table, colours: Table | None) -> tuple[str | None, int | None]:
    """Return whose tables they are, and the quality if it is a standard one."""
    for kind, known in _scaled_tables().items():
        quality = known.get((light, colours))
        if quality is not None:
            return f"{kind} at quality {quality}", quality if kind.startswith("standard") else None
    name = _photoshop_tables().get((light, colours))
    return name or _PHOTOSHOP_BY_DIGEST.get(_digest(light, colours)), None


def _digest(light: Table, colours: Table | None) -> str:
    return sha256(repr((light, colours)).encode()).hexdigest()[:16]


@cache
def _scaled_tables() -> dict[str, dict[tuple[Table, Table | None], int]]:
    """Return the tables that follow from a quality by libjpeg's rule."""
    found: dict[str, dict[tuple[Table, Table | None], int]] = {}
    for kind, light, colours in (
        ("standard tables", STANDARD_TABLE, _STANDARD_COLOURS),
        ("tables of mozjpeg", _MOZJPEG, _MOZJPEG),
    ):
        known = found[kind] = {}
        # From high to low: the tables of the lowest qualities are equal, clipped at 255.
        for quality in range(100, 0, -1):
            percent = 5000 // quality if quality < 50 else 200 - 2 * quality
            for most in (255, 32767):
                first, second = (
                    tuple(
                        np.clip((base * percent + 50) // 100, 1, most).astype(int).ravel().tolist()
                    )
                    for base in (light, colours)
                )
                known.setdefault((first, second), quality)
                known.setdefault((first, None), quality)
                # Some encoders use one table for all.
                known.setdefault((first, first), quality)
    return found


@cache
def _photoshop_tables() -> dict[tuple[Table, Table | None], str]:
    from PIL.JpegPresets import presets

    known: Any = presets
    found: dict[tuple[Table, Table | None], str] = {}
    for name, text in _PHOTOSHOP.items():
        tables = [tuple(table) for table in known[name]["quantization"]]
        found[tables[0], tables[1]] = text
    return found
