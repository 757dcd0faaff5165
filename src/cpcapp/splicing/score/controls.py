"""Controls: simple maps that a method has to beat before its score says anything.

Each takes the pixels and all edges of a photo and returns a map of where it may be spliced. A
hard, unblended cut gives itself away to any high-pass filter, so a table without these rows can
make a filter look like a method.

They are given their best form. Whether to multiply by the edges, as the paper does with its own
map, and how much to smooth was tried on made splices (`cpcapp.splicing.make`), with hard cuts and
with varied ones, never on a data set that is scored. Both high-pass maps gain by the edges;
smoothing comes after the product, since the truth is a band of 4 pixels to either side.

Four more are about surfaces and look for traces of JPEG, block by block; docs/traces.md describes
them. Two of these also use the JPEG file, where a sample has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.measure.classic_traces import block_contrast, error_levels
from cpcapp.splicing.measure.jpeg_traces import coefficients_from_pixels, double_jpeg_trace
from cpcapp.splicing.photo.jpeg import (
    BLOCK,
    JpegCoefficients,
    grid_offset,
    luminance,
    near_zeros,
    recompress,
    smooth_blocks,
    spread_blocks,
)
from cpcapp.splicing.photo.pixels import FloatMap, Pixels, as_bytes, as_unit_float

# In pixels, tried as said above; and the quality that error level analysis is mostly run at.
_SMOOTHING = 3.0
_QUALITY = 90
# In blocks, as for the other maps of blocks.
_BLOCK_WINDOW = 3


def constant_map(pixels: Pixels, edges: FloatMap) -> FloatMap:
    """Return a constant: it shows what a score is worth where the truth alone decides."""
    return np.zeros(edges.shape, dtype=np.float32)


def edge_strength_map(pixels: Pixels, edges: FloatMap) -> FloatMap:
    """Return the edges, smoothed: every edge is a seam, the stronger the likelier."""
    return _smooth(edges)


def error_level_map(pixels: Pixels, edges: FloatMap) -> FloatMap:
    """Return the mean over channels of ``|I − JPEG₉₀(I)|``, times the edges, smoothed."""
    photo = as_bytes(pixels)
    error = np.abs(photo.astype(np.float32) - recompress(photo, _QUALITY)).mean(axis=2)
    return _smooth(error * edges)


def grey_level_map(pixels: Pixels, edges: FloatMap) -> FloatMap:
    """Return the photo's own grey: whether a part is light or dark, for surfaces."""
    return np.asarray(as_unit_float(pixels).mean(axis=2), dtype=np.float32)


def third_difference_map(pixels: Pixels, edges: FloatMap) -> FloatMap:
    """Return the third difference on edges: a plain high-pass filter.

    ``|I(x−1) − 3 I(x) + 3 I(x+1) − I(x+2)|``, along rows and along columns, summed, mean over
    channels, times the edges, smoothed.
    """
    photo = as_unit_float(pixels)
    total = _third_difference(photo, 0) + _third_difference(photo, 1)
    return _smooth(total.mean(axis=2) * edges)


def near_zeros_map(pixels: Pixels, edges: FloatMap) -> FloatMap:
    """Return where coefficients near 0 are missing on the grid of an earlier JPEG.

    From pixels alone; see `cpcapp.splicing.photo.jpeg.near_zeros`. If the photo was cropped,
    the grid is found first.
    """
    plane = luminance(as_bytes(pixels))
    row, column = grid_offset(plane) or (0, 0)
    blocks = near_zeros(plane[row:, column:])
    return spread_blocks(_unit_range(-blocks), edges.shape, (row, column))


def block_error_level_map(pixels: Pixels, edges: FloatMap) -> FloatMap:
    """Return the error of JPEG at quality 90, block by block: error level analysis of surfaces."""
    (levels,) = error_levels(pixels, (_QUALITY,))
    return spread_blocks(_unit_range(smooth_blocks(levels, _BLOCK_WINDOW)), edges.shape)


