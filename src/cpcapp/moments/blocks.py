"""Sums over blocks of rows: the arithmetic beneath moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas

from cpcapp.moments.rows import FloatArray

# Rows of a block by which it is shifted before it is squared.
_SHIFT_ROWS = 64
# A mean of up to so many deviations of these rows costs at most three digits of a variance:
# s rows show at least s/n of the variance of n rows about the same point.
_NEAR = 4.0


def stack(blocks: Sequence[Any]) -> Any:
    """Return blocks of rows as one, as a CSR matrix if any of them is sparse."""
    if len(blocks) == 1:
        return blocks[0]
    if any(sp.issparse(block) for block in blocks):
        return sp.csr_array(sp.vstack([sp.csr_array(block) for block in blocks], format="csr"))
    return np.concatenate(blocks)


def centre(rows: Any, weights: FloatArray | None = None) -> tuple[Any, FloatArray]:
    """Return float64 rows about a point near their mean, and that point.

    ``Σ(x-s)(x-s)ᵀ - n(x̄-s)(x̄-s)ᵀ`` keeps its digits for any s within a few deviations. So rows
    whose mean is close to 0 are not copied.
    """
    if sp.issparse(rows):
        return centre_full_columns(rows)
    if weights is not None:
        # Some rows tell nothing of a mean that a single weight may decide.
        shift = np.asarray((weights / weights.sum()) @ rows, dtype=np.float64)
        return rows - shift, shift
    some = np.asarray(rows[:: max(len(rows) // _SHIFT_ROWS, 1)][:_SHIFT_ROWS], dtype=np.float64)
    shift = some.mean(axis=0)
    some = some - shift
    if (shift**2 <= _NEAR**2 * (some**2).mean(axis=0)).all():
        return np.ascontiguousarray(rows, dtype=np.float64), np.zeros_like(shift)
    return rows - shift, shift


def centre_full_columns(block: Any) -> tuple[Any, FloatArray]:
    """Return a CSR block with every column that is stored in all rows centred, and the shifts.

    ``Σx² - n·mean²`` loses at most a factor ``1/(1 - filling)`` of precision in a column with
    zeros in it, but all of it in a full column of large mean; those can be centred and stay as
    sparse as they were.
    """
    n, m = block.shape
    shift = np.zeros(m)
    # Two rows without a column in common, as sparse data have them, leave no column full.
    first, last = (block.indices[block.indptr[i] : block.indptr[i + 1]] for i in (0, n - 1))
    if len(np.intersect1d(first, last)) == 0:
        return block, shift
    full = np.bincount(block.indices, minlength=m) == n
    shift[full] = np.asarray(block.sum(axis=0)).ravel()[full] / n
    centred = sp.csr_array((block.data - shift[block.indices], block.indices, block.indptr), (n, m))
    return centred, shift


def mean_of(rows: Any, weights: FloatArray | None) -> FloatArray:
    """Return the mean of each column of float64 rows."""
    # Divided first: the sum of large values times large weights may be out of range.
    n = rows.shape[0]
    shares = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    if sp.issparse(rows):
        return np.asarray(rows.T @ shares)
    # By SciPy's BLAS, as the products: NumPy's has threads of its own, and where the two alternate
    # one spins while the other works.
    return np.asarray(blas.dgemv(1.0, rows.T, shares))


def squares_of(rows: Any, weights: FloatArray | None) -> FloatArray:
    """Return the weighted sum of the squares of each column."""
    ones = np.ones(rows.shape[0]) if weights is None else weights
    return np.asarray(ones @ (rows.power(2) if sp.issparse(rows) else rows**2))


def add_products(lower: FloatArray, rows: Any, weights: FloatArray | None) -> FloatArray:
    """Return a lower triangle in Fortran order, plus the weighted sum of products, in place."""
    if weights is not None:
        roots = np.sqrt(weights)[:, None]
        rows = sp.csr_array(rows.multiply(roots)) if sp.issparse(rows) else rows * roots
    if sp.issparse(rows):
        lower += (rows.T @ rows).toarray().T
        return lower
    return np.asarray(blas.dsyrk(1.0, rows.T, beta=1.0, c=lower, lower=1, overwrite_c=1))


def rank_one(lower: FloatArray, vector: FloatArray, weight: float) -> None:
    """Add ``weight · vector vectorᵀ`` to a lower triangle in place."""
    blas.dsyr(weight, vector, lower=1, a=lower, overwrite_a=1)


def mirror(lower: FloatArray, block: int = 256) -> None:
    """Copy the lower triangle of a square matrix onto its upper one, in place."""
    m = lower.shape[0]
    for start in range(0, m, block):
        stop = min(start + block, m)
        corner = lower[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        lower[start:stop, stop:] = lower[stop:, start:stop].T
