"""Filters of few features: chosen by the weights of the full ones, and solved for again."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, null_space

from cpcapp.contrast.loading import Loading
from cpcapp.contrast.solve import as_moments, rows_at_hand, signs_of, solve_contrast
from cpcapp.moments.moments import FloatArray, Moments

__all__ = ["SparseFilters", "find_sparse_filters"]


@dataclass(frozen=True)
class SparseFilters:
    """What `find_sparse_filters` found.

    Attributes
    ----------
    filters : ndarray of shape (n_features, k)
        In columns, each with at most ``n_nonzero`` values that are not 0. The output of background
        data has variance 1, and outputs of different filters are uncorrelated in the background.
    eigenvalues : ndarray of shape (k,)
        Target power over (loaded) background power along each.
    kept : ndarray of shape (k,)
        Their share of the contrast of the full filters.
    """

    filters: FloatArray
    eigenvalues: FloatArray
    kept: FloatArray

    def support(self, component: int) -> NDArray[np.intp]:
        """Return the features that a component uses, those of largest weight first."""
        column = np.abs(self.filters[:, component])
        order = np.argsort(-column, kind="stable")
        return order[: int((column > 0.0).sum())]


def find_sparse_filters(
    target: Moments | ArrayLike,
    background: Moments | ArrayLike | None,
    n_nonzero: int,
    *,
    k: int = 2,
    loading: str | float | Loading = "auto",
    rows: Any = None,
) -> SparseFilters:
    """Find filters that use few features each, and say how much contrast they keep.

    For each full filter the features with the largest weights are kept, and the best filter of
    these features alone is found. Weights are those of `CPCAPlusPlus.top_features`: the filter
    times the standard deviation of the feature; or those of the atom, if they give more contrast.

    Parameters
    ----------
    target : Moments, or array-like of shape (n_target, n_features)
    background : Moments, array-like of shape (n_background, n_features), or None
        None gives sparse principal components.
    n_nonzero : int
        Features of each filter.
    k : int, default=2
        Number of filters.
    loading : {"auto", "oas", "none"}, float or Loading, default="auto"
    rows : array or sparse matrix, optional
        As in `solve_contrast`.

    Returns
    -------
    SparseFilters

    Notes
    -----
    The choice of features is greedy: other features may keep more. ``kept`` says how much could
    be gained at most. Of later filters it can be above 1.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import find_sparse_filters
    >>> rng = np.random.default_rng(0)
    >>> B = rng.normal(size=(2000, 20))
    >>> X = rng.normal(size=(2000, 20))
    >>> X[:, :2] += rng.normal(size=(2000, 1)) * 3.0
    >>> found = find_sparse_filters(X, B, 2, k=1)
    >>> sorted(found.support(0).tolist())
    [0, 1]
    >>> bool(found.kept[0] > 0.9)
    True
    """
    if isinstance(n_nonzero, bool) or not isinstance(n_nonzero, Integral):
        raise TypeError(f"n_nonzero={n_nonzero!r} must be a whole number")
    rows = rows_at_hand(target) if rows is None else rows
    f = as_moments(target, "target")
    b = None if background is None else as_moments(background, "background")
    full = solve_contrast(f, b, k, loading=loading, rows=rows)
    m = len(full.target_variance)
    if not k <= n_nonzero <= m:
        raise ValueError(
            f"n_nonzero={n_nonzero} must be between {k} (components) and {m} (features)"
        )
    deviation = np.sqrt(full.target_variance)
    safe = np.where(deviation > 0.0, deviation, np.inf)
    filters, values = np.zeros((m, k)), np.zeros(k)
    for j in range(k):
        candidates = (full.filters[:, j] * deviation, full.atoms[:, j] / safe)
        supports = (np.argsort(-np.abs(w), kind="stable")[: int(n_nonzero)] for w in candidates)
        before = filters[:, :j]
        found = [_best_within(f, b, full.loading, np.sort(s), before) for s in supports]
        values[j], filters[:, j] = max(found, key=lambda pair: pair[0])
    return SparseFilters(filters, values, values / full.eigenvalues)


def _best_within(
    target: Moments,
    background: Moments | None,
    loading: Loading | None,
    support: NDArray[np.intp],
    before: FloatArray,
) -> tuple[float, FloatArray]:
    """Return the largest contrast within some features, and its filter.

    Its output is uncorrelated, in the background, with those of the filters before.
    """
    features = np.union1d(support, np.flatnonzero(before.any(axis=1)))
    inside = np.flatnonzero(np.isin(features, support))
    r_f, sigma = _covariance_of(target, support), np.eye(len(features))
    if background is not None and loading is not None:
        sigma = loading.weight * _covariance_of(background, features)
        sigma += np.diag(loading.diagonal[features])
    # Σ-orthogonal to the filters before: vᵀΣf = 0, so v in the null space of (Σf)ᵀ.
    basis = np.eye(len(support))
    if before.shape[1]:
        basis = null_space((sigma[inside] @ before[features]).T)
    if not basis.shape[1]:
        raise ValueError("n_nonzero is too small for as many filters; raise it or lower k")
    sigma = sigma[np.ix_(inside, inside)]
    values, vectors = eigh(basis.T @ r_f @ basis, basis.T @ sigma @ basis)
    best = np.zeros((len(before), 1))
    best[support, 0] = basis @ vectors[:, -1]
    return float(values[-1]), (best * signs_of(best))[:, 0]


def _covariance_of(moments: Moments, features: NDArray[np.intp]) -> FloatArray:
    """Return the covariance of a few sorted features, from the rows where moments keep them."""
    if not moments.is_thin:
        lower = np.tril(moments._lower()[np.ix_(features, features)])
        return np.asarray(lower + np.tril(lower, -1).T) / moments.total_weight
    rows, weights = moments.kept_rows()
    part = rows[:, features]
    centred = (part.toarray() if sp.issparse(part) else part) - np.asarray(moments.mean)[features]
    weighted = centred.T if weights is None else centred.T * weights
    return np.asarray(weighted @ centred) / moments.total_weight
