"""Sheets of pictures beside each other, with words on them."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cpcapp.splicing.output.draw import PINK, Picture
from cpcapp.splicing.photo.pixels import as_unit_float

# Pixels: chosen by eye.
_GAP = 6
_TEXT = 15


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
    return np.vstack([write_text(line, caption, (2, _TEXT // 4), _TEXT), picture])


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


def write_text(
    picture: Picture, text: str, corner: tuple[int, int], size: int, colour: str = "black"
) -> Picture:
    """Write a line on a copy of a picture."""
    canvas = Image.fromarray(picture)
    ImageDraw.Draw(canvas).text(corner, text, fill=colour, font=ImageFont.load_default(size))
    return np.asarray(canvas)
