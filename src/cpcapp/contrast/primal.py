"""The eigenproblem from both covariances, in memory or on a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cpcapp.contrast import loading as rules
from cpcapp.contrast.dense import DenseAlgebra
from cpcapp.contrast.loading import LoadingRule
from cpcapp.contrast.sides import Side, SingularBackgroundError
from cpcapp.contrast.steering import Solution, restricted
from cpcapp.moments.moments import FloatArray


class PrimalProblem:
    """``R_f v = λΣv``, with both matrices in memory.

    Parameters
    ----------
    target, background : Side
    loading : str or float
    algebra : DenseAlgebra
        Holds the matrices, and says how eigenpairs are found.
    overwrite : bool
        Whether the matrices of the moments may be used up.

    Attributes
    ----------
    rule : LoadingRule
    """

    def __init__(
        self,
        target: Side,
        background: Side,
        loading: str | float,
        algebra: DenseAlgebra,
        overwrite: bool,
    ) -> None:
        self._algebra, self._loading = algebra, loading
        self._sigma, self._r_f = (
            algebra.covariance(side.moments, side.spread.constant, overwrite)
            for side in (background, target)
        )
        self.rule = load(self._sigma, loading, target, background, algebra)
        self._freedoms: list[tuple[FloatArray | None, float]] = []

    @property
    def method(self) -> str:
        """How eigenpairs were found last."""
        return self._algebra.solver

    def largest(
        self, k: int, extra: FloatArray | None = None, without: FloatArray | None = None
    ) -> Solution:
        """Return the ``k`` filters of the largest contrast; see `contrast.steering.Problem`."""
        algebra = self._algebra
        powers = None if without is None else algebra.times(self._r_f, without)
        with self._factored(extra, self._sigma, self._r_f) as (lower, r_f):
            # C = L⁻¹ R_f L⁻ᵀ with LLᵀ the loaded background: R_f v = λ LLᵀ v becomes C u = λ u.
            c = algebra.reduce(r_f, lower)
            if powers is not None:
                c = self._take_out(c, algebra.solve(lower, powers))
            values, u = algebra.top(c, k)
            filters = algebra.solve(lower, u, transposed=True)  # F = L⁻ᵀ u
            atoms = algebra.times_lower(lower, u)  # W = LLᵀ F = L u
            if without is None:
                self._keep_freedom(lower, extra)
        return Solution(filters, atoms, values)

    def loudness(self, alpha: float, units: FloatArray) -> float:
        """Return the largest eigenvalue of a difference: see `cpcapp.contrast.steering.Problem`."""
        return self._algebra.largest(self._difference(alpha, units))

    def loudest(self, k: int, alpha: float, units: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the largest eigenpairs of a difference: see `cpcapp.contrast.steering.Problem`."""
        values, vectors = self._algebra.top(
            self._difference(alpha, units), k, lambda: self._difference(alpha, units)
        )
        return values, np.asfortranarray(vectors / np.sqrt(units)[:, None])

    def restrict(self, filters: FloatArray) -> Solution:
        """Solve the problem within the span of filters."""
        filters = np.asfortranarray(filters)
        r_f_filters, sigma_filters = (
            self._algebra.times(matrix, filters) for matrix in (self._r_f, self._sigma)
        )
        outputs = filters.T.dot(r_f_filters)
        return restricted(filters, outputs, r_f_filters, filters.T.dot(sigma_filters))

    def freedom(self, extra: FloatArray | None = None) -> float:
        """Return the effective number of parameters that filters take from the background."""
        for known, found in self._freedoms:
            if known is extra:
                return found
        with self._factored(extra, self._sigma) as (lower,):
            return self._keep_freedom(lower, extra)

    def _keep_freedom(self, lower: Any, extra: FloatArray | None) -> float:
        diagonal = self.rule.ridge * self.rule.units + (0.0 if extra is None else extra)
        self._freedoms.append((extra, self._algebra.freedom(lower, diagonal)))
        return self._freedoms[-1][1]

    def _difference(self, alpha: float, units: FloatArray) -> Any:
        """Return ``R_f - αΣ`` in ``units``."""
        return self._algebra.difference(self._r_f, self._sigma, alpha, units)

    def _take_out(self, c: Any, powers: FloatArray) -> Any:
        """Return ``C`` without its part in the span of ``powers``."""
        # Outputs are uncorrelated with those of filters G if uᵀL⁻¹R_fG = 0. With P an orthonormal
        # basis of L⁻¹R_fG, that leaves
        #   (I - PPᵀ) C (I - PPᵀ) = C - PYᵀ - YPᵀ with Y = CP - ½P(PᵀCP).
        p = np.asfortranarray(np.linalg.qr(powers).Q)
        c_p = self._algebra.times(c, p)
        y = np.asfortranarray(c_p - 0.5 * p @ (p.T @ c_p))
        return self._algebra.subtract(c, p, y)

    @contextmanager
    def _factored(self, extra: FloatArray | None, *matrices: Any) -> Iterator[list[Any]]:
        """Give ``Σ + diag(extra)``, the first of the matrices, as its Cholesky factor.

        All of them may be used up.
        """
        with self._algebra.kept(*matrices) as (sigma, *others):
            if extra is not None:
                self._algebra.load(sigma, 1.0, extra)
            lower = self._algebra.cholesky(sigma)
            if lower is None:
                raise ValueError(
                    f"loading={self._loading} is too small to make the background covariance "
                    "positive definite; raise it or use loading='auto'"
                )
            yield [lower, *others]


def load(
    r_b: Any, loading: str | float, target: Side, background: Side, algebra: DenseAlgebra
) -> LoadingRule:
    """Load a background covariance, in place."""
    units = rules.loading_units(loading, target.spread, background.spread)
    if loading in ("none", "diagonal"):
        if algebra.cholesky(algebra.copy(r_b)) is not None:
            return LoadingRule(1.0, 0.0, units)
        if loading == "none":
            raise SingularBackgroundError(algebra.rank(r_b), len(units), background.n_samples)
    rule = rules.shrink_or_load(
        loading,
        units,
        background.n_samples,
        lambda: algebra.traces(r_b, units),
        lambda: (algebra.spectrum(r_b, units), None),
        background.spread.constant,
    )
    algebra.load(r_b, rule.weight, rule.ridge * rule.units)
    return rule
