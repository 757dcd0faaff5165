"""What the blocks of JPEG tell of a photo, in the blocks that a network sees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.measure.double_jpeg import double_jpeg_trace
from cpcapp.splicing.photo.coefficients import JpegCoefficients, coefficients_of
from cpcapp.splicing.photo.jpeg import BLOCK, luminance
from cpcapp.splicing.photo.jpeg_grid import near_zeros
from cpcapp.splicing.photo.pixels import FloatMap

#: Of each block: the evidence for one compression against two, and near-zeros on the grid.
N_JPEG_TRACES = 2
# No probability is nearer to 0 or 1 than this.
_LEAST = 0.02
_ROWS_PER_STRIP = 128


def jpeg_block_traces(
    pixels: NDArray[Any], table: NDArray[Any] | None = None, offset: tuple[int, int] = (0, 0)
) -> FloatMap:
    """Measure the traces of JPEG in each block of a photo.

    ``table``: luminance table of the JPEG file, row by row. Without it there is no evidence for one
    compression or two.

    For each block, those that are cut off by the border included: the logarithm of the odds of one
    compression against two, by `double_jpeg_trace`, and `near_zeros`.

    >>> import numpy as np
    >>> jpeg_block_traces(np.zeros((20, 40, 3), np.uint8)).shape
    (3, 5, 2)
    """
    top, left = ((-start) % BLOCK for start in offset)
    height, width = pixels.shape[:2]
    sides = ((top, -(height + top) % BLOCK), (left, -(width + left) % BLOCK))
    plane = np.empty((height, width), np.float32)
    for first in range(0, height, _ROWS_PER_STRIP):
        rows = slice(first, first + _ROWS_PER_STRIP)
        plane[rows] = luminance(pixels[rows])
    if np.any(sides):
        plane = np.pad(plane, sides, mode="edge")
    found = np.zeros((plane.shape[0] // BLOCK, plane.shape[1] // BLOCK, N_JPEG_TRACES), np.float32)
    found[..., 1] = near_zeros(plane)
    if table is not None:
        steps = np.asarray(table, np.uint16)
        levels = np.rint(plane).clip(0, 255).astype(np.uint8)
        once = double_jpeg_trace(JpegCoefficients(steps, coefficients_of(plane, steps), levels))
        share = once.aligned.clip(_LEAST, 1.0 - _LEAST)
        found[..., 0] = np.log(share / (1.0 - share))
    return found
