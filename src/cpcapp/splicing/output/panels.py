"""Sheets of pictures beside each other: of scored photos, and of the demo."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cpcapp.splicing.decide.words import FADING, format_verdict
from cpcapp.splicing.output.draw import (
    PINK,
    Picture,
    draw_boundary,
    draw_localization,
    draw_part,
)
from cpcapp.splicing.photo.pixels import as_unit_float
from cpcapp.splicing.photo.samples import Sample
from cpcapp.splicing.result import Localization

# Pixels: chosen by eye.
_GAP = 6
_TEXT = 15
# The same of the demo's sheet, which has larger letters.
_DEMO_PANEL, _DEMO_GAP, _DEMO_TEXT, _DEMO_LINE = 360, 8, 17, 25
_DEMO_TITLES = ("The photo", "What was pasted", "All edges", "The likely seam", "The likely part")


def case_picture(
    image: NDArray[np.uint8] | NDArray[np.uint16],
    mask: NDArray[np.bool_],
    edges: NDArray[np.float32],
    boundary: NDArray[np.float32],
    *,
    caption: str = "",
    side: int = 480,
) -> Picture:
    """Return the photo with the true seam in pink, all edges and the map that was found in a row.

    The brightest value of either map is white.
    """
    photo = _fit(np.asarray(255 * as_unit_float(image), dtype=np.float32), side)
    panel = np.rint(photo).astype(np.uint8)
    share = _fit(mask.astype(np.float32), side)
    # Wide enough to be seen on a small panel, and hides little of a large one.
    panel[_find_seam(share >= 0.5, max(1, round(max(panel.shape) / 300)))] = PINK
    gap = np.full((panel.shape[0], _GAP, 3), 255, dtype=np.uint8)
    picture = np.hstack([panel, gap, _draw_grey(edges, side), gap, _draw_grey(boundary, side)])
    if not caption:
        return picture
    line = np.full((2 * _TEXT, picture.shape[1], 3), 255, dtype=np.uint8)
    return np.vstack([_write_text(line, caption, (2, _TEXT // 4), size=_TEXT), picture])


def contact_sheet(pictures: Sequence[Picture]) -> Picture:
    """Return pictures one below the other, the narrower ones filled up with white.

    >>> contact_sheet([np.zeros((20, 30, 3), np.uint8), np.zeros((10, 50, 3), np.uint8)]).shape
    (36, 50, 3)
    """
    width = max(picture.shape[1] for picture in pictures)
    rows = [
        np.pad(picture, ((0, _GAP), (0, width - picture.shape[1]), (0, 0)), constant_values=255)
        for picture in pictures
    ]
    return np.vstack(rows)[:-_GAP]


def draw_demo_sheet(photos: Sequence[tuple[Sample, Localization]]) -> Picture:
    """Return photos with known splices, and what was found in them, on one white sheet.

    A row of a photo: the photo, the truth, all edges, the likely seam and the likely part. The
    verdict is written below the last two. Without signs the last one is the photo as it is.
    """
    width = len(_DEMO_TITLES) * (_DEMO_PANEL + _DEMO_GAP) + _DEMO_GAP
    header = np.full((2 * _DEMO_TEXT + _DEMO_LINE, width, 3), 255, dtype=np.uint8)
    header = _write_text(header, FADING, (_DEMO_GAP, _DEMO_TEXT // 3))
    for column, title in enumerate(_DEMO_TITLES):
        header = _write_text(header, title, (_demo_left(column), _DEMO_LINE + _DEMO_TEXT // 3))
    return np.vstack([header, *(_draw_demo_row(*photo, width) for photo in photos)])


def _draw_demo_row(photo: Sample, result: Localization, width: int) -> Picture:
    pixels, mask = photo.read()
    panels = [
        pixels,
        draw_part(pixels, mask),
        np.repeat(draw_boundary(result.edges)[..., None], 3, axis=2),
        draw_localization(pixels, result, result.threshold, line=False),
        pixels if result.mask is None or not result.mask.any() else draw_part(pixels, result.mask),
    ]
    height = round(_DEMO_PANEL * pixels.shape[0] / pixels.shape[1])
    row = np.full((height + _DEMO_LINE + _DEMO_GAP, width, 3), 255, dtype=np.uint8)
    for column, panel in enumerate(panels):
        small = cv2.resize(panel, (_DEMO_PANEL, height), interpolation=cv2.INTER_AREA)
        row[:height, _demo_left(column) :][:, :_DEMO_PANEL] = small
    if photo.authentic:
        row = _write_text(row, "nothing", (_DEMO_PANEL + 3 * _DEMO_GAP, _DEMO_GAP), "white")
    verdict = format_verdict(result.verdict, result.p_value)
    return _write_text(row, verdict, (_demo_left(3), height + _DEMO_TEXT // 4))


def _demo_left(column: int) -> int:
    return _DEMO_GAP + column * (_DEMO_PANEL + _DEMO_GAP)


def _fit(values: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    height, width = values.shape[:2]
    scale = side / max(height, width)
    if scale >= 1:
        return values
    size = (max(1, round(scale * width)), max(1, round(scale * height)))
    return np.asarray(cv2.resize(values, size, interpolation=cv2.INTER_AREA))


def _find_seam(mask: NDArray[np.bool_], radius: int) -> NDArray[np.bool_]:
    """Return the pixels within a radius of where both sides of a mask meet."""
    side = 2 * radius + 1
    element = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    plane = mask.astype(np.uint8)
    return np.asarray(cv2.dilate(plane, element) > cv2.erode(plane, element))


def _draw_grey(values: NDArray[np.float32], side: int) -> Picture:
    small = _fit(np.ascontiguousarray(values, dtype=np.float32), side)
    most = float(small.max(initial=0.0))
    level = np.rint(255 * np.clip(small / most if most > 0 else small, 0, 1)).astype(np.uint8)
    return np.repeat(level[..., None], 3, axis=2)


def _write_text(
    picture: Picture,
    text: str,
    corner: tuple[int, int],
    colour: str = "black",
    size: int = _DEMO_TEXT,
) -> Picture:
    canvas = Image.fromarray(picture)
    ImageDraw.Draw(canvas).text(corner, text, fill=colour, font=ImageFont.load_default(size))
    return np.asarray(canvas)
