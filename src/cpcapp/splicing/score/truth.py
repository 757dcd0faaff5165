"""Ground truth: the band of pixels around a seam."""

from __future__ import annotations

import cv2
import numpy as np

from cpcapp.splicing.photo.pixels import BoolArray


def boundary_band(mask: BoolArray, radius: int = 4) -> BoolArray:
    """Return the pixels near the seam: ``dilate(mask, r) − erode(mask, r)``.

    The element is OpenCV's ellipse of diameter 2r + 1. There is a seam only where pasted and
    original pixels of the photo meet: what lies outside the photo counts as neither, so a pasted
    part that is cut by the photo's border has no seam along that border.
    """
    mask = np.asarray(mask)
    if mask.ndim != 2 or mask.dtype != bool:
        raise ValueError(
            f"mask has shape {mask.shape} and dtype {mask.dtype}; it must be (height, width), bool"
        )
    if isinstance(radius, bool) or not isinstance(radius, int | np.integer) or radius < 1:
        raise ValueError(f"radius={radius!r} must be a whole number from 1 on")
    if mask.size == 0:
        return mask.copy()
    side = 2 * int(radius) + 1
    element = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    # The default border of either operation is its neutral value: outside pixels change nothing.
    plane = mask.astype(np.uint8)
    return np.asarray(cv2.dilate(plane, element) > cv2.erode(plane, element))
