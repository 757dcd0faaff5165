"""Eigenpairs of two covariances in memory: by LAPACK, by Lanczos, or on a device.

`Dense`, `Lanczos`, `OnDevice` and `MatrixFree` (of `cpcapp.contrast.matrix_free`) hold ``F`` and
``B``, the covariances of target and background in some coordinates, and answer the same questions.
Eigenvectors are NumPy arrays everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.linalg import blas, eigh, eigvalsh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from cpcapp.contrast.loading import LEAST_RIDGE
from cpcapp.moments.moments import FloatArray, Moments

_EPS = float(np.finfo(np.float64).eps)
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
    features, which are in squared ``units``.
    """

    solver = "dense"
    # Whether what is found for a bound that is only tried is as exact as what is returned.
    tries_exactly = True

    def __init__(
        self,
        covariances: Sequence[Any],
        units: FloatArray,
        lift: Callable[[FloatArray], FloatArray] = np.asarray,
    ) -> None:
        self.covariances, self.units, self.lift = covariances, units, lift
        self.f: Any = covariances[0]
        self.b: Any = covariances[1] if len(covariances) == 2 else None
        self.size = int(self.f.shape[1])

    def filters(self, vectors: FloatArray) -> FloatArray:
        """Return eigenvectors as filters of the features as they are."""
        return self.lift(vectors) / np.sqrt(self.units)[:, None]

    def atoms(self, vectors: FloatArray) -> FloatArray:
        """Return loaded covariances times eigenvectors as atoms."""
        return self.lift(vectors) * np.sqrt(self.units)[:, None]

    def difference(self, alpha: float) -> FloatArray:
        """Return ``F - αB`` as a new matrix."""
        difference = self.b * -alpha
        difference += self.f
        return np.asarray(difference)

    def bounded(
        self, bound: float, otherwise: float, k: int, tried: bool = True
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the least ridge for which no eigenvalue exceeds the bound, and the eigenpairs.

        Where none does anyway, the ridge is ``otherwise``. With ``tried`` more is not needed than
        to choose a bound.
        """
        ridge = self.least_ridge(bound)
        ridge = ridge if ridge > LEAST_RIDGE else otherwise
        return ridge, *self.top(1.0, ridge, k)

    def least_ridge(self, bound: float) -> float:
        """Return the least ridge, below 0 where no eigenvalue exceeds the bound without one."""
        # F v = c (B + ρI) v is (F - cB) v = cρ v.
        last = [self.size - 1] * 2
        options = {"lower": True, "overwrite_a": True, "check_finite": False}
        return float(eigvalsh(self.difference(bound), subset_by_index=last, **options)[0]) / bound

    def top(self, weight: float, ridge: float, k: int) -> Pairs:
        """Return the ``k`` largest eigenpairs of ``F v = λ (wB + rI) v``, descending."""
        if self.b is None:
            return largest_eigenpairs(self.f, k)
        # C = L⁻¹ F L⁻ᵀ with LLᵀ = wB + rI: F v = λ LLᵀ v becomes C u = λ u with v = L⁻ᵀ u.
        lower = cholesky(self.loaded(weight, ridge))
        values, u = largest_eigenpairs(lapack.dsygst(self.f, lower, lower=1)[0], k)
        return values, lapack.dtrtrs(lower, u, lower=1, trans=1)[0]

    def loaded(self, weight: float, ridge: float) -> FloatArray:
        """Return ``wB + rI`` as a new matrix."""
        loaded: FloatArray = np.zeros_like(self.f) if self.b is None else weight * self.b
        np.einsum("ii->i", loaded)[:] += ridge
        return loaded

    def times_background(self, vectors: FloatArray) -> FloatArray:
        """Return ``B v``."""
        return np.asarray(blas.dsymm(1.0, self.b, vectors, lower=1))

    def trace_of_square(self) -> float:
        """Return ``tr B²``."""
        return float(2.0 * (np.tril(self.b) ** 2).sum() - (self.b.diagonal() ** 2).sum())

    def rank(self, covariance: Any) -> int | None:
        """Return the numerical rank of ``F`` or ``B``, or None if that is not known."""
        return rank_of(covariance)


class Lanczos(Dense):
    """By Lanczos, with a certificate that nothing larger was missed."""

    solver = "iterative"
    # The ridge of a bound that was tried before; of a lower one it is enough for a higher one too.
    enough: float | None = None

    def bounded(
        self, bound: float, otherwise: float, k: int, tried: bool = True
    ) -> tuple[float, FloatArray, FloatArray]:
        """Check beside that the bound holds."""
        found = super().bounded(bound, otherwise, k, tried)
        if found[1][0] > bound * (1.0 + 1e-6):
            raise NotConvergedError  # the largest eigenvalue of the difference was missed
        self.enough = found[0]
        return found

    def least_ridge(self, bound: float) -> float:
        """Return the same by Lanczos, around a ridge that is enough if one is known."""

        def factor(ridge: float) -> FloatArray | None:
            shifted = self.loaded(bound, bound * ridge)
            shifted -= self.f
            lower, failed = lapack.dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
            return None if failed else lower

        # No λ is above c where c(B + rI) - F is positive definite.
        if factor(LEAST_RIDGE) is not None:
            return 0.0
        # Else cρ is the largest eigenvalue of F - cB.
        enough = self.enough
        lower = None if enough is None else factor(enough)
        if enough is None or lower is None:
            difference = self.difference(bound)
            values, _ = lanczos(
                lambda v: blas.dsymv(1.0, difference, v, lower=1), self.size, 1, 1e-7
            )
            return float(values[0]) / bound

        # Of the inverse around a shift above all eigenvalues Lanczos sees the largest at once.
        def invert(v: FloatArray) -> FloatArray:
            return np.asarray(blas.dtrsv(lower, blas.dtrsv(lower, v, lower=1), lower=1, trans=1))

        return float(enough - 1.0 / (lanczos(invert, self.size, 1, 1e-7)[0][0] * bound))

    def top(self, weight: float, ridge: float, k: int) -> Pairs:
        """Return the same by Lanczos."""
        if self.b is None:
            return lanczos(lambda v: blas.dsymv(1.0, self.f, v, lower=1), self.size, k)
        lower = cholesky(self.loaded(weight, ridge))

        def times(u: FloatArray) -> FloatArray:
            v = blas.dtrsv(lower, u, lower=1, trans=1)
            return np.asarray(blas.dtrsv(lower, blas.dsymv(1.0, self.f, v, lower=1), lower=1))

        values, u = lanczos(times, self.size, k)
        return values, lapack.dtrtrs(lower, u, lower=1, trans=1)[0]

    def certify(self, weight: float, ridge: float, pairs: Pairs) -> None:
        """Raise `NotConvergedError` unless a Cholesky factor proves that nothing was missed."""
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
        if lapack.dpotrf(certificate, lower=1, clean=0, overwrite_a=1)[1]:
            raise NotConvergedError


class OnDevice(Dense):
    """By torch, for full matrices on a device."""

    def least_ridge(self, bound: float) -> float:
        """Return the same by torch."""
        from torch import linalg

        return float(linalg.eigvalsh(self.f - bound * self.b)[-1]) / bound

    def top(self, weight: float, ridge: float, k: int) -> Pairs:
        """Return the same by torch."""
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
        """Return ``B v``."""
        return _down(self.b @ self.b.new_tensor(vectors))

    def trace_of_square(self) -> float:
        """Return ``tr B²``."""
        return float((self.b * self.b).sum())

    def rank(self, covariance: Any) -> int:
        """Return the numerical rank of ``F`` or ``B``."""
        return rank_of(_down(covariance))


def covariance_on_device(moments: Any, scale: FloatArray, device: Any) -> Any:
    """Return the covariance of features times ``scale`` as `OnDevice` takes it."""
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

    >>> rank_of(np.diag([1e-20, 0.5, 0.0]))  # each feature in units of its own
    2
    """
    diagonal = lower.diagonal()
    scale = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    values = eigvalsh(lower / scale[:, None] / scale, lower=True)
    return int((values > 10.0 * len(values) * _EPS * values[-1]).sum()) if values[-1] > 0.0 else 0


def largest_eigenpairs(matrix: FloatArray, k: int) -> Pairs:
    """Return the ``k`` largest eigenpairs of a lower triangle, descending.

    >>> largest_eigenpairs(np.diag([3.0, 1.0, 2.0]), 2)[0]
    array([3., 2.])
    """
    chosen = [len(matrix) - k, len(matrix) - 1]
    values, vectors = eigh(matrix, lower=True, subset_by_index=chosen, check_finite=False)
    if len(values) < k:
        # The bisection of LAPACK's dsyevr can lose a cluster of eigenvalues that differ by
        # rounding, and says nothing: for a target that is its own background, say.
        values, vectors = eigh(matrix, lower=True, driver="evd", check_finite=False)
    return values[: -k - 1 : -1], np.asfortranarray(vectors[:, : -k - 1 : -1])


def lanczos(
    times: Callable[[FloatArray], FloatArray], n: int, k: int, tolerance: float = 0.0
) -> Pairs:
    """Return the ``k`` largest eigenpairs of an operator, descending, unless LAPACK is faster."""
    basis = min(n, max(2 * k + 1, 20))
    try:
        values, vectors = eigsh(
            LinearOperator((n, n), matvec=times, dtype=np.float64),
            k,
            which="LA",
            v0=np.random.default_rng(0).standard_normal(n),
            ncv=basis,
            tol=tolerance,
            maxiter=max(max(n // 8, 100) // basis, 2),
        )
    except ArpackNoConvergence:
        raise NotConvergedError from None
    order = np.argsort(values)[::-1]
    return values[order], np.asfortranarray(vectors[:, order])
