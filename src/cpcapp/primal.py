"""The eigenproblem from both covariances: dense, or iterative by Lanczos."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from scipy.linalg import blas, eigvalsh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from cpcapp import loading as rules
from cpcapp.loading import LoadingRule
from cpcapp.moments import FloatArray
from cpcapp.sides import Side, SingularBackgroundError
from cpcapp.steering import Solution, keep_in_upper, restricted

_EPS = float(np.finfo(np.float64).eps)
# Matrices up to this order are copied whole, which is faster.
_SMALL = 128


class PrimalProblem:
    """``R_f v = λΣv``, with both matrices in memory.

    Parameters
    ----------
    target, background : Side
    loading : str or float
    method : {"dense", "iterative"}
    fall_back : bool
        Whether the dense method may be used where the iterative one does not converge.
    overwrite : bool
        Whether the matrices of the moments may be used up.

    Attributes
    ----------
    rule : LoadingRule
    method : str
        The one that was used last.
    """

    def __init__(
        self,
        target: Side,
        background: Side,
        loading: str | float,
        method: str,
        fall_back: bool,
        overwrite: bool,
    ) -> None:
        self.method, self._fall_back, self._loading = method, fall_back, loading
        # The first is loaded, and both are valid in their lower triangles.
        self._sigma, self._r_f = (
            lower_covariance(side, overwrite) for side in (background, target)
        )
        self.rule = load(self._sigma, loading, target, background)
        self._freedoms: list[tuple[FloatArray | None, float]] = []

    def largest(
        self, k: int, extra: FloatArray | None = None, without: FloatArray | None = None
    ) -> Solution:
        """Return the ``k`` filters of the largest contrast: see `cpcapp.steering.Problem`."""
        powers = None if without is None else blas.dsymm(1.0, self._r_f, without, lower=1)
        with self._factored(extra, self._sigma, self._r_f) as (lower, r_f):
            # C = L⁻¹ R_f L⁻ᵀ with LLᵀ the loaded background: R_f v = λ LLᵀ v becomes C u = λ u.
            c, _ = lapack.dsygst(r_f, lower, lower=1, overwrite_a=1)
            if powers is not None:
                _take_out(c, lapack.dtrtrs(lower, powers, lower=1)[0])
            values, u, self.method = top(c, k, self.method, self._fall_back)
            filters, _ = lapack.dtrtrs(lower, u, lower=1, trans=1)  # F = L⁻ᵀ u
            atoms = blas.dtrmm(1.0, lower, u, lower=1)  # W = LLᵀ F = L u
            if without is None:
                self._keep_freedom(lower, extra)
        return Solution(filters, atoms, values)

    def loudness(self, alpha: float, units: FloatArray) -> float:
        """Return the largest eigenvalue of a difference: see `cpcapp.steering.Problem`."""
        return rules.largest_eigenvalue(self._difference(alpha, units))

    def loudest(self, k: int, alpha: float, units: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the largest eigenpairs of a difference: see `cpcapp.steering.Problem`."""
        values, vectors, self.method = top(
            self._difference(alpha, units),
            k,
            self.method,
            self._fall_back,
            lambda: self._difference(alpha, units),
        )
        return values, np.asfortranarray(vectors / np.sqrt(units)[:, None])

    def restrict(self, filters: FloatArray) -> Solution:
        """Solve the problem within the span of filters."""
        filters = np.asfortranarray(filters)
        r_f_filters = blas.dsymm(1.0, self._r_f, filters, lower=1)
        sigma_filters = blas.dsymm(1.0, self._sigma, filters, lower=1)
        return restricted(filters, filters.T @ r_f_filters, r_f_filters, filters.T @ sigma_filters)

    def freedom(self, extra: FloatArray | None = None) -> float:
        """Return the effective number of parameters that filters take from the background."""
        for known, found in self._freedoms:
            if known is extra:
                return found
        with self._factored(extra, self._sigma) as (lower,):
            return self._keep_freedom(lower, extra)

    def _keep_freedom(self, lower: FloatArray, extra: FloatArray | None) -> float:
        diagonal = self.rule.ridge * self.rule.units + (0.0 if extra is None else extra)
        self._freedoms.append((extra, _freedom(lower, diagonal)))
        return self._freedoms[-1][1]

    def _difference(self, alpha: float, units: FloatArray) -> FloatArray:
        """Return the lower triangle of ``R_f - αΣ`` in ``units``."""
        scale = 1.0 / np.sqrt(units)
        difference = self._sigma * -alpha
        difference += self._r_f
        difference *= scale[:, None]
        difference *= scale
        return difference

    @contextmanager
    def _factored(
        self, extra: FloatArray | None, *matrices: FloatArray
    ) -> Iterator[list[FloatArray]]:
        """Give ``Σ + diag(extra)``, the first of the matrices, as its Cholesky factor.

        Lower triangles may be used up. They are restored afterwards.
        """
        if len(matrices[0]) <= _SMALL:
            yield self._factor([matrix.copy(order="F") for matrix in matrices], extra)
        else:
            with keep_in_upper(*matrices):
                yield self._factor(list(matrices), extra)

    def _factor(self, matrices: list[FloatArray], extra: FloatArray | None) -> list[FloatArray]:
        sigma = matrices[0]
        if extra is not None:
            np.einsum("ii->i", sigma)[:] += extra
        lower = cholesky(sigma, clean=len(sigma) <= _SMALL)
        if lower is None:
            raise ValueError(
                f"loading={self._loading} is too small to make the background covariance positive "
                "definite; raise it or use loading='auto'"
            )
        return [lower, *matrices[1:]]


