"""Sums over blocks of rows, with or without weights: the arithmetic beneath moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import blas

FloatArray = NDArray[np.float64]

#: Rows by which it is decided whether a block needs centring.
SNIFFED = 64
# A mean within a thousand deviations of these many rows leaves 13 digits of a block's variance.
_FAR = 1e3
_LOOKED_AT = 8


def quiet() -> np.errstate:
    """Leave it to the check for NaN and infinity to speak of them."""
    return np.errstate(invalid="ignore", over="ignore")


def mean_of(rows: Any, weights: FloatArray | None) -> FloatArray:
    """Return the mean of each column, in float64."""
    if weights is not None:
        # Divided first: the sum of large values times large weights may be out of range.
        return np.asarray((weights / weights.sum()) @ rows, dtype=np.float64)
    # Not ones @ rows: NumPy's and SciPy's BLAS have threads of their own, and alternating between
    # the two lets one spin while the other works.
    return np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()


def plain_mean_of(rows: FloatArray) -> FloatArray:
    """Return the mean of each column of rows that lie one after another in memory."""
    # By the BLAS of the products that follow. On small blocks three times as fast as NumPy's sum.
    return np.asarray(blas.dgemv(1.0 / len(rows), rows.T, np.ones(len(rows))))


def is_far(mean: FloatArray, centred: FloatArray) -> bool:
    """Return whether a mean is so large, beside its deviations, that its rounding would be seen.

    One large deviation among the few rows that are looked at may hide that, but it makes the
    standard deviation of n rows at least 1/√n of itself.
    """
    sample = centred[:: max(len(centred) // _LOOKED_AT, 1)]
    return bool((np.abs(mean) > _FAR * np.abs(sample).max(axis=0)).any())


def weight_of(rows: Any, weights: FloatArray | None) -> tuple[float, float]:
    """Return the sum of the weights and of their squares."""
    if weights is None:
        return float(rows.shape[0]), float(rows.shape[0])
    return float(weights.sum()), float(weights @ weights)


def cut(weights: FloatArray | None, start: int, stop: int) -> FloatArray | None:
    """Return the weights of some rows."""
    return None if weights is None else weights[start:stop]


def sum_or_none(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
    """Return the sum, with None for nothing."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


def needs_no_centring(block: NDArray[Any], mean: FloatArray) -> bool:
    """Return whether ``Σxxᵀ - n·mean·meanᵀ`` keeps its precision for these rows.

    A sample of s rows shows the variance of a column to be at least s/n of what it has itself
    about the same mean, so a mean within four deviations of the sample loses a factor of at most
    16 n/s: three digits in the worst case, one as a rule.
    """
    sample = block[:: len(block) // SNIFFED][:SNIFFED] - mean
    sample *= sample
    return bool((mean * mean <= 16.0 / len(sample) * np.add.reduce(sample, axis=0)).all())


def rank_one(lower: FloatArray, vector: FloatArray, weight: float) -> None:
    """Add ``weight · vector vectorᵀ`` to a lower triangle in place."""
    if weight != 0.0:
        blas.dsyr(weight, vector, lower=1, a=lower, overwrite_a=1)


def mirror(lower: FloatArray, block: int = 256) -> None:
    """Copy the lower triangle of a square matrix onto its upper one, in place."""
    m = lower.shape[0]
    for start in range(0, m, block):
        stop = min(start + block, m)
        corner = lower[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        lower[start:stop, stop:] = lower[stop:, start:stop].T


def centre_full_columns(block: Any) -> tuple[Any, FloatArray]:
    """Return the block with every column that is stored in all rows centred, and the shifts.

    ``Σx² - n·mean²`` loses at most a factor ``1/(1 - filling)`` of precision in a column with
    zeros in it, but all of it in a full column of large mean; those can be centred and stay as
    sparse as they were.
    """
    n, m = block.shape
    shift = np.zeros(m)
    # Rows without a column in common, as a few of sparse data are, leave no column full.
    common = block.indices[: block.indptr[1]]
    for row in range(1, min(n, SNIFFED)):
        if len(common) == 0:
            break
        stored = block.indices[block.indptr[row] : block.indptr[row + 1]]
        common = np.intersect1d(common, stored, assume_unique=True)
    if len(common) == 0:
        return block, shift
    full = np.bincount(block.indices, minlength=m) == n
    if not full.any():
        return block, shift
    sums = np.asarray(block.sum(axis=0)).ravel()
    shift[full] = sums[full] / n
    centred = sp.csr_array((block.data - shift[block.indices], block.indices, block.indptr), (n, m))
    return centred, shift
