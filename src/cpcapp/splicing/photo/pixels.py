"""Types of maps and pixels, and conversions between uint8, uint16 and float32 in [0, 1]."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

#: A map, (height, width), or a photo, (height, width, 3).
FloatMap = NDArray[np.float32]
# Not imported from `cpcapp.moments.moments`: that imports SciPy, which takes long to load.
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
#: A photo as it is read, (height, width, 3).
Pixels = NDArray[np.uint8] | NDArray[np.uint16]


def as_unit_float(pixels: NDArray[Any]) -> FloatMap:
    """Return uint8 or uint16 pixels as float32 in [0, 1].

    >>> import numpy as np
    >>> as_unit_float(np.array([0, 51, 255], dtype=np.uint8))
    array([0. , 0.2, 1. ], dtype=float32)
    """
    if pixels.dtype not in (np.uint8, np.uint16):
        raise ValueError(f"pixels have dtype {pixels.dtype}; it must be uint8 or uint16")
    levels = np.arange(np.iinfo(pixels.dtype).max + 1, dtype=np.float32)
    levels /= levels[-1]
    if pixels.dtype == np.uint8 and pixels.size:
        rows = np.ascontiguousarray(pixels).reshape(len(pixels) if pixels.ndim > 1 else 1, -1)
        return np.asarray(cv2.LUT(rows, levels)).reshape(pixels.shape)
    return levels.take(pixels)


def as_bytes(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Return uint8 or uint16 pixels as uint8, rounded to the nearest level.

    The whole package rounds 16 bits in this way: ``65535 / 257 = 255``.

    >>> import numpy as np
    >>> as_bytes(np.array([0, 128, 129, 65535], dtype=np.uint16))
    array([  0,   0,   1, 255], dtype=uint8)
    """
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype != np.uint16:
        raise ValueError(f"pixels have dtype {pixels.dtype}; it must be uint8 or uint16")
    return np.asarray((pixels.astype(np.uint32) + 128) // 257, dtype=np.uint8)


def turn_upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return pixels, or a map of them, upright: turned and mirrored as EXIF counts it.

    >>> import numpy as np
    >>> turn_upright(np.array([[1, 2, 3]]), 6).tolist()
    [[1], [2], [3]]
    """
    if orientation not in range(2, 9):
        return pixels
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows, columns = (-1 if flipped else 1 for flipped in flips(orientation))
    return pixels[::rows, ::columns]


def flips(orientation: int) -> tuple[bool, bool]:
    """Return whether an orientation reverses the rows and the columns."""
    return orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7)
