"""Error levels of blocks at several JPEG qualities, also called JPEG ghosts.

A block that was compressed once at a quality changes little when it is compressed again at the same
one. So its curve of errors over qualities has a dip there. Blocks with another history have it
elsewhere, or nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import ArrayLike

from cpcapp.splicing.photo.jpeg import BLOCK, recompress
from cpcapp.splicing.photo.pixels import FloatMap, as_bytes

#: Qualities that most cameras, editors and web sites use.
QUALITIES = (60, 70, 75, 80, 85, 90, 95)
# Added to mean squares, in grey levels: rounding to whole levels adds about as much.
_ROUNDING = 1.0 / 12.0
# JPEG allows sides up to 65,500 pixels: longer photos are compressed in parts of whole blocks.
_MAX_JPEG_SIDE = 65_488


def error_levels(pixels: ArrayLike, qualities: Sequence[int] = QUALITIES) -> FloatMap:
    """Return how much each block changes when the photo is compressed at some qualities.

    The logarithm of the mean squared difference, minus its mean over the qualities: blocks with
    much detail change more at all of them. With one quality nothing is subtracted.
    """
    photo = as_bytes(np.asarray(pixels))
    if photo.ndim != 3 or photo.shape[2] != 3:
        raise ValueError(f"pixels of shape {photo.shape} must be (height, width, 3)")
    if not len(qualities):
        raise ValueError("qualities is empty; give at least one, from 1 to 100")
    rows, cols = (n // BLOCK for n in photo.shape[:2])
    levels = np.zeros((len(qualities), rows, cols), dtype=np.float32)
    if not levels.size:
        return levels
    for level, quality in zip(levels, qualities, strict=True):
        level[...] = np.log(squared_errors(photo, quality) + np.float32(_ROUNDING))
    return levels - levels.mean(axis=0) if len(qualities) > 1 else levels


def squared_errors(photo: ArrayLike, quality: int) -> FloatMap:
    """Return the mean squared change of each whole block by JPEG, (height // 8, width // 8).

    >>> import numpy as np
    >>> squared_errors(np.full((20, 30, 3), 128, np.uint8), 50)
    array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    whole = np.asarray(photo)
    height, width = (n // BLOCK * BLOCK for n in whole.shape[:2])
    found = np.empty((height // BLOCK, width // BLOCK), dtype=np.float32)
    for top in range(0, height, _MAX_JPEG_SIDE):
        for left in range(0, width, _MAX_JPEG_SIDE):
            # With the incomplete blocks at the borders: the colours of the last ones need them.
            part = whole[top : top + _MAX_JPEG_SIDE, left : left + _MAX_JPEG_SIDE]
            change = cv2.absdiff(part, recompress(part, quality))
            down, across = (n // BLOCK for n in change.shape[:2])
            square = cv2.transform(
                np.square(change[: BLOCK * down, : BLOCK * across], dtype=np.float32),
                np.full((1, 3), 1.0 / 3.0, dtype=np.float32),
            )
            found[top // BLOCK :, left // BLOCK :][:down, :across] = cv2.resize(
                square, (across, down), interpolation=cv2.INTER_AREA
            )
    return found
