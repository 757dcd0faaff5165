"""Do the two sides of an edge come from one camera? The trace of the colour mosaic tells.

A sensor sees one colour at each pixel of a 2x2 lattice and the others are interpolated, so what a
photo's colours deviate from their neighbours varies with the place in the lattice, in a way that
depends on the camera and on the phase of the cut. Texture and light change this for all four
places alike, which is taken out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.patches import FloatMap

# In pixels of the lattice, that is of two pixels of the photo.
_WINDOW = 24
_DISTANCE = 14
# Squares of grey levels: edges and texture say nothing of the mosaic; rounding is this large.
_MOST_POWER = 36.0
_ROUNDING = 0.3
# Of pixels, which a window must have before it is believed.
_PRIOR = 10.0
# Share of a window's pixels that must tell something for its statistics to count half: of few
# pixels among texture the mean is mostly chance. On made splices 0.2 to 1.6 did about the same.
_BELIEVED_BY_HALF = 0.4
_DARK, _BRIGHT = 3.0, 252.0
#: Share of a window's pixels that must tell something before its statistics are used.
LEAST_TOLD = 0.08

# Of the photo's places, so many may show another mosaic by chance.
_FEWEST_OPPOSED = 0.02
# Their windows overlap: more would tell no more.
_ENOUGH_PLACES = 250_000

_ROWS_TOGETHER = 128
_PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))
_NEIGHBOURS = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=np.float32) / 4.0


class MosaicTrace(NamedTuple):
    """The mosaic's trace around each place of the lattice.

    Attributes
    ----------
    statistics : ndarray of shape (12, height // 2, width // 2), float32
        For each colour and each of the four places of a 2 x 2 block, the logarithm of the mean
        squared deviation from the four neighbours over a window of 48 pixels; for each colour
        the mean of the four is 0. Drawn towards 0 where few of the window's pixels tell something.
    told : ndarray of shape (height // 2, width // 2), float32 in [0, 1]
        Share of the window's pixels that tell something: neither clipped nor on an edge.
    """

    statistics: NDArray[np.float32]
    told: NDArray[np.float32]


def mosaic_trace(image: FloatMap) -> MosaicTrace:
    """Measure the mosaic's trace around each place of the lattice.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
        At least 2 x 2 pixels.

    Returns
    -------
    MosaicTrace

    Examples
    --------
    >>> import numpy as np
    >>> trace = mosaic_trace(np.full((40, 60, 3), 0.5, dtype=np.float32))
    >>> trace.statistics.shape, trace.told.shape, float(trace.told.min())
    ((12, 20, 30), (20, 30), 1.0)
    """
    height, width = (n // 2 * 2 for n in image.shape[:2])
    image = image[:height, :width]
    seen = np.empty((4, height // 2, width // 2), dtype=np.float32)
    out = np.empty((3, *seen.shape), dtype=np.float32)
    # In strips: of a large photo every whole copy costs as much as the sums.
    for top in range(0, height, _ROWS_TOGETHER):
        told, power = _deviations(image, top)
        half = slice(top // 2, top // 2 + len(told) // 2)
        for number, (row, col) in enumerate(_PLACES):
            seen[number, half] = told[row::2, col::2]
            by_colour = power[row::2, col::2].transpose(2, 0, 1)
            np.multiply(by_colour, seen[number, half], out=out[:, number, half])
    all_seen = np.zeros_like(seen[0])
    for number in range(4):
        count = _sum(seen[number])
        all_seen += count
        count += np.float32(_PRIOR)
        for colour in range(3):
            total = _sum(out[colour, number])
            total /= count
            total += np.float32(_ROUNDING)
            np.log(total, out=out[colour, number])
    out -= out.mean(axis=1, keepdims=True)
    all_seen /= np.float32(4 * _WINDOW**2)
    out *= all_seen / (all_seen + np.float32(_BELIEVED_BY_HALF))
    return MosaicTrace(out.reshape(12, height // 2, width // 2), all_seen)


class MosaicLevels(NamedTuple):
    """How clearly a photo as a whole shows a mosaic, and how much of it shows another.

    Attributes
    ----------
    level : float
        The length of the vector ``m`` of the statistics' medians: about 0.3 and more for an
        uncompressed photo of a camera, below 0.05 for one that was made smaller.
    opposed : float
        The statistics' largest component against ``m / |m|``, but for the highest fiftieth of the
        places. In a photo of one camera the trace is fainter here and there, but always of one
        kind, and this is negative or small; a part whose lattice is shifted has the same trace
        with the opposite sign.
    """

    level: float
    opposed: float


def mosaic_levels(trace: MosaicTrace | None) -> MosaicLevels:
    """Return how clearly a photo shows a mosaic, and another one.

    Examples
    --------
    >>> import numpy as np
    >>> mosaic_levels(mosaic_trace(np.full((40, 60, 3), 0.5, dtype=np.float32)))
    MosaicLevels(level=0.0, opposed=0.0)
    """
    if trace is None:
        return MosaicLevels(0.0, 0.0)
    step = max(1, math.isqrt(trace.told.size // _ENOUGH_PLACES))
    told = trace.told[::step, ::step] > LEAST_TOLD
    if not told.any():
        return MosaicLevels(0.0, 0.0)
    statistics = trace.statistics[:, ::step, ::step][:, told]
    middle = np.median(statistics, axis=1)
    level = float(np.linalg.norm(middle))
    if level == 0.0:
        return MosaicLevels(0.0, 0.0)
    return MosaicLevels(level, -float(np.quantile(middle / level @ statistics, _FEWEST_OPPOSED)))


def _deviations(image: FloatMap, top: int) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Return for a strip which pixels tell something, and their squared deviations."""
    above = min(top, 2)
    levels = image[top - above : top + _ROWS_TOGETHER + 2] * np.float32(255.0)
    around = cv2.filter2D(levels, -1, _NEIGHBOURS, borderType=cv2.BORDER_REFLECT_101)
    inside = slice(above, above + _ROWS_TOGETHER if top + _ROWS_TOGETHER < len(image) else None)
    levels = levels[inside]
    power = np.square(levels - around[inside])
    # Clipped colours carry no trace, nor do pixels on an edge.
    told = (levels > _DARK) & (levels < _BRIGHT) & (power < 4.0 * _MOST_POWER)
    return told.all(axis=2), np.minimum(power, np.float32(_MOST_POWER))


def lattice_contrast(image: FloatMap, trace: MosaicTrace | None = None) -> FloatMap:
    """Return how differently the colour mosaic shows on both sides of each pixel.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
    trace : MosaicTrace, optional
        Of the photo, if it was measured already.

    Returns
    -------
    ndarray of shape (height, width), float32
        Of the statistics ``a`` and ``b`` at two places 56 pixels apart ``2 (|a| |b| - a · b)``, the
        largest over four directions. This is the squared distance of two vectors of one length;
        where the same trace is only fainter it is 0. Near 0 also where no mosaic shows.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing.cameras import Camera
    >>> rng = np.random.default_rng(0)
    >>> grey = np.full((160, 240, 3), 128, dtype=np.uint8)
    >>> one, other = (Camera(phase, shot_noise=1e-3).shoot(grey, rng) for phase in ((0, 0), (1, 0)))
    >>> spliced = np.where(np.arange(240)[:, None] < 120, one, other).astype(np.float32) / 255
    >>> contrast = lattice_contrast(spliced)
    >>> bool(contrast[:, 110:130].mean() > 20 * contrast[:, 20:40].mean())
    True
    """
    height, width = image.shape[:2]
    if min(height, width) < 2:
        return np.zeros((height, width), dtype=np.float32)
    statistics = (trace or mosaic_trace(image)).statistics
    rows, cols = statistics.shape[1:]
    slant = round(_DISTANCE / 2**0.5)
    steps = ((0, _DISTANCE), (_DISTANCE, 0), (slant, slant), (slant, -slant))
    totals = np.zeros((len(steps), rows, cols), dtype=np.float32)
    product = np.empty((rows, cols), dtype=np.float32)
    squares = np.zeros((rows, cols), dtype=np.float32)
    for values in statistics:
        squares += np.square(values, out=product)
        for total, (ahead, behind) in zip(totals, _apart(values, steps), strict=True):
            total -= np.multiply(ahead, behind, out=product)
    length = np.sqrt(squares, out=squares)
    for total, (ahead, behind) in zip(totals, _apart(length, steps), strict=True):
        total += np.multiply(ahead, behind, out=product)
    largest = np.maximum(totals.max(axis=0), 0.0)
    largest *= np.float32(2.0)
    return np.asarray(cv2.resize(largest, (width, height), interpolation=cv2.INTER_LINEAR))


def _apart(
    values: FloatMap, steps: Sequence[tuple[int, int]]
) -> Iterator[tuple[FloatMap, FloatMap]]:
    """Yield for each step the values at one step ahead and at one behind."""
    rows, cols = values.shape
    # What lies beyond the border repeats the border.
    wide = np.pad(values, _DISTANCE, mode="edge")
    for down, right in steps:
        ahead, behind = (
            wide[_DISTANCE + y : _DISTANCE + y + rows, _DISTANCE + x : _DISTANCE + x + cols]
            for y, x in ((down, right), (-down, -right))
        )
        yield ahead, behind


def _sum(values: FloatMap) -> FloatMap:
    return np.asarray(cv2.boxFilter(values, -1, (_WINDOW, _WINDOW), normalize=False))
