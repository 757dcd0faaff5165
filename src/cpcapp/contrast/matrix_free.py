"""Eigenpairs of sparse rows, from products with the rows alone: nothing here is ever square."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse.linalg import lobpcg

from cpcapp.contrast.basis import CentredRows
from cpcapp.contrast.dense import NotConvergedError, Pairs
from cpcapp.moments.moments import FloatArray

# Of the residual to the eigenvalue. The eigenvalue itself is then exact to the square of this over
# the relative gap to the next one: 1e-7 at a gap of a thousandth.
_TOLERANCE = 1e-5
_MOST_STEPS = 400
# Vectors more than were asked for, so that one as large as the last is not missed.
_GUARDS = 3

Operator = Callable[[FloatArray], FloatArray]


class MatrixFree:
    """What `cpcapp.contrast.dense.Lapack` does for matrices, for `CentredRows` of both sets."""

    iterative = True

    def trace_of_square(self, a: CentredRows) -> float:
        """Return ``tr A²``."""
        return a.trace_of_square()

    def rank(self, a: CentredRows) -> None:
        """Return None: the rank is not known without a matrix."""

    def times(self, a: CentredRows, vectors: FloatArray) -> FloatArray:
        """Return ``A v``."""
        return a.covariance_times(vectors)

    def top_difference(self, f: CentredRows, b: CentredRows | None, alpha: float, k: int) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F - αB``, descending."""

        def times(v: FloatArray) -> FloatArray:
            product = f.covariance_times(v)
            return product if b is None else product - alpha * b.covariance_times(v)

        return _largest(times, None, f.shape[1], k, None)

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

        return _largest(f.covariance_times, loaded, f.shape[1], k, start)


def _largest(a: Operator, b: Operator | None, n: int, k: int, start: FloatArray | None) -> Pairs:
    """Return the ``k`` largest eigenpairs of ``A v = λ B v``, by LOBPCG."""
    block = np.random.default_rng(0).standard_normal((n, min(k + _GUARDS, n)))
    if start is not None:
        block[:, : start.shape[1]] = start[:, : block.shape[1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the residuals are looked at below
        values, vectors = lobpcg(a, block, B=b, tol=1e-8, maxiter=_MOST_STEPS, largest=True)
    order = np.argsort(values)[::-1][:k]
    values, vectors = values[order], vectors[:, order]
    images = vectors if b is None else b(vectors)
    lengths = np.sqrt(np.einsum("ij,ij->j", vectors, images))
    vectors, images = vectors / lengths, images / lengths
    residuals = np.linalg.norm(a(vectors) - images * values, axis=0)
    sizes = np.maximum(np.abs(values), 1e-9 * np.abs(values).max())
    if not (residuals <= _TOLERANCE * sizes * np.linalg.norm(images, axis=0)).all():
        raise NotConvergedError
    return values, vectors
