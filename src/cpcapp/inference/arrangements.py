"""Rows divided into two sets in many ways, and the largest contrast of each pair of sets."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh, lapack, qr
from scipy.sparse.linalg import eigsh

from cpcapp.contrast.loading import oas_shrinkage
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample

# Share of both sets' variance in the units. Without it, a feature that hardly varies in the
# background by chance would decide.
_SHARE_OF_BOTH = 0.1
# Of rows of variance 1: less is rounding.
_CONSTANT = 1e-10
_RIDGE = 1e-9
# From so many features on Lanczos is faster.
_LANCZOS_FROM = 200


@dataclass(frozen=True)
class Side:
    """Rows that lie in one set, the roots of their weights, and the design that they lose."""

    rows: NDArray[np.intp]
    root: FloatArray
    design: FloatArray  # orthonormal columns

    @property
    def degrees(self) -> float:
        """What to divide a scatter by: a weight of w counts as w rows (Kish)."""
        squares = self.root**2
        total = squares.sum()
        return float(total - self.design.shape[1] * (squares @ squares) / total)

    def residuals(self, Z: FloatArray) -> FloatArray:
        """Return the rows without the design, so that their scatter is the covariance."""
        rows = Z[self.rows] * self.root[:, None]
        rows -= self.design @ (self.design.T @ rows)
        return np.asarray(rows / np.sqrt(self.degrees))

    def residuals_adjoint(self, U: FloatArray, n: int) -> FloatArray:
        """Return ``A`` with ``AᵀZ = Uᵀ residuals(Z)`` for all ``Z`` of ``n`` rows."""
        A = np.zeros((n, U.shape[1]))
        left = U - self.design @ (self.design.T @ U)
        A[self.rows] = left * (self.root / np.sqrt(self.degrees))[:, None]
        return A

    def fitted(self, Z: FloatArray) -> FloatArray:
        """Return the coefficients of the design, without a copy of the rows."""
        scattered = np.zeros((len(Z), self.design.shape[1]))
        scattered[self.rows] = self.design * self.root[:, None]
        return np.asarray(scattered.T @ Z)

    def variance(self, Z: FloatArray) -> FloatArray:
        """Return the variance of each feature."""
        rows, fitted = Z[self.rows], self.fitted(Z)
        squares = np.einsum("i,ij,ij->j", self.root**2, rows, rows)
        squares -= np.einsum("ij,ij->j", fitted, fitted)
        return np.asarray(np.maximum(squares, 0.0) / self.degrees)


Sides = tuple[Side, Side]


class Arrangements:
    """The two sets as they are, and shuffled.

    Rows get the weights and designs of the places where they come to lie. Groups move whole, with
    their weights and covariates; where both sets have not the same columns, only with a mean.
    """

    def __init__(self, target: Sample, background: Sample) -> None:
        self.n_target = len(target)
        self.weights = np.concatenate([target.weights, background.weights])
        self.groups = np.concatenate([target.groups, background.groups + target.n_groups])
        self.n_groups = target.n_groups, background.n_groups
        self.grouped = sum(self.n_groups) < len(self.weights)
        self.designs = [orthonormal_design(s.design, s.weights) for s in (target, background)]
        self.columns = np.ones((len(self.weights), 1))
        if target.design.shape[1] == background.design.shape[1]:
            self.columns = np.concatenate([target.design, background.design])

    def require(self, false_alarm_rate: float) -> None:
        """Raise ``ValueError`` if there are too few ways to divide the rows into two sets."""
        ways = comb(sum(self.n_groups), self.n_groups[0])
        if ways < 1.0 / false_alarm_rate:
            raise ValueError(
                f"{self.n_groups[0]} target and {self.n_groups[1]} background units (rows or "
                f"groups) can be arranged in {ways} ways only, too few for "
                f"false_alarm_rate={false_alarm_rate:g}; it must be at least {1.0 / ways:.2g}, or "
                "give n_components as a number"
            )

    def observed(self) -> Sides:
        """Return the two sets as they are."""
        n, root = self.n_target, np.sqrt(self.weights)
        order = np.arange(len(root))
        return Side(order[:n], root[:n], self.designs[0]), Side(
            order[n:], root[n:], self.designs[1]
        )

    def shuffle(self, rng: np.random.Generator) -> Sides:
        """Return two shuffled sets."""
        if not self.grouped:
            return self._split(rng.permutation(len(self.weights)), self.n_target)
        moved = rng.permutation(sum(self.n_groups)) < self.n_groups[0]
        in_target = moved[self.groups]
        return self._split(np.argsort(~in_target, kind="stable"), int(in_target.sum()))

    def _split(self, order: NDArray[np.intp], n: int) -> Sides:
        root = np.sqrt(self.weights[order] if self.grouped else self.weights)
        designs = self.designs
        if self.grouped:
            parts = slice(n), slice(n, None)
            designs = [orthonormal_design(self.columns[order][i], root[i] ** 2) for i in parts]
        return Side(order[:n], root[:n], designs[0]), Side(order[n:], root[n:], designs[1])


def orthonormal_design(design: FloatArray, weights: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the columns of a weighted design."""
    Q, R, _ = qr(design * np.sqrt(weights)[:, None], mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(R))
    return np.asarray(Q[:, diagonal > max(design.shape) * np.finfo(float).eps * diagonal[0]])


