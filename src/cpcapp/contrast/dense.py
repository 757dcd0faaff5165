"""The dense linear algebra of a contrast, on matrices of shape (n_features, n_features).

The contrast is written against `DenseAlgebra`, a dozen operations. `Lapack` has them for NumPy;
`cpcapp.moments.torch` has them for a GPU. What is as small as a few filters is NumPy everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigvalsh, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from cpcapp.contrast import loading as rules
from cpcapp.moments.moments import FloatArray, Moments

_EPS = float(np.finfo(np.float64).eps)
# Rows and columns copied across the diagonal at once.
_BLOCK = 128
# Matrices up to this order are copied whole, which is faster.
_SMALL = 128


class DenseAlgebra(Protocol):
    """What a contrast needs of whoever holds the two covariances.

    A matrix is whatever the implementation makes of it; filters, eigenvalues and diagonals are
    NumPy arrays. ``solver`` says how the last eigenpairs were found.
    """

    solver: str

    def covariance(self, moments: Any, constant: NDArray[np.bool_], overwrite: bool) -> Any:
        """Return the covariance, 0 for constant features, free to be changed."""

    def copy(self, a: Any) -> Any:
        """Return a copy."""

    def load(self, a: Any, weight: float, diagonal: FloatArray) -> None:
        """Make ``weight · A + diag(diagonal)`` of a matrix, in place."""

    def traces(self, a: Any, units: FloatArray) -> tuple[float, float]:
        """Return the traces of a matrix in units, and of its square."""

    def spectrum(self, a: Any, units: FloatArray) -> FloatArray:
        """Return the eigenvalues of a matrix in units."""

    def cholesky(self, a: Any) -> Any | None:
        """Return the lower factor, or None if singular to rounding. Uses up the matrix."""

    def rank(self, a: Any) -> int:
        """Return the numerical rank."""

    def reduce(self, a: Any, lower: Any) -> Any:
        """Return ``L⁻¹ A L⁻ᵀ``. Uses up the matrix."""

    def top(
        self, c: Any, k: int, again: Callable[[], Any] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ``k`` largest eigenpairs, descending. Uses up the matrix.

        If ``again`` makes the matrix once more, that may save a copy.
        """

    def largest(self, a: Any) -> float:
        """Return the largest eigenvalue. Uses up the matrix."""

    def solve(self, lower: Any, x: FloatArray, transposed: bool = False) -> FloatArray:
        """Return ``L⁻¹ x`` or ``L⁻ᵀ x``."""

    def times_lower(self, lower: Any, x: FloatArray) -> FloatArray:
        """Return ``L x``."""

    def times(self, c: Any, x: FloatArray) -> FloatArray:
        """Return ``C x``."""

    def subtract(self, c: Any, p: FloatArray, y: FloatArray) -> Any:
        """Return ``C - p yᵀ - y pᵀ``. Uses up the matrix."""

    def difference(self, a: Any, b: Any, alpha: float, units: FloatArray) -> Any:
        """Return ``A - αB`` in units, as a new matrix."""

    def freedom(self, lower: Any, diagonal: FloatArray) -> float:
        """Return ``tr((LLᵀ - D)(LLᵀ)⁻¹)``, the effective number of parameters. Uses up ``L``."""

    def kept(self, *matrices: Any) -> AbstractContextManager[list[Any]]:
        """Give matrices that may be used up without losing the ones given."""


