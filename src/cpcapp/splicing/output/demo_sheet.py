"""One picture of photos with known splices and what a model found in them."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cpcapp.splicing.decide.words import FADING, format_verdict
from cpcapp.splicing.output.overlays import (
    Finding,
    draw_boundary,
    draw_localization,
    draw_part,
)
from cpcapp.splicing.photo.samples import Sample

Picture = NDArray[np.uint8]

# Pixels: chosen by eye.
_PANEL, _GAP, _TEXT, _LINE = 360, 8, 17, 25
_TITLES = ("the photo", "what was pasted", "all edges", "the likely seam", "the likely part")
_WIDTH = len(_TITLES) * (_PANEL + _GAP) + _GAP


def draw_demo_sheet(rows: Sequence[Picture]) -> Picture:
    """Return rows of `draw_demo_row` below each other, with an explanation and titles above.

    >>> import numpy as np
    >>> draw_demo_sheet([np.zeros((100, 1848, 3), dtype=np.uint8)]).shape
    (159, 1848, 3)
    """
    header = np.full((2 * _TEXT + _LINE, _WIDTH, 3), 255, dtype=np.uint8)
    header = _write_text(header, FADING, (_GAP, _TEXT // 3), "black")
    for i, title in enumerate(_TITLES):
        corner = (_GAP + i * (_PANEL + _GAP), _LINE + _TEXT // 3)
        header = _write_text(header, title, corner, "black")
    return np.vstack([header, *rows])


def draw_demo_row(photo: Sample, found: Finding, threshold: float) -> Picture:
    """Return photo, truth, edges, boundary map and region beside each other, on white.

    The verdict is written below the last two. If it says nothing of signs, the last one is the
    photo as it is.
    """
    pixels, mask = photo.read()
    panels = [
        pixels,
        draw_part(pixels, mask),
        np.repeat(draw_boundary(found.edges)[..., None], 3, axis=2),
        draw_localization(pixels, found, threshold, line=False),
        pixels if found.mask is None or not found.mask.any() else draw_part(pixels, found.mask),
    ]
    height = round(_PANEL * pixels.shape[0] / pixels.shape[1])
    row = np.full((height + _LINE + _GAP, _WIDTH, 3), 255, dtype=np.uint8)
    for i, panel in enumerate(panels):
        left = _GAP + i * (_PANEL + _GAP)
        small = cv2.resize(panel, (_PANEL, height), interpolation=cv2.INTER_AREA)
        row[:height, left : left + _PANEL] = small
    if photo.authentic:
        row = _write_text(row, "nothing", (_PANEL + 3 * _GAP, _GAP), "white")
    verdict = format_verdict(found.verdict, found.p_value)
    below = (_GAP + 3 * (_PANEL + _GAP), height + _TEXT // 4)
    return _write_text(row, verdict, below, "black")


def _write_text(picture: Picture, text: str, corner: tuple[int, int], colour: str) -> Picture:
    canvas = Image.fromarray(picture)
    ImageDraw.Draw(canvas).text(corner, text, fill=colour, font=ImageFont.load_default(_TEXT))
    return np.asarray(canvas)
