"""Small conversions that several rooms of this package need."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# Not that of `cpcapp.moments`: photos do without SciPy, which takes long to load.
FloatArray = NDArray[np.float64]


def as_unit_float(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Return uint8 or uint16 pixels as float32 in [0, 1].

    Examples
    --------
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
