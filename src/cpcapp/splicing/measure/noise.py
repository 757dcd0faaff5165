"""The level of noise in each part of a photo.

Parts that come from another camera, or that were smoothed or sharpened, have another level. So have
dark and bright parts of one photo, and parts with fine texture: the level shows a difference, not
its cause.
"""

from __future__ import annotations

import cv2
import numpy as np

from cpcapp.splicing.photo.jpeg import luminance
from cpcapp.splicing.photo.pixels import FloatMap, Pixels

#: Side of the windows in which noise is measured, and their distance, in pixels.
WINDOW, STRIDE = 16, 8
# Both second differences: constant and slanted parts and straight edges vanish (Immerkær 1996).
_KERNEL = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], dtype=np.float32) / 6.0
# Median of the absolute value of normal noise with a standard deviation of 1.
_MEDIAN = 0.6745
# Windows at once: the median copies their pixels.
_ROWS_PER_STRIP = 16


def noise_levels(pixels: Pixels) -> FloatMap:
    """Return the standard deviation of the noise in windows of 16 x 16 pixels.

    By the median of what a high-pass filter leaves, so that edges in less than half of a window do
    not count.

    In grey levels of 0 to 255. Windows begin every 8 pixels. Empty if a side has less than 16.
    """
    photo = np.asarray(pixels)
    if photo.ndim != 3 or photo.shape[2] != 3:
        raise ValueError(f"pixels of shape {photo.shape} must be (height, width, 3)")
    rows, cols = (max(0, (n - WINDOW) // STRIDE + 1) for n in photo.shape[:2])
    found = np.zeros((rows, cols), dtype=np.float32)
    if not found.size:
        return found
    for first in range(0, rows, _ROWS_PER_STRIP):
        last = min(first + _ROWS_PER_STRIP, rows)
        # One row more on both sides for the filter, where there is one.
        top, bottom = STRIDE * first, STRIDE * (last - 1) + WINDOW
        above = min(top, 1)
        rest = cv2.filter2D(luminance(photo[top - above : bottom + 1]), -1, _KERNEL)
        rest = np.abs(rest[above : above + bottom - top])
        windows = np.lib.stride_tricks.sliding_window_view(rest, (WINDOW, WINDOW))
        windows = windows[::STRIDE, ::STRIDE][:, :cols]
        found[first:last] = np.median(windows.reshape(last - first, cols, -1), axis=2)
    found /= np.float32(_MEDIAN)
    return found