def load(r_b: FloatArray, loading: str | float, target: Side, background: Side) -> LoadingRule:
    """Load a background covariance, given by its lower triangle, in place."""
    units = rules.loading_units(loading, target.spread, background.spread)
    if loading in ("none", "diagonal"):
        if cholesky(r_b.copy(order="F")) is not None:
            return LoadingRule(1.0, 0.0, units)
        if loading == "none":
            raise SingularBackgroundError(rank_of(r_b), len(r_b), background.n_samples)
    rule = rules.shrink_or_load(
        loading,
        units,
        background.n_samples,
        lambda: rules.traces(r_b, units),
        lambda: (rules.spectrum(r_b, units), None),
        background.spread.constant,
    )
    r_b *= rule.weight
    np.einsum("ii->i", r_b)[:] += rule.ridge * rule.units
    return rule


def lower_covariance(side: Side, overwrite: bool) -> FloatArray:
    """Return the covariance in Fortran order, valid in its lower triangle, free to be changed."""
    moments, constant = side.moments, side.spread.constant
    if overwrite:
        covariance = moments._take_covariance()
    else:
        covariance = np.asfortranarray(moments._lower() / moments.total_weight)
    if constant.any():
        covariance[constant, :] = 0.0  # what is there is rounding
        covariance[:, constant] = 0.0
    return covariance


def cholesky(a: FloatArray, clean: bool = True) -> FloatArray | None:
    """Return the lower Cholesky factor, in place, or None if ``a`` is singular to rounding.

    Without ``clean`` the upper triangle is left as it is.
    """
    diagonal = a.diagonal().copy()
    lower, failed = lapack.dpotrf(a, lower=1, clean=int(clean), overwrite_a=1)
    if failed:
        return None
    # L_jj² / a_jj is the share of feature j that the features before it do not explain: a
    # measure of rank that does not depend on the features' units.
    pivots = lower.diagonal() ** 2
    return None if (pivots <= 10.0 * len(a) * _EPS * diagonal).any() else lower


def rank_of(lower: FloatArray) -> int:
    """Return the numerical rank of a covariance given by its lower triangle."""
    diagonal = lower.diagonal()
    scale = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    values = eigvalsh(lower / np.multiply.outer(scale, scale), lower=True)
    return int((values > 10.0 * len(values) * _EPS * values[-1]).sum()) if values[-1] > 0 else 0


