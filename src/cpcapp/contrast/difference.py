"""cPCA: the eigenproblem of a difference of both covariances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas

from cpcapp.contrast.dense import Dense, largest_eigenpairs
from cpcapp.contrast.loading import bounds_to_try, choose_bound, loading_units
from cpcapp.contrast.solution import Contrast, InsufficientRankError
from cpcapp.contrast.solve import (
    check_n_components,
    check_sides,
    make_pair,
    rows_to_look_at,
    signs_of,
)
from cpcapp.moments.moments import FloatArray, Moments, Spread

__all__ = ["solve_cpca", "solve_difference"]


def solve_difference(
    target: Moments, background: Moments, k: int, alphas: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Solve cPCA's ``(R_f - α R_b) v = λ v`` for the ``k`` largest λ at each α.

    Returns eigenvalues of shape (n_alphas, k), and filters of shape (n_alphas, n_features, k) with
    orthonormal columns.
    """
    units = np.ones(target.n_features or 0)
    pair, k = _prepare(target, background, check_sides(target, background), units, k)
    alphas = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
    values, filters = np.empty((len(alphas), k)), np.empty((len(alphas), len(units), k))
    for i, alpha in enumerate(alphas):
        values[i], vectors = largest_eigenpairs(pair.difference(alpha), k)
        filters[i] = pair.filters(vectors)
        filters[i] *= signs_of(filters[i])
    return values, filters


def solve_cpca(
    target: Moments,
    background: Moments,
    k: int,
    alpha: float | None = None,
    *,
    standardize: bool = True,
    rows: Any = None,
    row_weights: Any = None,
) -> Contrast:
    """Solve cPCA's ``(R_f - α R_b) v = λ D v``, by default with α chosen as a bound is.

    ``D`` is the mean of both sets' variance of each feature, so that no unit matters; without
    ``standardize`` it is the identity. Filters have ``FᵀDF = I``, atoms are ``W = DF``, and the
    ``bound`` of the result is α: each filter with a positive eigenvalue has a contrast above it.
    """
    spreads = check_sides(target, background)
    units = loading_units("auto", *spreads) if standardize else np.ones(target.n_features or 0)
    pair, k = _prepare(target, background, spreads, units, k)
    if alpha is not None:
        alphas, most = [float(alpha)], k
    else:
        rows, row_weights = rows_to_look_at(rows, row_weights, target)
        varies = int((~spreads[0].constant).sum())
        alphas = bounds_to_try(target.n_samples, varies, rows)
        # The first two are looked at for classes, however many are asked for.
        most = min(max(k, 2), pair.size)
    found = [largest_eigenpairs(pair.difference(a), most) for a in alphas]
    tried = [pair.filters(vectors) for _, vectors in found]
    best = choose_bound(alphas, tried, rows, row_weights)
    values, vectors = found[best][0][:k], found[best][1][:, :k]
    filters = tried[best][:, :k] * signs_of(tried[best][:, :k])
    of_both = [
        np.einsum("ij,ij->j", vectors, blas.dsymm(1.0, covariance, vectors, lower=1))
        for covariance in pair.covariances
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        contrast = np.divide(*np.maximum(of_both, 0.0))
    return Contrast(
        filters=filters,
        atoms=units[:, None] * filters,
        eigenvalues=values,
        contrast=contrast,
        loading=None,
        bound=alphas[best],
        solver=pair.solver,
        target_variance=spreads[0].variance,
        explained_variance=np.full(k, np.nan),
        mean=np.asarray(target.mean),
        background_mean=background.mean,
    )


def _prepare(
    target: Moments, background: Moments, spreads: list[Spread], units: FloatArray, k: int
) -> tuple[Dense, int]:
    """Return both covariances, in a basis of all samples if that is smaller, and ``k``, checked."""
    k, sides = check_n_components(k, target, name="k"), [target, background]
    few = sum(side.n_samples for side in sides) < len(units)
    solver = "dual" if few and all(side.is_thin for side in sides) else "dense"
    pair = make_pair(sides, spreads, units, solver, k)
    if k > pair.size:
        raise InsufficientRankError(pair.size, f"k={k}")
    return pair, k
