"""Eigenpairs of both covariances in memory, by LAPACK or on a device.

`Lapack` and `Device` have the same few functions. LAPACK's matrices are in Fortran order and valid
in their lower triangles, those of a device are full. Eigenvectors are NumPy arrays everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import blas, eigvalsh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from cpcapp.contrast.loading import LEAST_RIDGE
from cpcapp.moments.moments import FloatArray, Moments

_EPS = float(np.finfo(np.float64).eps)
# Up to this order, at most 8 MB, a copy is kept for the case that LAPACK misses eigenvalues.
_COPIED = 1000
# By how much of itself an eigenvalue may exceed the last one found before it counts as missed.
_CERTIFIED = 1e-9

Pairs = tuple[FloatArray, FloatArray]


class NotConvergedError(ArithmeticError):
    """An iteration ended before the eigenpairs were known, or missed one."""


class SingularError(ArithmeticError):
    """A matrix is not positive definite, to rounding."""


class Lapack:
    """By LAPACK, or by Lanczos with a certificate that nothing larger was missed.

    Parameters
    ----------
    iterative : bool
        Whether eigenpairs are found by Lanczos.
    fall_back : bool
        Whether LAPACK takes over, from then on, where Lanczos does not converge.
    """

    def __init__(self, iterative: bool = False, fall_back: bool = False) -> None:
        self.iterative, self._fall_back = iterative, fall_back

    def covariance(
        self, moments: Moments, scale: FloatArray, overwrite: bool = False
    ) -> FloatArray:
        """Return the covariance of features that were multiplied with ``scale``."""
        if overwrite:
            covariance = moments._take_covariance()
        else:
            covariance = np.asfortranarray(moments._lower() / moments.total_weight)
        covariance *= scale[:, None]
        covariance *= scale
        return covariance

    def trace_of_square(self, a: FloatArray) -> float:
        """Return ``tr A²``."""
        diagonal = a.diagonal()
        below = sum(float(np.vdot(c, c)) for c in (a[j + 1 :, j] for j in range(len(a))))
        return 2.0 * below + float(diagonal @ diagonal)

    def rank(self, a: FloatArray) -> int:
        """Return the numerical rank of a covariance."""
        return rank_of(a)

    def times(self, a: FloatArray, vectors: FloatArray) -> FloatArray:
        """Return ``A v``."""
        return np.asarray(blas.dsymm(1.0, a, vectors, lower=1))

    def top_difference(self, f: FloatArray, b: FloatArray | None, alpha: float, k: int) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F - αB``, descending."""
        difference = f.copy(order="F") if b is None else _combined(f, b, -alpha)

        def iterate() -> Pairs:
            values, vectors = lanczos(lambda v: blas.dsymv(1.0, difference, v, lower=1), len(f), k)
            size = float(np.abs(values).max())
            certificate = -difference
            certificate[np.diag_indices(len(f))] += values[-1] + _CERTIFIED * size
            if not _is_definite(certificate, values - values[-1] + size, vectors):
                raise NotConvergedError
            return values, vectors

        return self._by_lanczos(k, len(f), iterate) or largest_eigenpairs(difference, k)

    def top_bounded(
        self,
        f: FloatArray,
        b: FloatArray,
        bound: float,
        k: int,
        otherwise: float,
        enough: float | None = None,
        start: FloatArray | None = None,
        rough: bool = False,
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the least ridge for a bound, and the ``k`` largest eigenpairs with it.

        No eigenvalue exceeds the bound with that ridge. Where none does anyway, it is
        ``otherwise``. ``enough`` is one that is known to be large enough.
        """
        ridge = self._least_ridge(f, b, bound, enough, start) or otherwise
        values, vectors = self.top_loaded(f, b, 1.0, ridge, k, start, 1e-10)
        if self.iterative and values[0] > bound * (1.0 + 1e-6):
            raise NotConvergedError  # Lanczos missed the largest eigenvalue of the difference
        return ridge, values, vectors

    def _least_ridge(
        self,
        f: FloatArray,
        b: FloatArray,
        bound: float,
        enough: float | None,
        start: FloatArray | None,
    ) -> float:
        # F v = c (B + ρI) v is (F - cB) v = cρ v.
        n = len(f)

        def factor(ridge: float) -> FloatArray | None:
            shifted = _loaded(b, bound, bound * ridge)
            shifted -= f
            lower, failed = lapack.dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
            return None if failed else lower

        # No λ is above c where c(B + rI) - F is positive definite.
        if factor(LEAST_RIDGE) is not None:
            return 0.0

        # Else cρ is the largest eigenvalue of F - cB.
        def iterate() -> Pairs:
            lower = None if enough is None else factor(enough)
            if enough is None or lower is None:
                difference = _combined(f, b, -bound)
                return lanczos(
                    lambda v: blas.dsymv(1.0, difference, v, lower=1), n, 1, tolerance=1e-7
                )
            # Of the inverse around a shift above all eigenvalues Lanczos sees the largest at once.
            values, vectors = lanczos(
                lambda v: blas.dtrsv(lower, blas.dtrsv(lower, v, lower=1), lower=1, trans=1),
                n,
                1,
                None if start is None else start[:, :1],
                1e-6,
            )
            return bound * enough - 1.0 / values, vectors

        found = self._by_lanczos(1, n, iterate)
        if found is not None:
            return max(float(found[0][0]) / bound, LEAST_RIDGE)
        return max(_largest_eigenvalue(_combined(f, b, -bound)) / bound, LEAST_RIDGE)

    def top_loaded(
        self,
        f: FloatArray,
        b: FloatArray,
        weight: float,
        ridge: float,
        k: int,
        start: FloatArray | None = None,
        tolerance: float = 0.0,
    ) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F v = λ (wB + rI) v``, descending.

        `certify` has to be asked whether one was missed.

        Raises
        ------
        SingularError
            If the loaded background is singular to rounding.
        """
        lower = cholesky(_loaded(b, weight, ridge))
        if lower is None:
            raise SingularError

        # C = L⁻¹ F L⁻ᵀ with LLᵀ = wB + rI: F v = λ LLᵀ v becomes C u = λ u with v = L⁻ᵀ u.
        def times(u: FloatArray) -> FloatArray:
            v = blas.dtrsv(lower, u, lower=1, trans=1)
            return np.asarray(blas.dtrsv(lower, blas.dsymv(1.0, f, v, lower=1), lower=1))

        def iterate() -> Pairs:
            first = None
            if start is not None:
                first = blas.dtrmm(1.0, lower, start, lower=1, trans_a=1)
            return lanczos(times, len(f), k, first, tolerance)

        found = self._by_lanczos(k, len(f), iterate)
        if found is None:
            found = largest_eigenpairs(lapack.dsygst(f, lower, lower=1)[0], k)
        values, u = found
        return values, lapack.dtrtrs(lower, u, lower=1, trans=1)[0]

    def certify(
        self,
        f: FloatArray,
        b: FloatArray,
        weight: float,
        ridge: float,
        values: FloatArray,
        vectors: FloatArray,
    ) -> bool:
        """Return whether `top_loaded` missed no eigenvalue above its last one."""
        # θ(wB + rI) - F with θ just above the last value, and what was found taken out.
        atoms = weight * self.times(b, vectors) + ridge * vectors
        limit = values[-1] + _CERTIFIED * values[0]
        certificate = _loaded(b, weight * limit, ridge * limit)
        certificate -= f
        return _is_definite(certificate, values - values[-1] + values[0], atoms)

    def _by_lanczos(self, k: int, n: int, iterate: Callable[[], Pairs]) -> Pairs | None:
        """Return what an iteration finds, or None if LAPACK has to find it."""
        if not self.iterative or k >= n - 1:
            return None
        try:
            return iterate()
        except NotConvergedError:
            if not self._fall_back:
                raise
            self.iterative = False
            return None


class Device:
    """The same on a device, by torch."""

    iterative = False

    def __init__(self, device: Any) -> None:
        from cpcapp.moments import torch as backend

        self._moments, self._torch = backend.DeviceMoments, backend.torch
        self._device = backend.check_device(device)

    def covariance(self, moments: Any, scale: FloatArray, overwrite: bool = False) -> Any:
        """Return the covariance of features that were multiplied with ``scale``."""
        if isinstance(moments, Moments):
            moments = self._moments.of(moments, self._device)
        units = self._up(scale)
        return moments.covariance().to(self._device) * units[:, None] * units

    def trace_of_square(self, a: Any) -> float:
        """Return ``tr A²``."""
        return float((a * a).sum())

    def rank(self, a: Any) -> int:
        """Return the numerical rank of a covariance."""
        return rank_of(a.cpu().numpy())

    def times(self, a: Any, vectors: FloatArray) -> FloatArray:
        """Return ``A v``."""
        return _down(a @ self._up(vectors))

    def top_difference(self, f: Any, b: Any | None, alpha: float, k: int) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F - αB``, descending."""
        values, vectors = self._torch.linalg.eigh(f if b is None else f - alpha * b)
        return _down(values[-k:].flip(0)), _down(vectors[:, -k:].flip(1))

    def top_bounded(
        self, f: Any, b: Any, bound: float, k: int, otherwise: float, *_: Any, rough: bool = False
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the least ridge for a bound, and the ``k`` largest eigenpairs with it."""
        theta = float(self._torch.linalg.eigvalsh(f - bound * b)[-1])
        ridge = theta / bound if theta > LEAST_RIDGE * bound else otherwise
        return ridge, *self.top_loaded(f, b, 1.0, ridge, k)

    def top_loaded(self, f: Any, b: Any, weight: float, ridge: float, k: int) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F v = λ (wB + rI) v``, descending."""
        linalg = self._torch.linalg
        loaded = weight * b
        loaded.diagonal().add_(ridge)
        lower, failed = linalg.cholesky_ex(loaded)
        if int(failed) or not has_full_rank(_down(lower.diagonal()), _down(loaded.diagonal())):
            raise SingularError
        half = linalg.solve_triangular(lower, f, upper=False)
        c = linalg.solve_triangular(lower, half.T, upper=False)
        values, u = linalg.eigh((c + c.T) / 2.0)
        vectors = linalg.solve_triangular(lower.T, u[:, -k:].flip(1), upper=True)
        return _down(values[-k:].flip(0)), _down(vectors)

    def _up(self, values: FloatArray) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values)).to(self._device)


def _down(values: Any) -> FloatArray:
    return np.asarray(values.cpu().numpy())


def _combined(a: FloatArray, b: FloatArray, factor: float) -> FloatArray:
    """Return ``A + factor · B`` as a new matrix."""
    combined = b * factor
    combined += a
    return combined


def _loaded(b: FloatArray, weight: float, ridge: float) -> FloatArray:
    """Return ``wB + rI`` as a new matrix."""
    loaded = weight * b
    np.einsum("ii->i", loaded)[:] += ridge
    return loaded


def cholesky(a: FloatArray) -> FloatArray | None:
    """Return the lower Cholesky factor, in place, or None if ``a`` is singular to rounding."""
    diagonal = a.diagonal().copy()
    lower, failed = lapack.dpotrf(a, lower=1, overwrite_a=1)
    return lower if not failed and has_full_rank(lower.diagonal(), diagonal) else None


def has_full_rank(factor_diagonal: FloatArray, diagonal: FloatArray) -> bool:
    """Return whether a Cholesky factor is that of a matrix of full rank, to rounding."""
    # L_jj² / a_jj is the share of feature j that the features before it do not explain: a
    # measure of rank that does not depend on the features' units.
    return not (factor_diagonal**2 <= 10.0 * len(diagonal) * _EPS * diagonal).any()


def rank_of(lower: FloatArray) -> int:
    """Return the numerical rank of a covariance given by its lower triangle.

    Examples
    --------
    >>> rank_of(np.diag([1e-20, 0.5, 0.0]))  # each feature in units of its own
    2
    """
    diagonal = lower.diagonal()
    scale = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    values = eigvalsh(lower / scale[:, None] / scale, lower=True)
    return int((values > 10.0 * len(values) * _EPS * values[-1]).sum()) if values[-1] > 0.0 else 0


def largest_eigenpairs(matrix: FloatArray, k: int) -> Pairs:
    """Return the ``k`` largest eigenpairs of a lower triangle, descending. Uses up the matrix.

    LAPACK's ``dsyevr`` without SciPy's checks, which take as long as a small problem.

    Examples
    --------
    >>> largest_eigenpairs(np.asfortranarray(np.diag([3.0, 1.0, 2.0])), 2)[0]
    array([3., 2.])
    """
    n = len(matrix)
    spare = matrix.copy(order="F") if n <= _COPIED else None
    work, integers, _ = lapack.dsyevr_lwork(n, lower=1)
    values, found, count, _, failed = lapack.dsyevr(
        matrix,
        range="I",
        lower=1,
        il=n - k + 1,
        iu=n,
        lwork=int(work),
        liwork=int(integers),
        overwrite_a=1,
    )
    if count < k or failed:
        # The bisection of dsyevr can lose a cluster of eigenvalues that differ by rounding, and
        # says nothing: for a target that is its own background, say.
        if spare is not None:
            values, found, failed = lapack.dsyevd(spare, lower=1, overwrite_a=1)
        if spare is None or failed:
            raise np.linalg.LinAlgError(
                f"LAPACK found {count} of {k} eigenvalues: the largest differ by rounding only"
            )
        values, found = values[n - k :], found[:, n - k :]
    return values[:k][::-1], np.asfortranarray(found[:, :k][:, ::-1])


def _largest_eigenvalue(matrix: FloatArray) -> float:
    """Return the largest eigenvalue of a lower triangle. Uses up the matrix."""
    values, _, failed = lapack.dsyevd(matrix, compute_v=0, lower=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's dsyevd gave {failed}")
    return float(values[-1])


def lanczos(
    times: Callable[[FloatArray], FloatArray],
    n: int,
    k: int,
    start: FloatArray | None = None,
    tolerance: float = 0.0,
    most: int = 0,
) -> Pairs:
    """Return the ``k`` largest eigenpairs of an operator, descending.

    By default it ends after so many steps that LAPACK is faster.
    """
    first = np.random.default_rng(0).standard_normal(n) / n**0.5
    if start is not None:
        # Some of anything stays in: what is an eigenvector already leads to no other.
        first = 0.01 * first + (start / np.linalg.norm(start, axis=0)).sum(axis=1)
    basis = min(n, max(2 * k + 1, 20))
    operator = LinearOperator((n, n), matvec=times, dtype=np.float64)
    restarts = max((most or max(n // 8, 100)) // basis, 2)
    try:
        values, vectors = eigsh(
            operator, k, which="LA", v0=first, ncv=basis, tol=tolerance, maxiter=restarts
        )
    except ArpackNoConvergence:
        raise NotConvergedError from None
    order = np.argsort(values)[::-1]
    return values[order], np.asfortranarray(vectors[:, order])


def _is_definite(certificate: FloatArray, weights: FloatArray, vectors: FloatArray) -> bool:
    """Return whether ``C + Σ g_i w_i w_iᵀ`` is positive definite. Uses up C."""
    # Lanczos can miss a copy of a repeated eigenvalue. With C = θB - A, θ just above the last value
    # found, and what was found taken out, C has a negative eigenvalue if one above θ was missed.
    for weight, vector in zip(weights, vectors.T, strict=True):
        blas.dsyr(weight, vector, lower=1, a=certificate, overwrite_a=1)
    return not lapack.dpotrf(certificate, lower=1, clean=0, overwrite_a=1)[1]
