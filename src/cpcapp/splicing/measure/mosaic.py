"""The trace of the sensor's colour mosaic, to see whether both sides of an edge share a camera.

A sensor measures one colour at each pixel of a 2x2 lattice; the others are interpolated. So the
deviation of a pixel's colours from their neighbours depends on its position in the lattice. How it
does depends on the camera and on the phase of the lattice. Texture and light change the deviation
at all four positions alike. This common part is removed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.ranges import check_ranges, ranged
from cpcapp._io.threads import map_threads, spare_threads
from cpcapp.splicing.photo.pixels import FloatMap


@dataclass(frozen=True)
class MosaicOptions:
    """How the mosaic's trace is measured.

    Where no other origin is given, a value was set by hand and not tuned.

    Attributes
    ----------
    window : int
        Side of the window that statistics are taken over, in cells of the lattice (two pixels).
    distance : int
        From a pixel to the two windows that are compared across it, in cells.
    max_power : float
        Squared deviations are cut off there, in grey levels: larger ones are texture. Pixels with
        more than four times as much count as edges and are left out.
    rounding : float
        Added to mean squared deviations: rounding to whole levels adds about as much.
    prior_count : float
        Pixels without deviation that are added to each window.
    half_weight_share : float
        Share of valid pixels at which the statistics of a window count half: of few pixels among
        texture the mean is mostly chance. On made splices 0.2 to 1.6 did about the same.
    dark, bright : float
        Levels beyond which a colour counts as clipped.
    min_valid_share : float
        Share of valid pixels that a window needs for its statistics to be used.
    opposite_quantile : float
        Share of the photo's windows that may show the opposite phase by chance.
    """

    window: int = ranged(24, 1, 256)
    distance: int = ranged(14, 1, 256)
    max_power: float = ranged(36.0, 1e-3, 1e5)
    rounding: float = ranged(0.3, 1e-6, 1e3)
    prior_count: float = ranged(10.0, 1e-3, 1e6)
    half_weight_share: float = ranged(0.4, 1e-3, 100.0)
    dark: float = ranged(3.0, 0.0, 255.0)
    bright: float = ranged(252.0, 0.0, 255.0)
    min_valid_share: float = ranged(0.08, 0.0, 1.0)
    opposite_quantile: float = ranged(0.02, 0.0, 1.0)

    def __post_init__(self) -> None:
        check_ranges(self)


# Windows overlap, so more of them would add no information.
_MAX_WINDOWS = 250_000
_ROWS_PER_STRIP = 128
_POSITIONS = ((0, 0), (0, 1), (1, 0), (1, 1))
_NEIGHBOURS = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=np.float32) / 4.0


class MosaicTrace(NamedTuple):
    """The mosaic's trace in a window around each cell of the lattice.

    Attributes
    ----------
    statistics : ndarray of shape (12, height // 2, width // 2), float32
        For each colour and each of the four positions in a 2 x 2 cell: the logarithm of the mean
        squared deviation from the four neighbours, over a window. For each colour the mean of the
        four is 0. Values are shrunk towards 0 where few of the window's pixels are valid.
    valid_share : ndarray of shape (height // 2, width // 2), float32 in [0, 1]
        Share of the window's pixels that are valid: neither clipped nor on an edge.
    usable : ndarray of shape (height // 2, width // 2), bool
        Where this share is large enough for the statistics to be used.
    """

    statistics: NDArray[np.float32]
    valid_share: NDArray[np.float32]
    usable: NDArray[np.bool_]


def mosaic_trace(image: FloatMap, options: MosaicOptions | None = None) -> MosaicTrace:
    """Measure the mosaic's trace around each cell of the lattice.

    >>> import numpy as np
    >>> trace = mosaic_trace(np.full((40, 60, 3), 0.5, dtype=np.float32))
    >>> trace.statistics.shape, trace.valid_share.shape, float(trace.valid_share.min())
    ((12, 20, 30), (20, 30), 1.0)
    """
    options = options or MosaicOptions()
    height, width = (n // 2 * 2 for n in image.shape[:2])
    image = image[:height, :width]
    valid = np.empty((4, height // 2, width // 2), dtype=np.float32)
    out = np.empty((3, *valid.shape), dtype=np.float32)

    # In strips: copying a whole large photo takes as long as the sums.
    def measure(top: int) -> None:
        is_valid, power = _squared_deviations(image, top, options)
        half = slice(top // 2, top // 2 + len(is_valid) // 2)
        for number, (row, col) in enumerate(_POSITIONS):
            valid[number, half] = is_valid[row::2, col::2]
            by_colour = power[row::2, col::2].transpose(2, 0, 1)
            np.multiply(by_colour, valid[number, half], out=out[:, number, half])

    def average(number: int) -> FloatMap:
        count = _window_sum(valid[number], options.window)
        prior = count + np.float32(options.prior_count)
        for colour in range(3):
            total = _window_sum(out[colour, number], options.window)
            total /= prior
            total += np.float32(options.rounding)
            np.log(total, out=out[colour, number])
        return count

    jobs = spare_threads()
    for _ in map_threads(measure, range(0, height, _ROWS_PER_STRIP), jobs=jobs, divide_cores=False):
        pass
    share = np.zeros_like(valid[0])
    for count in map_threads(average, range(4), jobs=jobs, divide_cores=False):
        share += count
    share /= np.float32(4 * options.window**2)
    weight = share / (share + np.float32(options.half_weight_share))
    for colour in out:
        colour -= colour.mean(axis=0)
        colour *= weight
    statistics = out.reshape(12, height // 2, width // 2)
    return MosaicTrace(statistics, share, share > options.min_valid_share)


class MosaicLevels(NamedTuple):
    """How clearly a photo shows a mosaic, and how strongly a part shows the opposite phase.

    Attributes
    ----------
    level : float
        The length of the vector ``m`` of the statistics' medians: about 0.3 or more for an
        uncompressed photo of a camera, below 0.05 for one that was made smaller.
    opposite_phase : float
        The statistics' largest component along ``-m / |m|``, without the highest fiftieth of the
        windows. In a photo of one camera the trace varies in strength but not in sign. Then this
        is negative or small. A part whose lattice is shifted has the same trace with the opposite
        sign.
    """

    level: float
    opposite_phase: float


def mosaic_levels(trace: MosaicTrace | None, options: MosaicOptions | None = None) -> MosaicLevels:
    """Return how clearly a photo shows a mosaic, and how strongly its opposite phase.

    >>> import numpy as np
    >>> mosaic_levels(mosaic_trace(np.full((40, 60, 3), 0.5, dtype=np.float32)))
    MosaicLevels(level=0.0, opposite_phase=0.0)
    """
    options = options or MosaicOptions()
    if trace is None:
        return MosaicLevels(0.0, 0.0)
    step = max(1, math.isqrt(trace.usable.size // _MAX_WINDOWS))
    usable = trace.usable[::step, ::step]
    if not usable.any():
        return MosaicLevels(0.0, 0.0)
    statistics = trace.statistics[:, ::step, ::step][:, usable]
    median = np.median(statistics, axis=1)
    level = float(np.linalg.norm(median))
    if level == 0.0:
        return MosaicLevels(0.0, 0.0)
    component = median / level @ statistics
    return MosaicLevels(level, -float(np.quantile(component, options.opposite_quantile)))


def _squared_deviations(
    image: FloatMap, top: int, options: MosaicOptions
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Return which pixels of a strip are valid, and their squared deviations."""
    above = min(top, 2)
    levels = image[top - above : top + _ROWS_PER_STRIP + 2] * np.float32(255.0)
    around = cv2.filter2D(levels, -1, _NEIGHBOURS, borderType=cv2.BORDER_REFLECT_101)
    inside = slice(above, above + _ROWS_PER_STRIP if top + _ROWS_PER_STRIP < len(image) else None)
    levels = levels[inside]
    power = np.square(levels - around[inside])
    # Clipped colours carry no trace, nor do pixels on an edge.
    valid = (levels > options.dark) & (levels < options.bright) & (power < 4.0 * options.max_power)
    # Much faster than `all` along an axis of three.
    all_valid = valid[..., 0] & valid[..., 1] & valid[..., 2]
    return all_valid, np.minimum(power, np.float32(options.max_power), out=power)


def lattice_contrast(
    image: FloatMap, trace: MosaicTrace | None = None, options: MosaicOptions | None = None
) -> FloatMap:
    """Return how much the colour mosaic differs between the two sides of each pixel.

    ``2(|a||b| - a · b)`` for the statistics ``a`` and ``b`` of two windows, 56 pixels apart; the
    largest value over four directions. For vectors of the same length this is their squared
    distance. It is 0 if one side only has a weaker form of the same trace, and near 0 if no mosaic
    shows.
    """
    height, width = image.shape[:2]
    if min(height, width) < 2:
        return np.zeros((height, width), dtype=np.float32)
    options = options or MosaicOptions()
    statistics = (trace or mosaic_trace(image, options)).statistics
    rows, cols = statistics.shape[1:]
    far = options.distance
    slant = round(far / 2**0.5)
    steps = ((0, far), (far, 0), (slant, slant), (slant, -slant))
    totals = np.zeros((len(steps), rows, cols), dtype=np.float32)
    product = np.empty((rows, cols), dtype=np.float32)
    squares = np.zeros((rows, cols), dtype=np.float32)
    for values in statistics:
        squares += np.square(values, out=product)
        for total, (ahead, behind) in zip(totals, _shifted_pairs(values, steps, far), strict=True):
            total -= np.multiply(ahead, behind, out=product)
    length = np.sqrt(squares, out=squares)
    for total, (ahead, behind) in zip(totals, _shifted_pairs(length, steps, far), strict=True):
        total += np.multiply(ahead, behind, out=product)
    largest = np.maximum(totals.max(axis=0), 0.0)
    largest *= np.float32(2.0)
    return np.asarray(cv2.resize(largest, (width, height), interpolation=cv2.INTER_LINEAR))


def _shifted_pairs(
    values: FloatMap, steps: Sequence[tuple[int, int]], far: int
) -> Iterator[tuple[FloatMap, FloatMap]]:
    """Yield for each step the values at one step ahead and at one behind."""
    rows, cols = values.shape
    # Beyond the border, the border is repeated.
    wide = np.pad(values, far, mode="edge")
    for down, right in steps:
        ahead, behind = (
            wide[far + y : far + y + rows, far + x : far + x + cols]
            for y, x in ((down, right), (-down, -right))
        )
        yield ahead, behind


def _window_sum(values: FloatMap, window: int) -> FloatMap:
    return np.asarray(cv2.boxFilter(values, -1, (window, window), normalize=False))
