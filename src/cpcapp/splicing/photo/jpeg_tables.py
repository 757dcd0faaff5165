"""Tables of JPEG: the standard ones, and whose those of a file are. Needs NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cpcapp.splicing.photo.jpeg_file import JpegFile, Table

# ITU-T T.81, table K.1: luminance, row by row. libjpeg scales it by the quality.
STANDARD_TABLE = np.array(
    [
        *(16, 11, 10, 16, 24, 40, 51, 61),
        *(12, 12, 14, 19, 26, 58, 60, 55),
        *(14, 13, 16, 24, 40, 57, 69, 56),
        *(14, 17, 22, 29, 51, 87, 80, 62),
        *(18, 22, 37, 56, 68, 109, 103, 77),
        *(24, 35, 55, 64, 81, 104, 113, 92),
        *(49, 64, 78, 87, 103, 121, 120, 101),
        *(72, 92, 95, 98, 112, 100, 103, 99),
    ],
    dtype=np.float64,
).reshape(8, 8)
# ITU-T T.81, table K.2: colour differences, row by row.
STANDARD_COLOURS = np.full((8, 8), 99, dtype=np.float64)
STANDARD_COLOURS[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
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
    "low": ", low quality",
    "medium": " at quality 5 of 12",
    "high": " at quality 8 of 12",
    "maximum": ", maximum quality",
    "web_low": ', "save for web" low',
    "web_medium": ', "save for web" medium',
    "web_high": ', "save for web" high',
    "web_very_high": ', "save for web" very high',
    "web_maximum": ', "save for web" maximum',
}
# By the digest of both tables, seen in a file of Photoshop CC that records quality 12.
_PHOTOSHOP_BY_DIGEST = {"27a9c73da59c2fd2": " at quality 12 of 12"}
_FACTORS = {
    ((1, 1), (1, 1)): "4:4:4",
    ((2, 1), (1, 1)): "4:2:2",
    ((2, 2), (1, 1)): "4:2:0",
    ((1, 2), (1, 1)): "4:4:0",
    ((4, 1), (1, 1)): "4:1:1",
}


def table_quality(relative: float) -> int:
    """Return the quality for which libjpeg scales the standard table by a factor.

    >>> table_quality(1.0), table_quality(0.2), table_quality(2.0)
    (50, 90, 25)
    """
    percent = 100.0 * relative
    quality = 5000.0 / percent if percent > 100.0 else (200.0 - percent) / 2.0
    return int(np.clip(round(quality), 1, 100))


def file_quality(table: Sequence[int]) -> int:
    """Return the quality of libjpeg with about the mean step of a luminance table, in any order.

    Cameras and editors use their own tables. For tables of libjpeg it is at most 1 off.
    """
    if len(table) != 64 or min(table) < 0:
        raise ValueError(f"table of {len(table)} entries must have 64, none below 0")
    return table_quality(sum(table) / float(STANDARD_TABLE.sum()))


@dataclass(frozen=True)
class JpegFacts:
    """How a JPEG file was compressed."""

    #: By the table of the light, from 1 to 100: exact for standard tables, else that of standard
    #: tables with about the same mean step.
    quality: int | None
    tables: str | None  # whose they are, if that is known
    subsampling: str  # "4:4:4", "4:2:0", ..., "grey" or "unknown"
    progressive: bool

    @classmethod
    def of_file(cls, jpeg: JpegFile) -> JpegFacts:
        """Return what the segments of a file say."""
        used = [jpeg.tables.get(table) for *_, table in jpeg.components]
        light, colours = used[0], used[1] if len(used) == 3 else None
        name, quality = (None, None) if light is None else _name_tables(light, colours)
        if quality is None and light is not None and min(light) > 0:
            quality = file_quality(light)
        factors = [(across, down) for _, across, down, _ in jpeg.components]
        subsampling = "grey" if len(factors) == 1 else "unknown"
        if len(factors) == 3 and factors[1] == factors[2]:
            subsampling = _FACTORS.get((factors[0], factors[1]), "unknown")
        return cls(quality, name, subsampling, jpeg.progressive)


def _name_tables(light: Table, colours: Table | None) -> tuple[str | None, int | None]:
    """Return whose tables they are, and the quality if it is a standard one."""
    for kind, known in _scaled_tables().items():
        quality = known.get((light, colours))
        if quality is not None:
            return f"{kind} at quality {quality}", quality if kind.startswith("standard") else None
    digest = sha256(repr((light, colours)).encode()).hexdigest()[:16]
    name = _photoshop_tables().get((light, colours)) or _PHOTOSHOP_BY_DIGEST.get(digest)
    return name and f"Adobe Photoshop's tables{name}", None


@cache
def _scaled_tables() -> dict[str, dict[tuple[Table, Table | None], int]]:
    """Return the tables that follow from a quality by libjpeg's rule."""
    scaled: dict[str, dict[tuple[Table, Table | None], int]] = {}
    for kind, *bases in (
        ("standard tables", STANDARD_TABLE, STANDARD_COLOURS),
        ("tables of mozjpeg", _MOZJPEG, _MOZJPEG),
    ):
        known = scaled[kind] = {}
        # From high to low: the tables of the lowest qualities are equal, clipped at 255.
        for quality in range(100, 0, -1):
            percent = 5000 // quality if quality < 50 else 200 - 2 * quality
            for most in (255, 32767):
                steps = [np.clip((base * percent + 50) // 100, 1, most) for base in bases]
                light, colours = (tuple(table.astype(int).ravel().tolist()) for table in steps)
                # Grey photos have no colours, and some encoders use one table for all.
                for second in (colours, None, light):
                    known.setdefault((light, second), quality)
    return scaled


@cache
def _photoshop_tables() -> dict[tuple[Table, Table | None], str]:
    from PIL.JpegPresets import presets

    known: Any = presets
    tables = ((known[name]["quantization"], text) for name, text in _PHOTOSHOP.items())
    return {(tuple(light), tuple(colours)): text for (light, colours), text in tables}
