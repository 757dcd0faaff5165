"""Eigenpairs of sparse rows, from products with the rows alone: nothing here is ever square."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigh

from cpcapp.contrast.basis import CentredRows
from cpcapp.contrast.dense import NotConvergedError, Pairs, lanczos
from cpcapp.contrast.loading import LEAST_RIDGE
from cpcapp.moments.moments import FloatArray

# Of the residual to the eigenvalue. The eigenvalue itself is then exact to the square of this over
# the relative gap to the next one: 1e-7 at a gap of a thousandth.
_TOLERANCE = 1e-5
# The same where outputs are only looked at for classes.
_ROUGH_TOLERANCE = 1e-3
_MOST_STEPS = 300
# What is held, and what of it is kept when it is full, in blocks.
_MOST_BLOCKS, _KEPT_BLOCKS = 24, 8
# Vectors more than were asked for, so that one as large as the last is not missed.
_GUARDS = 2

# Of stored values, for an exact trace, and vectors for an estimate.
_MOST_PRODUCTS, _PROBES = 5e7, 16


class MatrixFree:
    """What `cpcapp.contrast.dense.Lapack` does for matrices, for `CentredRows` of both sets."""

    iterative = True

    def __init__(self) -> None:
        self._space: _Space | None = None

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

        return lanczos(times, f.shape[1], k, tolerance=0.1 * _TOLERANCE, most=2 * _MOST_STEPS)

    def top_bounded(
        self,
        f: CentredRows,
        b: CentredRows,
        bound: float,
        k: int,
        otherwise: float,
        enough: float | None = None,
        start: FloatArray | None = None,
        rough: bool = False,
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the least ridge for a bound, and the ``k`` largest eigenpairs with it."""
        if self._space is None:
            self._space = _Space(f, b, k)  # what it learns for one bound serves the next
        tolerance = _ROUGH_TOLERANCE if rough else _TOLERANCE
        return self._space.refine(k, ridge=otherwise, bound=bound, tolerance=tolerance)

    def top_loaded(
        self, f: CentredRows, b: CentredRows, weight: float, ridge: float, k: int
    ) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F v = λ (wB + rI) v``, descending."""
        _, values, vectors = _Space(f, b, k).refine(k, weight=weight, ridge=ridge)
        return values, vectors

    def certify(self, *_: Any) -> bool:
        """Return True: more vectors were looked at than were asked for."""
        return True


class _Space:
    """A space of vectors with ``F`` and ``B`` in it, that grows by what is missing (Davidson).

    Both are multiplied with each vector once. Another ridge or bound starts with all that is known.
    """

    def __init__(self, f: CentredRows, b: CentredRows, k: int) -> None:
        self._f, self._b = f, b
        width = f.shape[1]
        self._block = min(k + _GUARDS, width)
        self._most = min(_MOST_BLOCKS * self._block, width)
        self._size = 0
        # The space, and F and B times it.
        self._basis, self._f_basis, self._b_basis = (
            np.empty((width, self._most), order="F") for _ in range(3)
        )
        start = np.random.default_rng(0).standard_normal((width, self._block))
        self._add(start * (f.varies | b.varies)[:, None])

    def refine(
        self,
        k: int,
        *,
        weight: float = 1.0,
        ridge: float = 0.0,
        bound: float | None = None,
        tolerance: float = _TOLERANCE,
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the ridge and the ``k`` largest eigenpairs of ``F v = λ (wB + rI) v``.

        With a bound the ridge is the least for which no eigenvalue exceeds it, and ``ridge`` only
        where none does anyway.
        """
        otherwise = ridge
        for _ in range(_MOST_STEPS):
            own = slice(0, self._size)
            basis, f_basis, b_basis = (
                part[:, own] for part in (self._basis, self._f_basis, self._b_basis)
            )
            inner_f, inner_b = basis.T @ f_basis, basis.T @ b_basis
            if bound is not None:
                theta = eigh(inner_f - bound * inner_b, eigvals_only=True)[-1]
                ridge = float(theta) / bound if theta > LEAST_RIDGE * bound else otherwise
            loaded = weight * inner_b + ridge * np.eye(self._size)
            values, y = (found[..., ::-1] for found in eigh(inner_f, loaded))
            values, y = values[: self._block], y[:, : self._block]
            vectors = basis @ y
            images = weight * (b_basis @ y) + ridge * vectors
            missing = f_basis @ y - images * values
            residuals = np.linalg.norm(missing, axis=0)
            # A value of 0, where there are no more, is known to a thousandth of the largest.
            sizes = np.maximum(np.abs(values), 1e-3 * values[0]) * np.linalg.norm(images, axis=0)
            if len(values) >= k and (residuals <= tolerance * sizes)[:k].all():
                return ridge, values[:k], vectors[:, :k]
            if self._size + self._block > self._most < len(basis):
                self._restart(eigh(inner_f, loaded)[1][:, -_KEPT_BLOCKS * self._block :])
            if not self._add(missing / (weight * self._b.variance + ridge)[:, None]):
                return ridge, values[:k], vectors[:, :k]  # there is nothing more to learn
        raise NotConvergedError

    def _add(self, new: FloatArray) -> int:
        """Add vectors, as far as they are new, and return how many were."""
        basis = self._basis[:, : self._size]
        length = np.linalg.norm(new, axis=0)
        new = new[:, length > 0.0] / length[length > 0.0]
        for _ in range(2):
            new = new - basis @ (basis.T @ new)
            u, share, _ = np.linalg.svd(new, full_matrices=False)
            new = u[:, share > 1e-10]  # of the others rounding is all that is left
        new = new[:, : self._most - self._size]
        own = slice(self._size, self._size + new.shape[1])
        self._basis[:, own] = new
        self._f_basis[:, own] = self._f.covariance_times(new)
        self._b_basis[:, own] = self._b.covariance_times(new)
        self._size = own.stop
        return int(new.shape[1])

    def _restart(self, y: FloatArray) -> None:
        """Keep of the space what has the largest eigenvalues."""
        y = np.linalg.qr(y).Q
        for part in (self._basis, self._f_basis, self._b_basis):
            part[:, : y.shape[1]] = part[:, : self._size] @ y
        self._size = y.shape[1]
