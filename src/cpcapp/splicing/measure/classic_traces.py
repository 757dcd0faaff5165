"""Traces of parts with another history, as forensic tools show them: no localizer uses them.

`error_levels` and `block_contrast` are what localizers are compared with
(`cpcapp.splicing.score.controls`); `noise_levels` is a view of the page and of reports.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.contrast.solve import solve_contrast
from cpcapp.splicing.photo.jpeg import (
    BLOCK,
    block_cosines,
    luminance,
    near_zeros,
    recompress,
    smooth_blocks,
)
from cpcapp.splicing.photo.pixels import FloatArray, FloatMap, Pixels, as_bytes

# Added to mean squares, in grey levels: rounding to whole levels adds about as much.
_ROUNDING = 1.0 / 12.0

#: Qualities that most cameras, editors and web sites use.
QUALITIES = (60, 70, 75, 80, 85, 90, 95)

# Of `block_contrast`. Side of a tile, in blocks, and of the window that the map is smoothed over:
# the best of 4 and 6, and of 3 and 5, on splices of training photos of BSDS500 as
# benchmarks/double_jpeg.py makes them.
_TILE = 6
_WINDOW = 5
# Fewer tiles have no covariance to speak of. This and the next three were set by hand.
_MIN_TILES = 12
_QUALITIES = (65, 75, 85, 95)
# Sums of both frequencies: low, middle and high bands.
_BANDS = ((1, 2), (3, 4), (5, 7), (8, 14))
_SUM = np.add.outer(np.arange(BLOCK), np.arange(BLOCK))
_THIRD_DIFFERENCE = np.array([[1.0, -3.0, 3.0, -1.0]], dtype=np.float32)
# Features that vary less, in their own units (mostly logarithms), are rounding.
_CONSTANT = 1e-4


def block_contrast(pixels: Pixels, once: NDArray[np.floating] | None = None) -> FloatMap:
    """Return the first component of the contrast between tiles and within them, block by block.

    The method of the paper, with one photo as the only data. Each 8 x 8 block has a vector of
    traces of compression and sharpness. Means over tiles of 6 x 6 blocks are the target, deviations
    of the blocks from their tile the background. If a part has another history, it varies most
    between tiles, relative to how much it varies within them.

    ``once``: A map that is high where a block was compressed less often, such as ``aligned`` of
    `cpcapp.splicing.measure.jpeg_traces.DoubleJpegTrace`. It gives the sign. By default, and if it
    is the same everywhere, `cpcapp.splicing.photo.jpeg.near_zeros` does, negated.

    In standard deviations from the median, high on the side that was compressed less often. 0
    everywhere if the photo is flat or has less than 12 tiles of 48 x 48 pixels.
    """
    photo = as_bytes(pixels)
    rows, cols = (n // BLOCK for n in photo.shape[:2])
    nothing = np.zeros((rows, cols), dtype=np.float32)
    if (rows // _TILE) * (cols // _TILE) < _MIN_TILES:
        return nothing
    plane = luminance(photo)
    vectors = _regress_out(block_vectors(photo, plane), _content(plane))
    across, within = _pool(vectors)
    varies = within.std(axis=0) > _CONSTANT
    if not varies.any() or not (across[:, varies].std(axis=0) > 0.0).any():
        return nothing
    found = solve_contrast(across[:, varies], within[:, varies], k=1)
    component = smooth_blocks(vectors[..., varies] @ found.filters[:, 0], _WINDOW)
    component -= np.median(component)
    spread = component.std()
    if not spread > 0.0:
        return nothing
    if once is None or np.ptp(once) == 0.0:
        once = -near_zeros(plane)
    return np.asarray(component * np.float32(_sign(component, once) / spread))


def _sign(component: FloatMap, once: NDArray[np.floating]) -> float:
    """Return 1 or -1, so that the component is high where blocks were compressed once."""
    centred = component - component.mean()
    agreement = float((centred * (once - np.mean(once))).sum())
    # Without any evidence the smaller part is taken for pasted: the longer tail is made positive.
    return -1.0 if (agreement or float((centred**3).sum())) < 0.0 else 1.0


def block_vectors(photo: NDArray[np.uint8], plane: FloatMap) -> FloatArray:
    """Return the traces of each block.

    Error levels at 4 qualities, the energy in 4 bands on JPEG's grid and off it, the excess of
    near-zeros on the grid, the energy of both colour differences, and of the third difference of
    the luminance; all but the near-zeros in logarithms.
    """
    rows, cols = (n // BLOCK for n in plane.shape)
    colours = cv2.cvtColor(photo, cv2.COLOR_RGB2YCrCb)
    difference = cv2.filter2D(plane, -1, _THIRD_DIFFERENCE) ** 2
    difference += cv2.filter2D(plane, -1, _THIRD_DIFFERENCE.T) ** 2
    size = (cols, rows)
    sharpness = cv2.resize(
        difference[: BLOCK * rows, : BLOCK * cols], size, interpolation=cv2.INTER_AREA
    )
    features = [
        *error_levels(photo, _QUALITIES),
        *_band_energies(plane),
        *(_shift_back(energy) for energy in _band_energies(plane[BLOCK // 2 :, BLOCK // 2 :])),
        near_zeros(plane),
        *(_band_energies(colours[..., number], bands=((1, 14),))[0] for number in (1, 2)),
        np.log(sharpness + _ROUNDING),
    ]
    return np.stack([np.asarray(feature[:rows, :cols], np.float64) for feature in features], -1)


def _band_energies(
    plane: NDArray[np.generic], bands: tuple[tuple[int, int], ...] = _BANDS
) -> list[FloatMap]:
    squares = block_cosines(plane) ** 2
    return [
        np.log(squares[..., np.isin(_SUM, range(low, high + 1))].mean(axis=-1) + _ROUNDING)
        for low, high in bands
    ]


def _shift_back(values: FloatMap) -> FloatMap:
    """Return the mean of the four blocks off the grid that overlap each block on it."""
    wide = np.pad(values, 1, mode="edge")
    return np.asarray((wide[:-1, :-1] + wide[1:, :-1] + wide[:-1, 1:] + wide[1:, 1:]) / 4)


def _content(plane: FloatMap) -> FloatArray:
    """Return what traces may depend on without any splice: detail and brightness, by block."""
    rows, cols = (n // BLOCK for n in plane.shape)
    blocks = plane[: BLOCK * rows, : BLOCK * cols].reshape(rows, BLOCK, cols, BLOCK)
    mean, variance = blocks.mean(axis=(1, 3)), blocks.var(axis=(1, 3))
    detail = np.log(variance + _ROUNDING)
    return np.stack([np.ones_like(mean), detail, mean / 255.0], -1).astype(np.float64)


def _regress_out(vectors: FloatArray, content: FloatArray) -> FloatArray:
    """Return what is left of the vectors after a linear regression on the content."""
    y, x = (part.reshape(-1, part.shape[-1]) for part in (vectors, content))
    weights, *_ = np.linalg.lstsq(x, y, rcond=None)
    return (y - x @ weights).reshape(vectors.shape)


def _pool(vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the means of tiles, and the deviations of blocks from the mean of their tile."""
    down, across = (n // _TILE for n in vectors.shape[:2])
    width = vectors.shape[-1]
    whole = vectors[: _TILE * down, : _TILE * across]
    tiles = whole.reshape(down, _TILE, across, _TILE, width).swapaxes(1, 2)
    tiles = tiles.reshape(down * across, _TILE * _TILE, width)
    means = tiles.mean(axis=1, keepdims=True)
    return means[:, 0], (tiles - means).reshape(-1, width)


def error_levels(pixels: ArrayLike, qualities: Sequence[int] = QUALITIES) -> FloatMap:
    """Return how much each block changes when the photo is compressed at some qualities.

    A block that was compressed once at a quality changes little when it is compressed again at the
    same one: its curve of errors over qualities has a dip there, also called a JPEG ghost.

    The logarithm of the mean squared difference, minus its mean over the qualities: blocks with
    much detail change more at all of them. With one quality nothing is subtracted.
    """
    photo = as_bytes(np.asarray(pixels))
    rows, cols = (n // BLOCK for n in photo.shape[:2])
    levels = np.zeros((len(qualities), rows, cols), dtype=np.float32)
    if not levels.size:
        return levels
    for level, quality in zip(levels, qualities, strict=True):
        # With the incomplete blocks at the borders: the colours of the last ones need them.
        change = cv2.absdiff(photo, recompress(photo, quality))
        square = cv2.transform(
            np.square(change[: BLOCK * rows, : BLOCK * cols], dtype=np.float32),
            np.full((1, 3), 1.0 / 3.0, dtype=np.float32),
        )
        mean = cv2.resize(square, (cols, rows), interpolation=cv2.INTER_AREA)
        level[...] = np.log(mean + np.float32(_ROUNDING))
    return levels - levels.mean(axis=0) if len(qualities) > 1 else levels


#: Side of the windows in which `noise_levels` are measured, and their distance, in pixels.
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
    not count. Parts of another camera, or that were smoothed or sharpened, have another level; so
    have dark and bright parts of one photo, and fine texture.

    In grey levels of 0 to 255. Windows begin every 8 pixels. Empty if a side has less than 16.
    """
    photo = np.asarray(pixels)
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
