"""Moments of data with missing values: each pair of features from the rows that have both."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh

from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import (
    FloatArray,
    NonFiniteError,
    align,
    as_rows,
    check_weights,
    drop_zero_weights,
)

#: What an estimator may do about NaN.
MISSING = ("error", "pairwise")

_BLOCK = 4096  # rows looked at together


def pairwise_moments(X: Any, sample_weight: Any = None) -> Moments:
    """Return the moments of data with NaN, each covariance from the rows that have both features.

    Parameters
    ----------
    X : array-like or memory map of shape (n_samples, n_features)
        NaN is missing. Not sparse: there a value that is not stored is 0.
    sample_weight : array-like of shape (n_samples,), optional

    Returns
    -------
    Moments
        Their mean is that of the values that are there. Without NaN they are those of
        `Moments.of`.

    Notes
    -----
    Covariances of different rows need not fit together: the matrix can have negative eigenvalues.
    It is replaced by the nearest one without, in units in which variances are 1.

    ``n_samples`` is the harmonic mean, over all pairs of features, of the rows that a pair shares
    (with weights, of their effective number). The sampling error of a covariance goes with one
    over that number, so this gives shrinkage the mean error that the matrix has.

    Values are taken to be missing at random. If large values are missing more often, variances
    come out too small.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import pairwise_moments
    >>> X = np.array([[0.0, 1.0], [2.0, np.nan], [4.0, 5.0], [6.0, 3.0]])
    >>> m = pairwise_moments(X)
    >>> m.mean, m.variance().round(3), m.n_samples
    (array([3., 3.]), array([5.   , 2.667]), 3)
    """
    rows = as_rows(X)
    if sp.issparse(rows):
        raise ValueError("missing values need a dense array: in a sparse matrix they would be 0")
    aligned = align(sample_weight, X, "sample_weight")
    rows, given = drop_zero_weights(rows, check_weights(aligned, len(rows)))
    weights = np.ones(len(rows)) if given is None else given
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(rows), _BLOCK)]
    mean, complete = _means(rows, weights, blocks)
    if complete:
        return Moments.of(rows, sample_weight=given)
    m = len(mean)
    shared, squared, sums, products = (np.zeros((m, m)) for _ in range(4))
    for block in blocks:
        known = np.isfinite(rows[block]).astype(np.float64)
        centred = np.where(known > 0.0, rows[block] - mean, 0.0)
        weighted = known * weights[block, None]
        shared += weighted.T @ known
        squared += weighted.T @ weighted
        sums += centred.T @ weighted  # (i, j): Σ x_i over the rows that have j too
        products += centred.T @ (centred * weights[block, None])
    # Kish's number of one row is 1, whatever its weight.
    effective = np.divide(shared**2, squared, out=np.zeros((m, m)), where=squared > 0.0)
    few = np.argwhere(np.triu(effective < 1.0 + 1e-9))
    if len(few):
        i, j = few[0]
        raise ValueError(
            f"features {i} and {j} have fewer than 2 rows in which neither is missing "
            f"({len(few)} such pairs); drop one of them, or fill in values (for example with "
            "sklearn.impute.SimpleImputer)"
        )
    # Σ(x - x̄)(y - ȳ)/n = Σxy/n - (Σx/n)(Σy/n), all over the rows that the pair shares
    covariance = products / shared - (sums / shared) * (sums.T / shared)
    covariance = nearest_positive_semidefinite((covariance + covariance.T) / 2.0)
    return Moments.from_covariance(covariance, max(2, round(1.0 / np.mean(1.0 / effective))), mean)


def nearest_positive_semidefinite(matrix: FloatArray) -> FloatArray:
    """Return the nearest matrix without negative eigenvalues, in units of its own diagonal.

    Nearest in the Frobenius norm. A matrix that has none is returned as it is.
    """
    diagonal = matrix.diagonal()
    scale = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    units = np.multiply.outer(scale, scale)
    values, vectors = eigh(matrix / units)
    if values[0] >= 0.0:
        return matrix
    # Setting negative eigenvalues to 0 is the projection onto the cone.
    roots = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray((roots @ roots.T) * units)


def _means(rows: Any, weights: FloatArray, blocks: list[slice]) -> tuple[FloatArray, bool]:
    """Return the mean of what is there of each feature, and whether nothing is missing."""
    total, weight, complete = np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), True
    for block in blocks:
        infinite = np.isinf(rows[block]).any(axis=0)
        if infinite.any():
            raise NonFiniteError(np.flatnonzero(infinite))
        known = ~np.isnan(rows[block])
        complete = complete and bool(known.all())
        total += weights[block] @ np.where(known, rows[block], 0.0)
        weight += weights[block] @ known
    empty = np.flatnonzero(weight == 0.0)
    if len(empty):
        raise ValueError(f"feature {empty[0]} has no value in any row; drop it")
    return total / weight, complete