def _take_out(c: FloatArray, powers: FloatArray) -> None:
    """Make ``C`` have no part in the span of ``powers``, in place in its lower triangle."""
    # Outputs are uncorrelated with those of filters G if uᵀL⁻¹R_fG = 0. With P an orthonormal
    # basis of L⁻¹R_fG, that leaves
    #   (I - PPᵀ) C (I - PPᵀ) = C - PYᵀ - YPᵀ with Y = CP - ½P(PᵀCP).
    p = np.asfortranarray(np.linalg.qr(powers).Q)
    c_p = blas.dsymm(1.0, c, p, lower=1)
    y = np.asfortranarray(c_p - 0.5 * p @ (p.T @ c_p))
    blas.dsyr2k(-1.0, p, y, beta=1.0, c=c, lower=1, overwrite_c=1)


def _freedom(lower: FloatArray, diagonal: FloatArray) -> float:
    """Return ``tr((LLᵀ - D)(LLᵀ)⁻¹)``, the effective number of parameters. Uses up ``L``."""
    if not diagonal.any():
        return float(len(lower))
    # M - tr(D (LLᵀ)⁻¹) = M - ‖L⁻¹ D^½‖²
    inverse, _ = lapack.dtrtri(lower, lower=1, overwrite_c=1)
    if len(lower) <= _SMALL:
        return len(lower) - float(np.einsum("ij,ij,j->", inverse, inverse, diagonal))
    taken = 0.0
    for start in range(0, len(lower), 128):
        strip = np.tril(inverse[start:, start : start + 128])
        taken += float(np.einsum("ij,ij,j->", strip, strip, diagonal[start : start + 128]))
    return len(lower) - taken


# -- largest eigenpairs --------------------------------------------------------------------


def top(
    c: FloatArray,
    k: int,
    method: str,
    fall_back: bool,
    again: Callable[[], FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray, str]:
    """Return the ``k`` largest eigenpairs of a lower triangle, and how they were found.

    The triangle may be used up. If ``again`` makes it once more, that saves a copy.
    """
    if method == "iterative" and k < len(c) - 1:
        steps = max(len(c) // 8, 100) if fall_back else None
        found = _top_lanczos(c, k, steps)
        if found is not None and _nothing_larger(c if again else c.copy(order="F"), *found):
            return *found, "iterative"
        if not fall_back:
            raise ValueError(
                "solver='iterative' did not converge (the eigenvalues lie too close together); "
                "use solver='dense'"
            )
        if again and found is not None:
            c = again()
    return *top_dense(c, k), "dense"


def top_dense(c: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Return the ``k`` largest eigenpairs of a lower triangle, descending. Uses up the triangle."""
    values, vectors = rules.largest_eigenpairs(c, k)
    return values[::-1], np.asfortranarray(vectors[:, ::-1])


def _top_lanczos(c: FloatArray, k: int, steps: int | None) -> tuple[FloatArray, FloatArray] | None:
    """Return the ``k`` largest eigenpairs of a lower triangle, or None if not within ``steps``."""
    m = len(c)
    ncv = min(m, max(2 * k + 1, 20))
    operator = LinearOperator(
        (m, m), matvec=lambda v: blas.dsymv(1.0, c, v, lower=1), dtype=c.dtype
    )
    start = np.random.default_rng(0).standard_normal(m)
    limit = None if steps is None else max(steps // ncv, 2)
    try:
        values, vectors = eigsh(operator, k, which="LA", v0=start, ncv=ncv, tol=0, maxiter=limit)
    except ArpackNoConvergence:
        return None
    order = np.argsort(values)[::-1]
    return values[order], np.asfortranarray(vectors[:, order])


def _nothing_larger(c: FloatArray, values: FloatArray, vectors: FloatArray) -> bool:
    """Return whether no eigenvalue of a lower triangle is missing. Uses up the triangle."""
    # Lanczos can miss a copy of a repeated eigenvalue. If θI - (C - VΛVᵀ) is positive definite
    # for θ just above the last value found, nothing larger was missed.
    certificate = np.negative(c, out=c)
    for value, vector in zip(values, vectors.T, strict=True):
        blas.dsyr(value, vector, lower=1, a=certificate, overwrite_a=1)
    certificate[np.diag_indices_from(c)] += values[-1] + 1e-9 * values[0]
    return not lapack.dpotrf(certificate, lower=1, clean=0, overwrite_a=1)[1]