class LargestContrast:
    """Finds the largest λ of ``R_f v = λ B v``, ``B`` the loaded covariance of the background.

    Units are nine tenths of the background's variance of each feature and one tenth of that of
    both sets, of the ``whole`` rows: those before any direction was taken out. In these units
    ``B = (1 - s) R_b + s tr(R_b)/p I``, with the share s of OAS.

    Examples
    --------
    >>> from cpcapp.moments.sample import make_sample
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(400, 3)) * [3, 1, 1], rng.normal(size=(400, 3))
    >>> sides = Arrangements(make_sample(X), make_sample(B)).observed()
    >>> filters, atoms = LargestContrast(np.vstack([X, B])).above(sides, 4.0)
    >>> np.abs(filters).argmax(axis=0), (filters.T @ atoms).round(9)
    (array([0]), array([[1.]]))
    """

    def __init__(self, Z: FloatArray, whole: FloatArray | None = None) -> None:
        self.Z = Z
        self.whole = Z if whole is None else whole
        centred = self.whole - self.whole.mean(axis=0)
        self.pooled = np.einsum("ij,ij->j", centred, centred) / len(Z)
        self.varies = Z.var(axis=0) > _CONSTANT
        fourth = np.mean(np.square(np.square(centred, out=centred), out=centred), axis=0)
        squared = np.where(self.pooled > _CONSTANT, self.pooled, 1.0) ** 2
        self.excess = np.maximum(fourth / squared - 3.0, 0.0)
        self.total = Z.T @ Z if Z.shape[1] <= len(Z) else None

    def value(self, sides: Sides) -> float:
        """Return the largest contrast."""
        if self.total is None:
            inner, ridge = self._in_rows(sides)[:2]
            return _largest(inner) / ridge
        R_f, B, _ = self._in_features(sides)
        return _largest(R_f, B)

    def above(self, sides: Sides, bound: float) -> tuple[FloatArray, FloatArray]:
        """Return filters and atoms of all contrasts above a bound, the largest first."""
        if self.total is not None:
            R_f, B, scale = self._in_features(sides)
            V = eigh(R_f, B, subset_by_value=(bound, np.inf), check_finite=False)[1][:, ::-1]
            return V * scale[:, None], _divide(B @ V, scale)
        inner, ridge, scale, weight, solved = self._in_rows(sides)
        values, U = eigh(inner, subset_by_value=(ridge * bound, np.inf), check_finite=False)
        # B V = XᵀU and VᵀBV = I
        U = (U * np.sqrt(ridge / values))[:, ::-1]
        n, (f, b) = len(self.Z), sides
        atoms = f.residuals_adjoint(U, n)
        filters = (atoms - weight * b.residuals_adjoint(solved @ U, n)) / ridge
        scaled = self.Z * scale
        return (scaled.T @ filters) * scale[:, None], _divide(scaled.T @ atoms, scale)

    def _in_features(self, sides: Sides) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ``R_f`` and ``B`` in units, and what features were multiplied by for that."""
        R_f, R_b = self._covariances(sides)
        scale = self._scale(sides[1])
        for R in (R_f, R_b):
            R *= scale
            R *= scale[:, None]
        p = len(R_b)
        weight, ridge = _shrink(np.trace(R_b), np.vdot(R_b, R_b), len(sides[1].rows), p)
        R_b *= weight
        R_b[np.diag_indices(p)] += ridge
        return R_f, R_b, scale

    def _covariances(self, sides: Sides) -> tuple[FloatArray, FloatArray]:
        """Return both covariances, that of the larger set by difference if weights are equal."""
        assert self.total is not None
        equal = all((side.root == 1.0).all() for side in sides)
        small = int(len(sides[1].rows) < len(sides[0].rows))
        scatters = [self.total, self.total]
        for i in (small,) if equal else (0, 1):
            rows = self.Z[sides[i].rows]
            rows = rows if equal else rows * sides[i].root[:, None]
            scatters[i] = rows.T @ rows
        if equal:
            scatters[1 - small] = self.total - scatters[small]
        fitted = [side.fitted(self.Z) for side in sides]
        R_f, R_b = (
            (scatter - b.T @ b) / side.degrees
            for scatter, b, side in zip(scatters, fitted, sides, strict=True)
        )
        return R_f, R_b

    def _in_rows(self, sides: Sides) -> tuple[FloatArray, float, FloatArray, float, FloatArray]:
        """Do the same with inner products of rows, where there are fewer of them than features.

        With ``B = c YᵀY + δI``, the largest eigenvalues of ``XᵀX`` relative to ``B`` are those of
        ``X B⁻¹ Xᵀ = (XXᵀ - c XYᵀ (c YYᵀ + δI)⁻¹ YXᵀ) / δ``. Returns what is in brackets, δ, the
        scale, c, and ``(c YYᵀ + δI)⁻¹ YXᵀ``.
        """
        f, b = sides
        scale = self._scale(b)
        scaled = self.Z * scale
        inner = scaled @ scaled.T
        ZX, ZY = f.residuals(inner).T, b.residuals(inner).T
        XX, YX, YY = f.residuals(ZX), b.residuals(ZX), b.residuals(ZY)
        weight, ridge = _shrink(np.trace(YY), np.vdot(YY, YY), len(YY), self.Z.shape[1])
        YY *= weight
        YY[np.diag_indices(len(YY))] += ridge
        solved = cho_solve(cho_factor(YY, check_finite=False), YX, check_finite=False)
        XX -= weight * (YX.T @ solved)
        return XX, ridge, scale, weight, solved

    def _scale(self, background: Side) -> FloatArray:
        """Return what features are multiplied by; 0 for those that do not vary at all."""
        variance = background.variance(self.whole)
        units = (1.0 - _SHARE_OF_BOTH) * variance + _SHARE_OF_BOTH * self.pooled
        # Var(s²)/s⁴ is (κ - 1)/n. What tails add to it is how unsure a variance is: of 1, as that
        # of a single 1 among zeros, where twice both sets' is the most that a set can have.
        unsure = np.minimum(self.excess / len(background.rows), 1.0)
        units += unsure * (2.0 * self.pooled - units)
        return np.where(self.varies, 1.0 / np.sqrt(np.where(self.varies, units, 1.0)), 0.0)


def _largest(A: FloatArray, B: FloatArray | None = None) -> float:
    """Return the largest λ of ``A v = λ B v``, where B may be the identity."""
    p = len(A)
    if B is None or p < _LANCZOS_FROM:
        top = (p - 1, p - 1)
        return float(eigh(A, B, eigvals_only=True, subset_by_index=top, check_finite=False)[0])
    # C = L⁻¹AL⁻ᵀ, of which LAPACK gives the lower triangle
    L = lapack.dpotrf(B, lower=1)[0]
    C = np.tril(lapack.dsygst(A, L, lower=1)[0])
    C += np.tril(C, -1).T
    return float(eigsh(C, k=1, which="LA", v0=np.ones(p), tol=1e-5, return_eigenvectors=False)[0])


def _shrink(trace: Any, square: Any, n: int, p: int) -> tuple[float, float]:
    """Return the weight of the covariance, and what is added to its diagonal."""
    share = oas_shrinkage(float(trace), float(square), n, p) if trace > 0.0 else 1.0
    return 1.0 - share, share * float(trace) / p + _RIDGE


def _divide(atoms: FloatArray, scale: FloatArray) -> FloatArray:
    return np.asarray(
        atoms * np.where(scale > 0.0, 1.0 / np.where(scale > 0.0, scale, 1.0), 0.0)[:, None]
    )