def double_jpeg_map(
    pixels: Pixels, edges: FloatMap, coefficients: JpegCoefficients | None = None
) -> FloatMap:
    """Return how likely each block was compressed once, in a photo that was compressed twice.

    ``coefficients``: of the photo's file. Without them they are estimated from the pixels.
    """
    return _compressed_once(pixels, coefficients)


def block_contrast_map(
    pixels: Pixels, edges: FloatMap, coefficients: JpegCoefficients | None = None
) -> FloatMap:
    """Return the contrast of blocks across the photo against blocks nearby.

    ``coefficients``: of the photo's file: they tell which side is high. Without them the pixels do.
    """
    rows, cols = (n // BLOCK for n in edges.shape)
    if not rows * cols:
        return np.zeros(edges.shape, dtype=np.float32)
    once = _compressed_once(pixels, coefficients)[: BLOCK * rows, : BLOCK * cols]
    once = cv2.resize(np.ascontiguousarray(once), (cols, rows), interpolation=cv2.INTER_AREA)
    return spread_blocks(_unit_range(block_contrast(pixels, once)), edges.shape)


#: The controls by the names they have in tables.
CONTROLS: dict[str, Callable[..., FloatMap]] = {
    "constant": constant_map,
    "edge strength": edge_strength_map,
    "error level analysis": error_level_map,
    "grey level": grey_level_map,
    "third difference": third_difference_map,
    "error level of blocks": block_error_level_map,
    "near-zeros": near_zeros_map,
    "double compression": double_jpeg_map,
    "block contrast": block_contrast_map,
}
#: Those that also look at the JPEG file, where a sample has one: their third argument.
FILE_CONTROLS = (double_jpeg_map, block_contrast_map)


def _compressed_once(pixels: Pixels, coefficients: JpegCoefficients | None) -> FloatMap:
    shape = pixels.shape[:2]
    if coefficients is not None:
        values = coefficients.pixel_map(double_jpeg_trace(coefficients).aligned)
        # A file of another size is not that of these pixels.
        if values.shape == shape:
            return _unless_constant(values)
    photo = as_bytes(pixels)
    row, column = grid_offset(luminance(photo)) or (0, 0)
    aligned = double_jpeg_trace(coefficients_from_pixels(photo[row:, column:])).aligned
    return spread_blocks(_unless_constant(aligned), shape, (row, column))


def _unless_constant(values: FloatMap) -> FloatMap:
    """Return a map, or zeros if it is the same everywhere and says nothing."""
    return values if values.size and np.ptp(values) > 0.0 else np.zeros_like(values)


def _unit_range(values: FloatMap) -> FloatMap:
    """Return a map scaled to values from 0 to 1; zeros if it is the same everywhere."""
    if not values.size or not np.ptp(values) > 0.0:
        return np.zeros(values.shape, dtype=np.float32)
    return np.asarray((values - values.min()) / np.ptp(values), dtype=np.float32)


def _third_difference(photo: FloatMap, axis: int) -> FloatMap:
    # Differences lie between pixels: a pixel gets the mean of the two next to it.
    border: Any = [(0, 0)] * photo.ndim
    border[axis] = (2, 2)
    size = np.abs(np.diff(np.pad(photo, border, mode="edge"), n=3, axis=axis))
    front, back = (
        np.take(size, range(start, start + photo.shape[axis]), axis=axis) for start in (0, 1)
    )
    return np.asarray((front + back) / 2)


def _smooth(values: NDArray[Any]) -> FloatMap:
    """Return a map smoothed and scaled to a largest value of 1."""
    smooth = cv2.GaussianBlur(
        np.ascontiguousarray(values, dtype=np.float32),
        (0, 0),
        _SMOOTHING,
        borderType=cv2.BORDER_REFLECT,
    )
    highest = smooth.max()
    return np.asarray(smooth / highest if highest > 0 else smooth, dtype=np.float32)
