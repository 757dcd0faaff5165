"""Small conversions that several rooms of this package need."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
    most = np.float32(np.iinfo(pixels.dtype).max)
    return np.asarray(np.divide(pixels, most, dtype=np.float32))
