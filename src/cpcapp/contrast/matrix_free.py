"""Eigenpairs of sparse rows, from products with the rows alone: nothing here is ever square."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import lobpcg

from cpcapp.contrast.basis import CentredRows
from cpcapp.contrast.dense import NotConvergedError, Pairs, lanczos
from cpcapp.moments.moments import FloatArray

# Of the residual to the eigenvalue. The eigenvalue itself is then exact to the square of this over
# the relative gap to the next one: 1e-7 at a gap of a thousandth.
_TOLERANCE = 1e-5
# After some steps the residuals of the components alone are looked at: those of the guards, among
# eigenvalues of noise, may take long.
_STEPS, _MOST_STEPS = 40, 800
# Vectors more than were asked for, so that one as large as the last is not missed.
_GUARDS = 3

# Of stored values, for an exact trace, and vectors for an estimate.
_MOST_PRODUCTS, _PROBES = 5e7, 16

Operator = Callable[[FloatArray], FloatArray]


class MatrixFree:
    """What `cpcapp.contrast.dense.Lapack` does for matrices, for `CentredRows` of both sets."""

    iterative = True

    def trace_of_square(self, a: CentredRows) -> float:
        """Return ``tr A²``: exact where that takes about a second, else with an error of 1 %."""
        if a.count_products() <= _MOST_PRODUCTS:
            return a.trace_of_square()
        # tr A² = ‖AQ‖² + tr (I - QQᵀ)A²(I - QQᵀ), and the last is the mean of ‖A(I - QQᵀ)z‖² over
        # random signs z, which varies little without the main directions Q (Hutch++ of R. A. Meyer,
        # C. Musco, C. Musco and D. P. Woodruff, 2021).
        rng = np.random.default_rng(0)
        block = rng.standard_normal((a.shape[1], _PROBES))
        q = np.linalg.qr(a.covariance_times(a.covariance_times(block))).Q
        signs = rng.choice([-1.0, 1.0], size=block.shape)
        signs -= q @ (q.T @ signs)
        known, rest = a.covariance_times(q), a.covariance_times(signs)
        return float(np.vdot(known, known) + np.vdot(rest, rest) / _PROBES)

    def rank(self, a: CentredRows) -> None:
        """Return None: the rank is not known without a matrix."""

    def times(self, a: CentredRows, vectors: FloatArray) -> FloatArray:
        """Return ``A v``."""
        return a.covariance_times(vectors)

    def top_difference(self, f: CentredRows, b: CentredRows | None, alpha: float, k: int) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F - αB``, descending, by Lanczos."""

        def times(v: FloatArray) -> FloatArray:
            v = v.reshape(-1, 1)
            product = f.covariance_times(v)
            return product if b is None else product - alpha * b.covariance_times(v)

        return lanczos(times, f.shape[1], k, tolerance=0.1 * _TOLERANCE, most=_MOST_STEPS)

    def least_ridge(
        self, f: CentredRows, b: CentredRows, bound: float, enough: float | None
    ) -> float:
        """Return the least ridge, or 0, with which no eigenvalue exceeds the bound."""
        return max(float(self.top_difference(f, b, bound, 1)[0][0]) / bound, 0.0)

    def certify(self, *_: Any) -> bool:
        """Return True: more vectors were looked at than were asked for."""
        return True

    def top_loaded(
        self,
        f: CentredRows,
        b: CentredRows,
        weight: float,
        ridge: float,
        k: int,
        start: FloatArray | None = None,
        tolerance: float = 0.0,
    ) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F v = λ (wB + rI) v``, descending."""

        def loaded(v: FloatArray) -> FloatArray:
            return weight * b.covariance_times(v) + ridge * v

        varies = (f.varies | b.varies)[:, None]
        return _largest(f.covariance_times, loaded, varies, k, start)


def _largest(
    a: Operator, b: Operator, varies: NDArray[np.bool_], k: int, start: FloatArray | None
) -> Pairs:
    """Return the ``k`` largest eigenpairs of ``A v = λ B v``, descending, by LOBPCG."""
    n = len(varies)
    vectors = np.random.default_rng(0).standard_normal((n, min(k + _GUARDS, n))) * varies
    if start is not None:
        vectors[:, : start.shape[1]] = start[:, : vectors.shape[1]]
    for _ in range(_MOST_STEPS // _STEPS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the residuals are looked at below
            values, vectors = lobpcg(a, vectors, B=b, tol=1e-9, maxiter=_STEPS, largest=True)
        order = np.argsort(values)[::-1]
        values, vectors = values[order], vectors[:, order]
        images = b(vectors)
        residuals = np.linalg.norm(a(vectors) - images * values, axis=0)
        # A value of 0, where there are no more, is known to a thousandth of the largest.
        sizes = np.maximum(np.abs(values), 1e-3 * values[0]) * np.linalg.norm(images, axis=0)
        if (residuals <= _TOLERANCE * sizes)[:k].all():
            lengths = np.sqrt(np.einsum("ij,ij->j", vectors, images))
            return values[:k], (vectors / lengths)[:, :k]
    raise NotConvergedError
