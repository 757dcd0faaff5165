"""Traces of JPEG in the blocks of a photo: compressed once or twice, and on which grid.

A photo is saved with a step ``q1``, something is pasted, and the result is saved with a step
``q2``. The coefficients of the host were rounded to multiples of ``q1`` before they were rounded to
multiples of ``q2``. So some values are too frequent in their histogram and others are missing.
The pasted part lacks this if it was not compressed before on the same grid. Block by block the
likelihoods of both histories are compared, in the manner of Bianchi and Piva (2011, 2012).

If the grid was shifted between both compressions, histograms show nothing. But then blocks that
begin at the old offset still have more coefficients near 0 than blocks elsewhere. Only views and
controls ask for this, and for coefficients of a photo without a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.jpeg import (
    BLOCK,
    JpegCoefficients,
    block_cosines,
    coefficients_of,
    luminance,
    near_zero_share,
    near_zeros,
    offset_shares,
    smooth_blocks,
)
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray, FloatMap, Pixels, as_bytes

Table = NDArray[np.uint8] | NDArray[np.uint16]

# The first 15 in zigzag order after the mean: (vertical, horizontal). Higher ones are mostly 0.
_FREQUENCIES = (
    *((0, 1), (1, 0), (2, 0), (1, 1), (0, 2), (0, 3), (1, 2), (2, 1), (3, 0)),
    *((4, 0), (3, 1), (2, 2), (1, 3), (0, 4), (0, 5)),
)
# First steps that are tried. A step of 1 leaves no trace. Where nothing else is said, numbers were
# set by hand.
_STEPS = np.arange(2, 31)
# Larger coefficients, in grey levels, are too rare for a histogram.
_REACH = 100.0
# Standard deviation of a coefficient between both compressions, in grey levels: luminance is
# rounded twice and red, green and blue once; √(2/12 + .45/12).
_NOISE = 0.45
# Added to each count of a histogram.
_PRIOR_COUNT = 0.5
_ITERATIONS = 15
# What a first step has to add to the log-likelihood, in all and for each block, for a frequency to
# count. Photos that were saved once have less, see "once" in benchmarks/results/double_jpeg.json.
_MIN_GAIN = 15.0
_MIN_GAIN_PER_BLOCK = 0.008
_MIN_FREQUENCIES = 3
# Of blocks that were compressed twice, for a first step to count. Wrong steps explain a few blocks.
_MIN_SHARE = 0.35
_WINDOW = 3
# In units of their root mean square over both histories: one block shall not outweigh its
# neighbours. Best likelihood of 1 to 4 on made splices.
_MAX_EVIDENCE = 2.0
# Expected difference of the ratios from which on they are fully trusted; chosen like the above.
_FULL_SEPARATION = 2.0
# The log-odds are slope * evidence + centre * middle + offset, "fit" in
# benchmarks/results/double_jpeg.json. Of the blocks there 17 % were pasted.
_SLOPE = 4.151
_CENTRE = -1.738
_OFFSET = -1.489
# Photos differ more than a logistic curve has it: what it says, and the share of pasted blocks on
# the same splices.
_FIT = (0.0, 0.0074, 0.151, 0.2369, 0.3439, 0.4475, 0.5489, 0.6511, 0.7527, 0.8563, 0.9802, 1.0)
_TRUE = (0.0, 0.0066, 0.1248, 0.3419, 0.4388, 0.487, 0.5137, 0.5558, 0.6522, 0.7798, 0.9835, 1.0)

#: Of each block: the evidence for one compression against two, and near-zeros on the grid.
N_JPEG_TRACES = 2
# No probability is nearer to 0 or 1 than this.
_LEAST = 0.02

# Of the shifted grid: what counts as near 0, in median steps of low frequencies, which frequencies
# are counted, and how far an offset has to stand out, in standard deviations of the others. Chosen
# on splices of BSDS500, see "shifted" in benchmarks/results/double_jpeg.json.
_NEAR_ZERO_STEPS = 0.5
_SUM = np.add.outer(np.arange(BLOCK), np.arange(BLOCK))
_COUNTED: BoolArray = (_SUM >= 1) & (_SUM <= 6)
_MIN_SHIFT_SCORE = 4.2
_SHIFT_WINDOW = 5

# Coefficients that a step is estimated from, at least; set by hand.
_MIN_LARGE = 20
# Rounding of the luminance, and of red, green and blue: √(1/12 + .45/12), in grey levels.
_PIXEL_NOISE = 0.35
# If a larger share than a tenth does not follow a step, it is not the last one.
_MIN_MULTIPLES = 0.9
_MAX_LAST_STEP = 60
# Blocks that steps are estimated from, at most: those of a photo of four megapixels.
_MAX_BLOCKS = 1 << 16


@dataclass(frozen=True, eq=False)
class DoubleJpegTrace:
    """What shows that parts of a photo were compressed twice.

    Attributes
    ----------
    aligned : ndarray of shape (rows, cols), float32
        For each block the probability that it was compressed once only, by the histograms on the
        grid of the file. 0.5 everywhere if no first compression shows.
    first_table : ndarray of shape (8, 8), uint8
        Estimated steps of the first compression, in natural order; 0 where none shows.
    coefficients : JpegCoefficients
    """

    aligned: FloatMap
    first_table: Table
    coefficients: JpegCoefficients

    @cached_property
    def offset(self) -> tuple[int, int] | None:
        """Where blocks of an earlier, shifted grid begin; sought when it is asked for."""
        plane = np.asarray(self.coefficients.plane, dtype=np.float32)
        if min(self.aligned.shape) < 2:
            return None
        return find_shift(plane, self.coefficients.table)[0]

    @cached_property
    def shifted(self) -> FloatMap:
        """How many more coefficients are near 0 on the earlier grid than at the mirrored offsets.

        0 everywhere if there is no such grid. High for blocks that were compressed on it: of the
        host, or of what was pasted.
        """
        if self.offset is None:
            return np.zeros(self.aligned.shape, dtype=np.float32)
        plane = np.asarray(self.coefficients.plane, dtype=np.float32)
        return _shifted_map(plane, self.coefficients.table, self.offset)


def double_jpeg_trace(coefficients: JpegCoefficients) -> DoubleJpegTrace:
    """Measure which blocks of a JPEG were compressed once, and which twice."""
    rows, cols = coefficients.luminance.shape[:2]
    if min(rows, cols) < 2:
        unknown = np.full((rows, cols), 0.5, dtype=np.float32)
        return DoubleJpegTrace(unknown, np.zeros((BLOCK, BLOCK), np.uint8), coefficients)
    found = compare_histories(coefficients)
    first_table = found.first_table
    aligned = np.full((rows, cols), 0.5, dtype=np.float32)
    if first_table.any():
        odds = _SLOPE * found.evidence() + (_CENTRE * found.middle() + _OFFSET)
        logistic = 0.5 * (1.0 + np.tanh(0.5 * odds))  # 1 / (1 + exp(-odds)), without overflow
        aligned = np.interp(logistic, _FIT, _TRUE).astype(np.float32)
    return DoubleJpegTrace(aligned, first_table, coefficients)


@dataclass(frozen=True, eq=False)
class Histories:
    """How likely "compressed once" is against "compressed twice", block by block.

    Attributes
    ----------
    ratio : ndarray of shape (rows, cols), float32
        The sum over frequencies of ``log p(c | once) - log p(c | twice)``. Not smoothed.
    if_once, if_twice : float
        The mean of the ratio to expect of blocks that were compressed once, and twice.
    first_table : ndarray of shape (8, 8), uint8
        Estimated first steps; 0 for frequencies that were not used.
    """

    ratio: FloatMap
    if_once: float
    if_twice: float
    first_table: Table

    @property
    def separation(self) -> float:
        """The difference of the expected means."""
        return self.if_once - self.if_twice

    def evidence(self) -> FloatMap:
        """Return the ratios scaled, cut off and smoothed."""
        scaled = np.clip(self.ratio / self._scale(), -_MAX_EVIDENCE, _MAX_EVIDENCE)
        # Of small ones the errors of the expected histograms are as large.
        trust = np.float32(min(1.0, self.separation / _FULL_SEPARATION))
        return smooth_blocks(scaled, _WINDOW) * trust

    def middle(self) -> float:
        """Return the middle of the expected means, scaled like the evidence."""
        return (self.if_once + self.if_twice) / 2.0 / self._scale()

    def _scale(self) -> float:
        return float((self.separation + 1.0) ** 0.5)


def compare_histories(coefficients: JpegCoefficients) -> Histories:
    """Compare "compressed once" with "compressed twice", block by block."""
    values = coefficients.luminance
    rows, cols = values.shape[:2]
    ratio, if_once, if_twice = np.zeros((rows, cols)), 0.0, 0.0
    first_table = np.zeros((BLOCK, BLOCK), dtype=np.uint8)
    # Half a block away the blocks straddle the grid and have lost all trace of the steps: what
    # coefficients would be without any quantization.
    free = block_cosines(np.asarray(coefficients.plane[4:, 4:], dtype=np.float32))
    for u, v in _FREQUENCIES:
        step = int(coefficients.table[u, v])
        reach = int(np.clip(np.ceil(_REACH / step), 4, _REACH))
        once, twice = _expected_histograms(free[..., u, v].ravel(), step, reach)
        seen = _histogram(values[..., u, v], reach)
        gain, share = _gains(seen, once, twice)
        gain[share < _MIN_SHARE] = 0.0
        best = int(gain.argmax())
        if gain[best] < max(_MIN_GAIN, _MIN_GAIN_PER_BLOCK * rows * cols):
            continue
        first_table[u, v] = _STEPS[best]
        by_value = np.zeros(2 * reach + 3)  # beyond the reach nothing is known
        by_value[1:-1] = np.log(once / twice[best])
        if_once += float(once @ by_value[1:-1])
        if_twice += float(twice[best] @ by_value[1:-1])
        ratio += by_value[np.clip(values[..., u, v], -reach - 1, reach + 1) + reach + 1]
    if np.count_nonzero(first_table) < _MIN_FREQUENCIES:
        return Histories(np.zeros((rows, cols), np.float32), 0.0, 0.0, np.zeros_like(first_table))
    return Histories(ratio.astype(np.float32), if_once, if_twice, first_table)


def _histogram(values: NDArray[Any], reach: int) -> FloatArray:
    """Count whole values from -reach to reach, made symmetric: both signs are as likely."""
    clipped = np.clip(values, -reach - 1, reach + 1).astype(np.intp) + reach + 1
    count = np.bincount(clipped.ravel(), minlength=2 * reach + 3)[1:-1]
    return (count + count[::-1]) / 2.0


def _rounded_histogram(ordered: NDArray[Any], step: int, reach: int) -> FloatArray:
    """Return the histogram of rising values, rounded to whole steps like `numpy.rint`."""
    edges = step * (np.arange(-reach - 1, reach + 1) + 0.5)
    # A half is rounded to the even number: the lower one of every other pair.
    even = np.arange(-reach - 1, reach + 1) % 2 == 0
    below = np.where(
        even, ordered.searchsorted(edges, "right"), ordered.searchsorted(edges, "left")
    )
    count = np.diff(below)
    return (count + count[::-1]) / 2.0


def _expected_histograms(
    free: FloatArray | FloatMap, step: int, reach: int
) -> tuple[FloatArray, FloatArray]:
    """Return the probabilities of values after one compression, and after two by first step."""
    # Sorted, they need not be divided and counted for each step.
    free = np.sort(free).astype(np.float64)
    once = _rounded_histogram(free, step, reach) + _PRIOR_COUNT
    twice = np.empty((len(_STEPS), len(once)))
    for number, first in enumerate(_STEPS.tolist()):
        spread = _requantization(first, step, reach)
        counts = _rounded_histogram(free, first, len(spread) // 2)
        twice[number] = counts @ spread + _PRIOR_COUNT
    return once / once.sum(), twice / twice.sum(axis=1, keepdims=True)


@lru_cache(maxsize=4096)
def _requantization(first: int, step: int, reach: int) -> FloatArray:
    """Return how likely a multiple of the first step becomes each multiple of the second.

    With noise of standard deviation σ between, ``m`` first steps become ``c`` second steps with
    probability ``Φ(((c + ½) step - m first) / σ) - Φ(((c - ½) step - m first) / σ)``.
    """
    # Only photos with a table need it, and it takes longer to import than a photo to read.
    from scipy.special import ndtr

    most = int((reach + 0.5) * step / first) + 2
    before = first * np.arange(-most, most + 1)[:, None]
    edges = step * (np.arange(-reach, reach + 2) - 0.5)
    return np.diff(ndtr((edges - before) / _NOISE), axis=1)


def _gains(seen: FloatArray, once: FloatArray, twice: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what each first step adds to the log-likelihood of a histogram, and the share twice.

    The blocks are a mixture: a share was compressed twice, the rest once. The share that fits best
    is found by expectation maximization, for each first step.
    """
    share = np.full((len(twice), 1), 0.5)
    for _ in range(_ITERATIONS):
        part = share * twice
        part /= part + (1.0 - share) * once
        share = (part @ seen)[:, None] / max(seen.sum(), 1.0)
    mixture = share * twice + (1.0 - share) * once
    return np.log(mixture / once) @ seen, share[:, 0]


