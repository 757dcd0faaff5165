"""Pictures of scored photos, as in the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cpcapp.splicing.output.overlays import PINK as PINK
from cpcapp.splicing.photo.pixels import as_unit_float

Picture = NDArray[np.uint8]

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
    """Return a photo, its edges and the map that was found, side by side.

    From left to right: the photo with the true seam in pink, all edges, the map. The brightest
    value of either map is white.
    """
    shape = np.shape(image)[:2]
    for name, array in (("mask", mask), ("edges", edges), ("boundary", boundary)):
        if np.shape(array) != shape:
            raise ValueError(f"{name} has shape {np.shape(array)}; the photo has {shape}")
    if side < 1:
        raise ValueError(f"side={side!r} must be at least 1")
    photo = _fit(np.asarray(255 * as_unit_float(image), dtype=np.float32), side)
    panel = np.rint(photo).astype(np.uint8)
    share = _fit(mask.astype(np.float32), side)
    # Wide enough to be seen on a small panel, and hides little of a large one.
    panel[_find_seam(share >= 0.5, max(1, round(max(panel.shape) / 300)))] = PINK
    gap = np.full((panel.shape[0], _GAP, 3), 255, dtype=np.uint8)
    picture = np.hstack([panel, gap, _draw_grey(edges, side), gap, _draw_grey(boundary, side)])
    return np.vstack([_draw_caption(caption, picture.shape[1]), picture]) if caption else picture


def contact_sheet(pictures: Sequence[Picture]) -> Picture:
    """Return pictures one below the other, the narrower ones filled up with white.

    >>> import numpy as np
    >>> contact_sheet([np.zeros((20, 30, 3), np.uint8), np.zeros((10, 50, 3), np.uint8)]).shape
    (36, 50, 3)
    """
    if not pictures:
        raise ValueError("pictures has none; at least one is needed")
    width = max(picture.shape[1] for picture in pictures)
    rows: list[Picture] = []
    for picture in pictures:
        if rows:
            rows.append(np.full((_GAP, width, 3), 255, dtype=np.uint8))
        rest = ((0, 0), (0, width - picture.shape[1]), (0, 0))
        rows.append(np.pad(picture, rest, constant_values=255))
    return np.vstack(rows)


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


def _draw_caption(text: str, width: int) -> Picture:
    line = Image.new("RGB", (width, 2 * _TEXT), "white")
    font = ImageFont.load_default(_TEXT)
    ImageDraw.Draw(line).text((2, _TEXT // 4), text, fill="black", font=font)
    return np.asarray(line)
