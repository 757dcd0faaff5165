"""Whether the marked part was drawn rather than photographed, or is half of a collage.

Captions, frames, logos and pixelated faces have seams too. Their neighbouring pixels are the same
but for a few large steps, or they are of few colours and straight.
"""

from __future__ import annotations

from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.content_kind import measure_content
from cpcapp.splicing.photo.jpeg import BLOCK
from cpcapp.splicing.photo.pixels import BoolArray, as_bytes

PartKind = Literal["graphic", "collage"]

# Chosen by hand on 200 drawn parts and 400 made splices, photos of UCID and ImageNet: of the
# splices one in forty is called graphic.
_FEW_STEPS = 0.08
_MIN_SHARE_OF_STEPS = 0.55
_MIN_FLAT = 0.3
_MIN_FEW_COLOURS = 0.45
# A part of this share of its box is straight, and of the higher one ends in a straight line.
_MIN_FILL, _STRAIGHT_FILL = 0.9, 0.93
# Of width or height.
_ACROSS = 0.95
_MIN_BLOCKS = 8
# Pixels next to the seam are left out, as JPEG mixes the two sides.
_MARGIN = 9
_MAX_COUNTED = 1_000_000


def find_part_kind(pixels: NDArray[Any], mask: BoolArray) -> PartKind | None:
    """Say what the largest piece of a marked part looks like; None for all usual objects."""
    n_pieces, labels, boxes, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
    if n_pieces < 2:
        return None
    piece = 1 + int(boxes[1:, cv2.CC_STAT_AREA].argmax())
    left, top, width, height, area = boxes[piece].tolist()
    beyond = (mask.shape[0] - top - height, mask.shape[1] - left - width)
    n_borders = sum(distance <= BLOCK for distance in (top, left, *beyond))
    is_across = height >= _ACROSS * mask.shape[0] or width >= _ACROSS * mask.shape[1]
    fill = area / (height * width)
    # From a corner of a block of JPEG
    box = slice(top - top % BLOCK, top + height), slice(left - left % BLOCK, left + width)
    photo, part = as_bytes(pixels[box]), labels[box] == piece
    content = measure_content(_blocks_inside(photo, part))
    straight = n_borders >= 2 or is_across or fill >= _MIN_FILL
    if (
        _share_of_large_steps(photo, part) >= _MIN_SHARE_OF_STEPS
        or content.flat >= _MIN_FLAT
        or (straight and content.few_colours >= _MIN_FEW_COLOURS)
    ):
        return "graphic"
    return "collage" if is_across and n_borders == 3 and fill >= _STRAIGHT_FILL else None


def _blocks_inside(photo: NDArray[np.uint8], part: BoolArray) -> NDArray[np.uint8]:
    """Return the blocks within a part, below each other."""
    rows, cols = (n // BLOCK for n in part.shape)
    shape = (rows, BLOCK, cols, BLOCK, -1)
    photo, part = photo[: rows * BLOCK, : cols * BLOCK], part[: rows * BLOCK, : cols * BLOCK]
    share = part.reshape(shape).mean(axis=(1, 3))[..., 0]
    inside = share == 1.0 if (share == 1.0).sum() >= _MIN_BLOCKS else share > 0.5
    return np.reshape(photo.reshape(shape).swapaxes(1, 2)[inside], (-1, BLOCK, 3))


def _share_of_large_steps(photo: NDArray[np.uint8], part: BoolArray) -> float:
    """Return how much of all change between neighbours is in the few largest steps."""
    inner = cv2.erode(part.astype(np.uint8), np.ones((_MARGIN, _MARGIN))) > 0
    inner = inner if inner.sum() >= _MARGIN**2 else part
    shares = []
    for ahead, behind in ((np.s_[:, 1:], np.s_[:, :-1]), (np.s_[1:], np.s_[:-1])):
        steps = cv2.absdiff(photo[ahead], photo[behind]).max(axis=2)[inner[ahead]]
        steps = np.sort(steps[:: 1 + steps.size // _MAX_COUNTED])[::-1].astype(np.int64)
        shares.append(float(steps[: int(_FEW_STEPS * steps.size)].sum() / max(steps.sum(), 1)))
    return sum(shares) / 2
