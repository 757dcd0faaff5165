"""Eigenpairs of sparse rows, from products with the rows alone: nothing here is ever square."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from cpcapp.contrast.basis import CentredRows
from cpcapp.contrast.dense import Dense, NotConvergedError, Pairs
from cpcapp.contrast.loading import LEAST_RIDGE
from cpcapp.moments.moments import FloatArray

# Of the residual to the eigenvalue. The eigenvalue itself is then exact to the square of this over
# the relative gap to the next one. What takes more steps for each vector lies among eigenvalues
# that hardly differ, as those of noise, where another vector does as well: the tolerance grows.
_TOLERANCE, _CLOSE_TOLERANCE = 1e-5, 1e-2
_STEPS, _STEPS_A_DECADE, _MOST_STEPS = 40, 10, 2000
# For a bound that is tried. What shows classes is well apart from noise, and is soon known.
_TRIED_TOLERANCE, _TRIED_STEPS = 3e-2, 12
# Vectors that are held, at least, and the share of them that is kept when there are as many.
_HELD, _KEPT = 200, 1 / 3
# Random vectors to start with more than were asked for, so that equal eigenvalues are all met.
_GUARDS = 2

# Products of a stored value and a feature, for an exact trace, and vectors for an estimate.
_MOST_PRODUCTS, _PROBES = 1e9, 16


class MatrixFree(Dense):
    """By Davidson's method, for `CentredRows` of both sets.

    A space of vectors grows by the residuals of the first eigenvectors that are not known yet, one
    product with the rows for each. Another ridge or bound starts with all that is known.
    """

    solver, tries_exactly = "matrix-free", False

    def __init__(self, rows: list[CentredRows], units: FloatArray, k: int) -> None:
        super().__init__(rows, units)
        held = min(self.size, max(_HELD, 5 * k))
        # The space, F and B times it, and both within it.
        self._basis, self._f_basis, self._b_basis = (
            np.zeros((self.size, held), order="F") for _ in range(3)
        )
        self._inner_f, self._inner_b = (np.zeros((held, held)) for _ in range(2))
        self._n_held = 0
        start = np.random.default_rng(0).standard_normal((self.size, k + _GUARDS))
        varies = np.any([side.scale > 0.0 for side in rows], axis=0)
        self._add(start * varies[:, None])

    def bounded(
        self, bound: float, otherwise: float, k: int, tried: bool = True
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the same, roughly for a bound that is tried."""
        return self._refine(k, 1.0, otherwise, bound, tried)

    def top(self, weight: float, ridge: float, k: int) -> Pairs:
        """Return the ``k`` largest eigenpairs, descending."""
        return self._refine(k, weight, ridge)[1:]

    def times_background(self, vectors: FloatArray) -> FloatArray:
        """Return ``B v``."""
        return self.b.covariance_times(vectors)  # type: ignore[no-any-return]

    def rank(self, covariance: CentredRows) -> None:
        """Return None: a rank is not known without a matrix."""

    def trace_of_square(self) -> float:
        """Return ``tr B²``: exact where that takes about a second, else with an error of 1 %."""
        times, n = self.b.covariance_times, self.size
        if self.b.rows.nnz * n <= _MOST_PRODUCTS:
            units = (np.eye(n, min(256, n - j), -j) for j in range(0, n, 256))
            return sum(float((times(columns) ** 2).sum()) for columns in units)
        # tr A² = ‖AQ‖² + tr (I - QQᵀ)A²(I - QQᵀ), and the last is the mean of ‖A(I - QQᵀ)z‖² over
        # random signs z, which varies little without the main directions Q (Hutch++ of R. A. Meyer,
        # C. Musco, C. Musco and D. P. Woodruff, 2021).
        rng = np.random.default_rng(0)
        block = rng.standard_normal((n, _PROBES))
        q = np.linalg.qr(times(times(block))).Q
        signs = rng.choice([-1.0, 1.0], size=block.shape)
        signs -= q @ (q.T @ signs)
        return float((times(q) ** 2).sum() + (times(signs) ** 2).sum() / _PROBES)

    def _refine(
        self, k: int, weight: float, ridge: float, bound: float | None = None, tried: bool = False
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the ridge and the ``k`` largest eigenpairs of ``F v = λ (wB + rI) v``.

        With a bound the ridge is the least for which no eigenvalue exceeds it, and ``ridge`` only
        where none does anyway.
        """
        otherwise = ridge
        for step in range(_MOST_STEPS):
            decades = max(step / k - _STEPS, 0.0) / _STEPS_A_DECADE
            tolerance = min(_TOLERANCE * 10.0**decades, _CLOSE_TOLERANCE)
            tolerance = _TRIED_TOLERANCE if tried else tolerance
            n = self._n_held
            inner_f, inner_b = self._inner_f[:n, :n], self._inner_b[:n, :n]
            if bound is not None:
                theta = eigh(
                    inner_f - bound * inner_b, eigvals_only=True, subset_by_index=[n - 1] * 2
                )
                ridge = float(theta[0]) / bound if theta[0] > LEAST_RIDGE * bound else otherwise
            values, y = self._within(weight, ridge, k)
            vectors = self._basis[:, :n] @ y
            images = weight * (self._b_basis[:, :n] @ y) + ridge * vectors
            missing = self._f_basis[:, :n] @ y - images * values
            # A value of 0, where there are no more, is known to a thousandth of the largest.
            sizes = np.maximum(np.abs(values), 1e-3 * values[0]) * np.linalg.norm(images, axis=0)
            unknown = np.flatnonzero(np.linalg.norm(missing, axis=0) > tolerance * sizes)
            if not len(unknown) or (tried and step == _TRIED_STEPS):
                return ridge, values, vectors
            new = missing[:, unknown[: max(1, k // 4)]]
            if self.b is not None:
                new = new / (weight * self.b.variance + ridge)[:, None]
            if n + new.shape[1] > self._basis.shape[1] < self.size:
                self._restart(self._within(weight, ridge, max(int(_KEPT * n), k))[1])
            if not self._add(new):
                return ridge, values, vectors  # there is nothing more to learn
        raise NotConvergedError

    def _within(self, weight: float, ridge: float, k: int) -> Pairs:
        """Return the ``k`` largest eigenpairs within the space, descending."""
        n = self._n_held
        loaded = weight * self._inner_b[:n, :n] + ridge * np.eye(n)
        values, y = eigh(self._inner_f[:n, :n], loaded, subset_by_index=[max(n - k, 0), n - 1])
        return values[::-1], y[:, ::-1]

    def _add(self, new: FloatArray) -> int:
        """Add vectors, as far as they are new, and return how many were."""
        basis = self._basis[:, : self._n_held]
        for _ in range(2):
            length = np.linalg.norm(new, axis=0)
            new = new[:, length > 0.0] / length[length > 0.0]
            new = new - basis @ (basis.T @ new)
            u, share, _ = np.linalg.svd(new, full_matrices=False)
            new = u[:, share > 1e-10]  # of the others rounding is all that is left
        new = new[:, : self._basis.shape[1] - self._n_held]
        added = slice(self._n_held, self._n_held + new.shape[1])
        self._n_held = n = added.stop
        self._basis[:, added] = new
        self._f_basis[:, added] = self.f.covariance_times(new)
        if self.b is not None:
            self._b_basis[:, added] = self.b.covariance_times(new)
        for inner, images in (self._inner_f, self._f_basis), (self._inner_b, self._b_basis):
            inner[:n, added] = self._basis[:, :n].T @ images[:, added]
            inner[added, :n] = inner[:n, added].T
        return int(new.shape[1])

    def _restart(self, y: FloatArray) -> None:
        """Keep of the space what has the largest eigenvalues."""
        y = np.linalg.qr(y).Q
        n, kept = y.shape
        for part in (self._basis, self._f_basis, self._b_basis):
            part[:, :kept] = part[:, :n] @ y
        for inner in (self._inner_f, self._inner_b):
            inner[:kept, :kept] = y.T @ inner[:n, :n] @ y
        self._n_held = kept