def find_shift(plane: FloatMap, table: Table) -> tuple[tuple[int, int] | None, float]:
    """Find the offset of an earlier grid that is not the one of the file.

    ``score``: How far the best offset stands out, in standard deviations of the others.
    """
    shares = offset_shares(plane, _near_zero_limit(table), _COUNTED)
    if shares is None:
        return None, 0.0
    excess = np.full((BLOCK, BLOCK), -np.inf)
    for row, column in np.ndindex(BLOCK, BLOCK):
        if row or column:
            like = _alike(row, column)
            excess[row, column] = shares[row, column] - max(shares[at] for at in like)
    best = int(excess.argmax())
    others = np.delete(excess.ravel(), [0, best])
    deviation = 1.4826 * float(np.median(np.abs(others - np.median(others))))
    if not deviation > 0.0:
        return None, 0.0
    score = float((excess.flat[best] - np.median(others)) / deviation)
    offset = (best // BLOCK, best % BLOCK)
    return (offset if score >= _MIN_SHIFT_SCORE else None), score


def _alike(row: int, column: int) -> list[tuple[int, int]]:
    """Return the offsets that the last grid treats like this one: mirrored ones.

    The middle is its own mirror image; it is compared with its neighbours on the same lines.
    """
    up, left = -row % BLOCK, -column % BLOCK
    mirrored = {(up, column), (row, left), (up, left)} - {(row, column)}
    if mirrored:
        return sorted(mirrored)
    across = [(row, column - 1), (row, column + 1)] if column else []
    return across + ([(row - 1, column), (row + 1, column)] if row else [])


def _near_zero_limit(table: Table) -> float:
    return _NEAR_ZERO_STEPS * float(np.median(table[_SUM <= 4]))


def _shifted_map(plane: FloatMap, table: Table, offset: tuple[int, int]) -> FloatMap:
    limit = _near_zero_limit(table)
    like = _alike(*offset)
    found = near_zero_share(plane, offset, limit, _COUNTED)
    for at in like:
        found = found - near_zero_share(plane, at, limit, _COUNTED) / np.float32(len(like))
    return smooth_blocks(found, _SHIFT_WINDOW)


def coefficients_from_pixels(pixels: Pixels) -> JpegCoefficients:
    """Return coefficients of a photo whose JPEG file is not at hand.

    The table has the step of each frequency that (nearly) all blocks show, else 1: then one
    compression and the pixels without any are what `double_jpeg_trace` distinguishes.
    """
    levels = luminance(pixels)
    plane = np.asarray(np.rint(levels), dtype=np.uint8)
    clipped = _clipped_blocks(as_bytes(pixels))
    whole = block_cosines(levels - np.float32(128.0))[np.logical_not(clipped)]
    # Of many blocks some are enough: a step shows in nearly all of them.
    whole = whole[:: -(-len(whole) // _MAX_BLOCKS) or 1]
    table = np.ones((BLOCK, BLOCK), dtype=np.uint16)
    for u, v in _FREQUENCIES:
        table[u, v] = _visible_step(whole[:, u, v])
    return JpegCoefficients(table, coefficients_of(levels, table), plane)


def _clipped_blocks(photo: NDArray[np.uint8]) -> BoolArray:
    """Return which blocks have pure black or white in some colour: clipping changes them."""
    rows, cols = (n // BLOCK for n in photo.shape[:2])
    edge = (photo.min(axis=2) == 0) | (photo.max(axis=2) == 255)
    extreme = np.asarray(edge, dtype=bool)[: BLOCK * rows, : BLOCK * cols]
    return np.asarray(extreme.reshape(rows, BLOCK, cols, BLOCK).any(axis=(1, 3)))


def _visible_step(values: FloatMap) -> int:
    """Return the step whose multiples (nearly) all coefficients of a frequency are; 1 if none.

    The mean of ``cos(2π c / q)`` is 1 for multiples of q and 0 for anything smooth. Noise of
    standard deviation σ lowers it by a factor ``exp(-2 (πσ / q)²)``.
    """
    found, highest = 1, 0.0
    for step in range(_MAX_LAST_STEP, 2, -1):
        large = values[np.abs(values) > step / 2]
        if len(large) < _MIN_LARGE:
            continue
        hold = np.exp(-2.0 * (np.pi * _PIXEL_NOISE / step) ** 2)
        fit = float(np.cos(2.0 * np.pi / step * large).mean() / hold)
        if fit > max(_MIN_MULTIPLES, highest):
            found, highest = step, fit
        elif found > 1:
            break  # below a step its divisors fit as well
    return found


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
    plane = luminance(pixels)
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
