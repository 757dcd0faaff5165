"""cPCA: the eigenproblem of a difference of both covariances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cpcapp.contrast.dense import Lapack
from cpcapp.contrast.loading import choose_bound, mean_variance
from cpcapp.contrast.solution import InsufficientRankError
from cpcapp.contrast.solve import (
    Coordinates,
    Side,
    bounds_to_try,
    check_n_components,
    check_sides,
    coordinates,
    kept_rows,
    signs_of,
)
from cpcapp.moments.moments import FloatArray, Moments

__all__ = ["BoundedDifference", "solve_bounded_difference", "solve_difference"]


def solve_difference(
    target: Moments, background: Moments, k: int, alphas: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Solve cPCA's ``(R_f - α R_b) v = λ v`` for the ``k`` largest λ at each α.

    Parameters
    ----------
    target, background : Moments
    k : int
    alphas : array-like of shape (n_alphas,)

    Returns
    -------
    eigenvalues : ndarray of shape (n_alphas, k)
    filters : ndarray of shape (n_alphas, n_features, k)
        Orthonormal columns.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> from cpcapp.contrast.difference import solve_difference
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4.0], [8.0, 1.0]))
    >>> _, filters = solve_difference(f, b, 1, alphas=[0, 1])
    >>> np.abs(filters[:, :, 0])
    array([[1., 0.],
           [0., 1.]])
    """
    sides = _sides(target, background)
    at = _coordinates(sides, np.ones(sides[0].width))
    k = _check_k(k, target, at)
    alphas = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
    values = np.empty((len(alphas), k))
    filters = np.empty((len(alphas), sides[0].width, k))
    for i, alpha in enumerate(alphas):
        values[i], vectors = Lapack().top_difference(at.target, at.background, alpha, k)
        filters[i] = at.filters(vectors)
        filters[i] *= signs_of(filters[i])
    return values, filters


@dataclass(frozen=True)
class BoundedDifference:
    """cPCA in units of the features: see `solve_bounded_difference`.

    Attributes
    ----------
    alpha : float
    eigenvalues : ndarray of shape (k,)
        Of ``D^-½ (R_f - αR_b) D^-½``, descending.
    filters : ndarray of shape (n_features, k)
        With ``FᵀDF = I``.
    atoms : ndarray of shape (n_features, k)
        ``W = DF``.
    units : ndarray of shape (n_features,)
        ``D``, the mean of both sets' variance of each feature.
    """

    alpha: float
    eigenvalues: FloatArray
    filters: FloatArray
    atoms: FloatArray
    units: FloatArray


def solve_bounded_difference(
    target: Moments,
    background: Moments,
    k: int,
    *,
    rows: Any = None,
    row_weights: Any = None,
    alpha: float | None = None,
) -> BoundedDifference:
    """Solve cPCA's ``(R_f - α R_b) v = λ D v`` with α as `solve_contrast` chooses its bound.

    Parameters
    ----------
    target, background : Moments
    k : int
    rows, row_weights : optional
        As in `solve_contrast`.
    alpha : float, optional
        By default one of 3, 12 and 48.

    Returns
    -------
    BoundedDifference

    Notes
    -----
    ``D`` is the mean of both sets' variance of each feature, so that no unit matters. Each filter
    with a positive eigenvalue has a contrast above α.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> from cpcapp.contrast.difference import solve_bounded_difference
    >>> f, b = (Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 4.0], [8.0, 0.1]))
    >>> found = solve_bounded_difference(f, b, 1)
    >>> found.alpha, np.abs(found.filters[:, 0]).argmax()
    (12.0, np.int64(1))
    """
    sides = _sides(target, background)
    units = mean_variance(sides[0].spread, sides[1].spread)
    at = _coordinates(sides, units)
    k = _check_k(k, target, at)
    if rows is None and target.is_thin and alpha is None:
        rows, row_weights = kept_rows(target)

    alphas = bounds_to_try(sides[0], rows) if alpha is None else [float(alpha)]
    most = min(max(k, 2), at.size)
    found = [Lapack().top_difference(at.target, at.background, a, most) for a in alphas]
    filters = [at.filters(vectors) for _, vectors in found]
    kept = 0
    if len(alphas) > 1:
        kept = choose_bound(alphas, [columns[:, :2] for columns in filters], rows, row_weights)
    own = filters[kept][:, :k]
    own = own * signs_of(own)
    return BoundedDifference(alphas[kept], found[kept][0][:k], own, units[:, None] * own, units)


def _sides(target: Moments, background: Moments) -> list[Side]:
    f, b = check_sides(target, background)
    assert b is not None
    return [f, b]


def _coordinates(sides: list[Side], units: FloatArray) -> Coordinates:
    """Return both covariances, in a basis of all samples if that is smaller."""
    thin = all(side.moments.is_thin for side in sides)
    few = sum(side.n_samples for side in sides) < sides[0].width
    return coordinates(sides, units, "dual" if thin and few else "dense", Lapack())


def _check_k(k: int, target: Moments, at: Coordinates) -> int:
    k = check_n_components(k, target, name="k")
    if k > at.size:
        raise InsufficientRankError(at.size, f"k={k}")
    return k