class Lapack:
    """`DenseAlgebra` by LAPACK and ARPACK, in place.

    Matrices are in Fortran order and valid in their lower triangles.

    Parameters
    ----------
    solver : {"dense", "iterative"}
        How eigenpairs are found.
    fall_back : bool
        Whether the dense solver takes over where the iterative one does not converge.

    Examples
    --------
    >>> values, _ = Lapack().top(np.asfortranarray(np.diag([3.0, 1.0, 2.0])), 2)
    >>> values
    array([3., 2.])
    """

    def __init__(self, solver: str = "dense", fall_back: bool = True) -> None:
        self.solver, self._fall_back = solver, fall_back

    def covariance(
        self, moments: Moments, constant: NDArray[np.bool_], overwrite: bool
    ) -> FloatArray:
        """Return the covariance, 0 for constant features, free to be changed."""
        if overwrite:
            covariance = moments._take_covariance()
        else:
            covariance = np.asfortranarray(moments._lower() / moments.total_weight)
        if np.count_nonzero(constant):
            covariance[constant, :] = 0.0  # what is there is rounding
            covariance[:, constant] = 0.0
        return covariance

    def copy(self, a: FloatArray) -> FloatArray:
        """Return a copy."""
        return a.copy(order="F")

    def load(self, a: FloatArray, weight: float, diagonal: FloatArray) -> None:
        """Make ``weight · A + diag(diagonal)`` of a matrix, in place."""
        if weight != 1.0:
            a *= weight
        np.einsum("ii->i", a)[:] += diagonal

    def traces(self, a: FloatArray, units: FloatArray) -> tuple[float, float]:
        """Return the traces of a matrix in units, and of its square."""
        return rules.traces(a, units)

    def spectrum(self, a: FloatArray, units: FloatArray) -> FloatArray:
        """Return the eigenvalues of a matrix in units."""
        return rules.spectrum(a, units)

    def cholesky(self, a: FloatArray) -> FloatArray | None:
        """Return the lower factor, in place, or None if ``a`` is singular to rounding.

        Of a large matrix the upper triangle is left as it is.
        """
        return cholesky(a, clean=len(a) <= _SMALL)

    def rank(self, a: FloatArray) -> int:
        """Return the numerical rank."""
        return rank_of(a)

    def reduce(self, a: FloatArray, lower: FloatArray) -> FloatArray:
        """Return ``L⁻¹ A L⁻ᵀ``, in place."""
        c, _ = lapack.dsygst(a, lower, lower=1, overwrite_a=1)
        return np.asarray(c)

    def top(
        self, c: FloatArray, k: int, again: Callable[[], FloatArray] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ``k`` largest eigenpairs, descending. Uses up the matrix."""
        if self.solver == "iterative" and k < len(c) - 1:
            found = _top_lanczos(c, k, steps=max(len(c) // 8, 100) if self._fall_back else None)
            if found is not None and _nothing_larger(c if again else c.copy(order="F"), *found):
                return found
            if not self._fall_back:
                raise ValueError(
                    "solver='iterative' did not converge (the eigenvalues lie too close together); "
                    "use solver='dense'"
                )
            if again and found is not None:
                c = again()
        self.solver = "dense"
        return top_dense(c, k)

    def largest(self, a: FloatArray) -> float:
        """Return the largest eigenvalue. Uses up the matrix."""
        return rules.largest_eigenvalue(a)

    def solve(self, lower: FloatArray, x: FloatArray, transposed: bool = False) -> FloatArray:
        """Return ``L⁻¹ x`` or ``L⁻ᵀ x``."""
        solved, _ = lapack.dtrtrs(lower, x, lower=1, trans=int(transposed))
        return np.asarray(solved)

    def times_lower(self, lower: FloatArray, x: FloatArray) -> FloatArray:
        """Return ``L x``."""
        return np.asarray(blas.dtrmm(1.0, lower, x, lower=1))

    def times(self, c: FloatArray, x: FloatArray) -> FloatArray:
        """Return ``C x``."""
        return np.asarray(blas.dsymm(1.0, c, x, lower=1))

    def subtract(self, c: FloatArray, p: FloatArray, y: FloatArray) -> FloatArray:
        """Return ``C - p yᵀ - y pᵀ``, in place."""
        return np.asarray(blas.dsyr2k(-1.0, p, y, beta=1.0, c=c, lower=1, overwrite_c=1))

    def freedom(self, lower: FloatArray, diagonal: FloatArray) -> float:
        """Return ``tr((LLᵀ - D)(LLᵀ)⁻¹)``. Uses up ``L``."""
        if not np.count_nonzero(diagonal):
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

    def difference(
        self, a: FloatArray, b: FloatArray, alpha: float, units: FloatArray
    ) -> FloatArray:
        """Return the lower triangle of ``A - αB`` in units."""
        scale = 1.0 / np.sqrt(units)
        difference = b * -alpha
        difference += a
        difference *= scale[:, None]
        difference *= scale
        return difference

    @contextmanager
    def kept(self, *matrices: FloatArray) -> Iterator[list[FloatArray]]:
        """Give the matrices, and restore their lower triangles afterwards.

        From copies in the upper triangles: no memory is needed, unless they are small.
        """
        if len(matrices[0]) <= _SMALL:
            yield [self.copy(matrix) for matrix in matrices]
            return
        diagonals = [matrix.diagonal().copy() for matrix in matrices]
        for matrix in matrices:
            _mirror(matrix)
        yield list(matrices)
        for matrix, diagonal in zip(matrices, diagonals, strict=True):
            _mirror(matrix.T)
            matrix[np.diag_indices_from(matrix)] = diagonal


def cholesky(a: FloatArray, clean: bool = True) -> FloatArray | None:
    """Return the lower Cholesky factor, in place, or None if ``a`` is singular to rounding.

    Without ``clean`` the upper triangle is left as it is.
    """
    diagonal = a.diagonal().copy()
    lower, failed = lapack.dpotrf(a, lower=1, clean=int(clean), overwrite_a=1)
    return lower if not failed and has_full_rank(lower.diagonal(), diagonal) else None


def has_full_rank(factor_diagonal: FloatArray, diagonal: FloatArray) -> bool:
    """Return whether a Cholesky factor is that of a matrix of full rank, to rounding."""
    # L_jj² / a_jj is the share of feature j that the features before it do not explain: a
    # measure of rank that does not depend on the features' units.
    return not (factor_diagonal**2 <= 10.0 * len(diagonal) * _EPS * diagonal).any()


def rank_of(lower: FloatArray) -> int:
    """Return the numerical rank of a covariance given by its lower triangle."""
    diagonal = lower.diagonal()
    scale = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    return count_rank(eigvalsh(lower / np.multiply.outer(scale, scale), lower=True))


def count_rank(eigenvalues: FloatArray) -> int:
    """Return how many of ascending eigenvalues are more than rounding.

    Examples
    --------
    >>> count_rank(np.array([1e-20, 0.5, 1.0]))
    2
    """
    largest = float(eigenvalues[-1])
    if largest <= 0.0:
        return 0
    return int((eigenvalues > 10.0 * len(eigenvalues) * _EPS * largest).sum())


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


def _mirror(matrix: FloatArray) -> None:
    """Copy what is below the diagonal to above it."""
    for start in range(0, len(matrix), _BLOCK):
        stop = start + _BLOCK
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T
        corner = matrix[start:stop, start:stop]
        above = np.tri(len(corner), k=-1, dtype=bool).T
        np.copyto(corner, corner.T.copy(), where=above)
