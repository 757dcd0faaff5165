"""Eigenpairs of two covariances in memory: by LAPACK, by Lanczos, or on a device.

`Dense`, `Lanczos`, `OnDevice` and `cpcapp.contrast.matrix_free.MatrixFree` hold ``F`` and ``B``, the
covariances of target and background in some coordinates, and answer the same few questions.
Eigenvectors are NumPy arrays everywhere.
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


class Dense:
    """By LAPACK. Matrices are in Fortran order and valid in their lower triangles.

    Without a background ``B`` is the identity, which is PCA. ``lift`` turns vectors into those of
    features.
    """

    # Whether what is found for a bound that is only tried is as exact as what is returned.
    tries_exactly = True

    def __init__(
        self, f: Any, b: Any = None, lift: Callable[[FloatArray], FloatArray] = np.asarray
    ):
        self.f, self.b, self.lift, self.size = f, b, lift, int(f.shape[1])

    def difference(self, alpha: float) -> FloatArray:
        """Return ``F - αB`` as a new matrix."""
        difference = self.b * -alpha
        difference += self.f
        return np.asarray(difference)

    def bounded(
        self, bound: float, otherwise: float, k: int, last: tuple[float, FloatArray] | None = None
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the least ridge for which no eigenvalue exceeds the bound, and the eigenpairs.

        Where none does anyway, the ridge is ``otherwise``. ``last`` holds ridge and vectors of a
        lower bound.
        """
        ridge = self.least_ridge(bound, last)
        ridge = ridge if ridge > LEAST_RIDGE else otherwise
        start = None if last is None else last[1]
        return ridge, *self.top(1.0, ridge, k, start, 1e-10)

    def least_ridge(self, bound: float, _: Any = None) -> float:
        # F v = c (B + ρI) v is (F - cB) v = cρ v.
        values, _, failed = lapack.dsyevd(
            self.difference(bound), compute_v=0, lower=1, overwrite_a=1
        )
        if failed:
            raise np.linalg.LinAlgError(f"LAPACK's dsyevd gave {failed}")
        return float(values[-1]) / bound

    def top(self, weight: float, ridge: float, k: int, *_: Any) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F v = λ (wB + rI) v``, descending."""
        if self.b is None:
            return largest_eigenpairs(self.f.copy(order="F"), k)
        # C = L⁻¹ F L⁻ᵀ with LLᵀ = wB + rI: F v = λ LLᵀ v becomes C u = λ u with v = L⁻ᵀ u.
        lower = cholesky(self.loaded(weight, ridge))
        values, u = largest_eigenpairs(lapack.dsygst(self.f, lower, lower=1)[0], k)
        return values, lapack.dtrtrs(lower, u, lower=1, trans=1)[0]

    def loaded(self, weight: float, ridge: float) -> FloatArray:
        """Return ``wB + rI`` as a new matrix."""
        loaded = np.zeros_like(self.f) if self.b is None else weight * self.b
        np.einsum("ii->i", loaded)[:] += ridge
        return loaded

    def misses_none(self, weight: float, ridge: float, pairs: Pairs) -> bool:
        """Return whether `top` is known to have missed no larger eigenvalue."""
        return True

    def times_background(self, vectors: FloatArray) -> FloatArray:
        """Return ``B v``."""
        return np.asarray(blas.dsymm(1.0, self.b, vectors, lower=1))

    def trace_of_square(self) -> float:
        """Return ``tr B²``."""
        diagonal = self.b.diagonal()
        below = sum(float(np.vdot(c, c)) for c in (self.b[j + 1 :, j] for j in range(self.size)))
        return 2.0 * below + float(diagonal @ diagonal)

    def rank(self, covariance: Any) -> int | None:
        """Return the numerical rank of ``F`` or ``B``, or None if that is not known."""
        return rank_of(covariance)


class Lanczos(Dense):
    """By Lanczos, with a certificate that nothing larger was missed."""

    def bounded(
        self, bound: float, otherwise: float, k: int, last: tuple[float, FloatArray] | None = None
    ) -> tuple[float, FloatArray, FloatArray]:
        found = super().bounded(bound, otherwise, k, last)
        if found[1][0] > bound * (1.0 + 1e-6):
            raise NotConvergedError  # the largest eigenvalue of the difference was missed
        return found

    def least_ridge(self, bound: float, last: tuple[float, FloatArray] | None = None) -> float:
        def factor(ridge: float) -> FloatArray | None:
            shifted = self.loaded(bound, bound * ridge)
            shifted -= self.f
            lower, failed = lapack.dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
            return None if failed else lower

        # No λ is above c where c(B + rI) - F is positive definite.
        if factor(LEAST_RIDGE) is not None:
            return 0.0
        # Else cρ is the largest eigenvalue of F - cB.
        lower = None if last is None else factor(last[0])
        if last is None or lower is None:
            difference = self.difference(bound)
            values, _ = lanczos(
                lambda v: blas.dsymv(1.0, difference, v, lower=1), self.size, 1, tolerance=1e-7
            )
            return float(values[0]) / bound
        # Of the inverse around a shift above all eigenvalues Lanczos sees the largest at once.
        values, _ = lanczos(
            lambda v: blas.dtrsv(lower, blas.dtrsv(lower, v, lower=1), lower=1, trans=1),
            self.size,
            1,
            last[1][:, :1],
            1e-6,
        )
        return float(last[0] - 1.0 / (values[0] * bound))

    def top(
        self,
        weight: float,
        ridge: float,
        k: int,
        start: FloatArray | None = None,
        tolerance: float = 0.0,
    ) -> Pairs:
        if self.b is None:
            return lanczos(lambda v: blas.dsymv(1.0, self.f, v, lower=1), self.size, k)
        lower = cholesky(self.loaded(weight, ridge))

        def times(u: FloatArray) -> FloatArray:
            v = blas.dtrsv(lower, u, lower=1, trans=1)
            return np.asarray(blas.dtrsv(lower, blas.dsymv(1.0, self.f, v, lower=1), lower=1))

        first = None if start is None else blas.dtrmm(1.0, lower, start, lower=1, trans_a=1)
        values, u = lanczos(times, self.size, k, first, tolerance)
        return values, lapack.dtrtrs(lower, u, lower=1, trans=1)[0]

    def misses_none(self, weight: float, ridge: float, pairs: Pairs) -> bool:
        # Lanczos can miss a copy of a repeated eigenvalue. θ(wB + rI) - F, with θ just above the
        # last value and what was found taken out, then has a negative eigenvalue.
        values, vectors = pairs
        atoms = ridge * vectors
        if self.b is not None:
            atoms += weight * self.times_background(vectors)
        limit = values[-1] + _CERTIFIED * values[0]
        certificate = self.loaded(weight * limit, ridge * limit)
        certificate -= self.f
        for share, atom in zip(values - values[-1] + values[0], atoms.T, strict=True):
            blas.dsyr(share, atom, lower=1, a=certificate, overwrite_a=1)
        return not lapack.dpotrf(certificate, lower=1, clean=0, overwrite_a=1)[1]


class OnDevice(Dense):
    """By torch, for full matrices on a device."""

    def least_ridge(self, bound: float, _: Any = None) -> float:
        from torch import linalg

        return float(linalg.eigvalsh(self.f - bound * self.b)[-1]) / bound

    def top(self, weight: float, ridge: float, k: int, *_: Any) -> Pairs:
        from torch import linalg

        if self.b is None:
            values, vectors = linalg.eigh(self.f)
        else:
            loaded = weight * self.b
            loaded.diagonal().add_(ridge)
            lower, failed = linalg.cholesky_ex(loaded)
            if int(failed) or not _has_full_rank(*map(_down, (lower.diag(), loaded.diag()))):
                raise SingularError
            half = linalg.solve_triangular(lower, self.f, upper=False)
            c = linalg.solve_triangular(lower, half.T, upper=False)
            values, u = linalg.eigh((c + c.T) / 2.0)
            vectors = linalg.solve_triangular(lower.T, u, upper=True)
        return _down(values[-k:].flip(0)), _down(vectors[:, -k:].flip(1))

    def times_background(self, vectors: FloatArray) -> FloatArray:
        return _down(self.b @ self.b.new_tensor(vectors))

    def trace_of_square(self) -> float:
        return float((self.b * self.b).sum())

    def rank(self, covariance: Any) -> int:
        return rank_of(_down(covariance))


def scaled_covariance(moments: Moments, scale: FloatArray, overwrite: bool = False) -> FloatArray:
    """Return the covariance of features that were multiplied with ``scale``, for `Dense`."""
    if overwrite:
        covariance = moments._take_covariance()
    else:
        covariance = np.asfortranarray(moments._lower() / moments.total_weight)
    covariance *= scale[:, None]
    covariance *= scale
    return covariance


def covariance_on_device(moments: Any, scale: FloatArray, device: Any) -> Any:
    """Return the same for `OnDevice`."""
    from cpcapp.moments import torch as backend

    device = backend.check_device(device)
    if isinstance(moments, Moments):
        moments = backend.DeviceMoments.of(moments, device)
    units = backend.torch.from_numpy(scale).to(device)
    return moments.covariance().to(device) * units[:, None] * units


def _down(values: Any) -> FloatArray:
    return np.asarray(values.cpu().numpy())


def cholesky(a: FloatArray) -> FloatArray:
    """Return the lower Cholesky factor, in place; `SingularError` if singular to rounding."""
    diagonal = a.diagonal().copy()
    lower, failed = lapack.dpotrf(a, lower=1, overwrite_a=1)
    if failed or not _has_full_rank(lower.diagonal(), diagonal):
        raise SingularError
    return np.asarray(lower)


def _has_full_rank(factor_diagonal: FloatArray, diagonal: FloatArray) -> bool:
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


def lanczos(
    times: Callable[[FloatArray], FloatArray],
    n: int,
    k: int,
    start: FloatArray | None = None,
    tolerance: float = 0.0,
) -> Pairs:
    """Return the ``k`` largest eigenpairs of an operator, descending, unless LAPACK is faster."""
    first = np.random.default_rng(0).standard_normal(n) / n**0.5
    if start is not None:
        # Some of anything stays in: what is an eigenvector already leads to no other.
        first = 0.01 * first + (start / np.linalg.norm(start, axis=0)).sum(axis=1)
    basis = min(n, max(2 * k + 1, 20))
    operator = LinearOperator((n, n), matvec=times, dtype=np.float64)
    restarts = max(max(n // 8, 100) // basis, 2)
    try:
        values, vectors = eigsh(
            operator, k, which="LA", v0=first, ncv=basis, tol=tolerance, maxiter=restarts
        )
    except ArpackNoConvergence:
        raise NotConvergedError from None
    order = np.argsort(values)[::-1]
    return values[order], np.asfortranarray(vectors[:, order])
