"""Rows of a set at hand, with their weights, groups and covariates.

What moments see of these is in `cpcapp.estimators.inputs` (`RowSet`), which makes both.
Moments say what the contrast is. How sure it is takes rows: to shuffle, to hold out, to draw again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import block_diag, qr

from cpcapp.moments.rows import FloatArray

# Rows that a sample keeps, as far as there are more: 64 MB of float64, and never below 500 rows.
MAX_CELLS, LEAST_ROWS = 1 << 23, 500
_EPS = float(np.finfo(np.float64).eps)


def sample_size(n_features: int) -> int:
    """Return how many rows of so many features a sample keeps at most.

    >>> sample_size(784), sample_size(10**6)
    (10699, 500)
    """
    return max(LEAST_ROWS, MAX_CELLS // max(n_features, 1))


@dataclass(frozen=True)
class Sample:
    """Rows of one set, and what is left of them once their design is taken out."""

    raw: FloatArray  # as given; missing values are the feature's mean
    # Residuals of the regression on the design, over the root of the share of degrees of freedom
    # that is left, so that their mean square estimates the variance without bias.
    rows: FloatArray
    weights: FloatArray  # of mean 1
    groups: NDArray[np.intp]  # from 0; rows of a group are shuffled, held out and drawn together
    design: FloatArray  # (n, q): a column of ones for the mean, and covariates
    mean: FloatArray
    index: NDArray[np.intp]  # numbers of the rows in what was given
    missing: NDArray[np.bool_] | None = None  # where values were missing

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_groups(self) -> int:
        """Number of groups; that of rows where each is its own."""
        return int(self.groups.max()) + 1

    def variance(self) -> FloatArray:
        """Return the variance of each feature."""
        return np.asarray(self.weights @ self.rows**2 / self.weights.sum())

    def take(self, chosen: NDArray[Any]) -> Sample:
        """Return some of the rows, about a mean and a design of their own.

        >>> whole = make_sample(np.array([[0.0], [2.0], [10.0]]))
        >>> whole.take(np.array([0, 1])).mean
        array([1.])
        """
        raw = self.raw[chosen]
        if self.missing is not None:
            raw = np.where(self.missing[chosen], np.nan, raw)
        weights, groups, design = self.weights[chosen], self.groups[chosen], self.design[chosen]
        part = make_sample(raw, weights=weights, groups=groups, design=design)
        return replace(part, index=self.index[chosen])


def make_sample(
    X: Any,
    *,
    weights: FloatArray | None = None,
    groups: NDArray[Any] | None = None,
    design: FloatArray | None = None,
    index: NDArray[np.intp] | None = None,
) -> Sample:
    """Return rows as a sample; NaN is a missing value.

    ``groups`` are labels; a ``design`` has a column of ones, and by default only that.

    >>> s = make_sample(np.array([[0.0], [2.0], [4.0]]))
    >>> s.mean, s.variance()  # over n - 1: the mean costs a degree of freedom
    (array([2.]), array([4.]))
    """
    raw = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    n = len(raw)
    weights = np.ones(n) if weights is None else weights * (n / weights.sum())
    groups = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    design = np.ones((n, 1)) if design is None else design
    index = np.arange(n) if index is None else index
    missing: NDArray[np.bool_] | None = np.isnan(raw)
    if missing is not None and missing.any():
        raw = np.where(missing, 0.0, raw)
        seen = weights @ ~missing / weights.sum()  # the share of each feature
        seen = np.where(seen > 0.0, seen, 1.0)
        raw += missing * (weights @ raw / (weights.sum() * seen))
    else:
        missing, seen = None, np.ones(1)
    rows, left = residuals(raw, weights, design)
    if left <= 0.0:
        raise ValueError(f"{n} rows are too few for {design.shape[1] - 1} columns of covariates")
    if missing is not None:
        rows[missing] = 0.0
    # A missing value is 0 here: the others of its feature are scaled up, to keep the variance.
    rows /= np.sqrt(left * seen)
    mean = weights @ raw / weights.sum()
    return Sample(raw, rows, weights, groups, design, mean, index, missing)


def residuals(X: FloatArray, weights: FloatArray, design: FloatArray) -> tuple[FloatArray, float]:
    """Return rows without what the design explains, and the share of degrees of freedom left.

    >>> rows, left = residuals(np.array([[1.0], [3.0]]), np.ones(2), np.ones((2, 1)))
    >>> rows.ravel(), left
    (array([-1.,  1.]), 0.5)
    """
    if design.shape[1] == 1 and (design == design[0]).all():
        kish = weights.sum() ** 2 / (weights @ weights)
        return X - weights @ X / weights.sum(), float(1.0 - 1.0 / kish)
    root = np.sqrt(weights)[:, None]
    Q = orthonormal_columns(design * root)
    # A weight of w counts as w rows: Kish's effective number, (Σw)²/Σw².
    effective = weights.sum() ** 2 / (weights @ weights)
    return X - Q @ (Q.T @ (X * root)) / root, float(1.0 - Q.shape[1] / effective)


def orthonormal_columns(A: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the columns; by pivoting, as they can be collinear.

    >>> orthonormal_columns(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 2.0]])).shape
    (3, 2)
    """
    # In units of their own: beside time stamps of 1e18 a column of ones would be rounding.
    length = np.linalg.norm(A, axis=0)
    Q, R, _ = qr(A / np.where(length > 0.0, length, 1.0), mode="economic", pivoting=True)
    return np.asarray(Q[:, np.abs(np.diag(R)) > max(A.shape) * _EPS])


def mix_samples(samples: Sequence[Sample], shares: FloatArray) -> Sample:
    """Return several samples as one, each about its own mean and with its share of the weight.

    >>> a, b = (make_sample(np.array([[m], [m + 2.0]])) for m in (0.0, 100.0))
    >>> mix_samples([a, b], np.array([0.5, 0.5])).variance()
    array([2.])
    """
    n, first_group, scaled = sum(map(len, samples)), 0, []
    for s, share in zip(samples, shares, strict=True):
        weights = s.weights * share * n / len(s)
        scaled.append(replace(s, weights=weights, groups=s.groups + first_group))
        first_group += s.n_groups
    joined = {
        name: np.concatenate([getattr(s, name) for s in scaled])
        for name in ("raw", "rows", "weights", "groups", "index")
    }
    missing = None
    if any(s.missing is not None for s in samples):
        missing = np.concatenate(
            [np.zeros(s.raw.shape, bool) if s.missing is None else s.missing for s in samples]
        )
    mean = np.asarray(sum(share * s.mean for s, share in zip(samples, shares, strict=True)))
    design = block_diag(*(s.design for s in samples))
    return Sample(**joined, mean=mean, design=design, missing=missing)
