"""Rows divided into two sets in many ways, and the largest contrast of each pair of sets."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh, lapack, qr, solve_triangular
from scipy.sparse.linalg import eigsh

from cpcapp.contrast.loading import oas_shrinkage
from cpcapp.moments.moments import FloatArray
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
        return rows / np.sqrt(self.degrees)

    def residuals_adjoint(self, u: FloatArray, n: int) -> FloatArray:
        """Return ``a`` with ``aᵀZ = uᵀ residuals(Z)`` for all ``Z`` of ``n`` rows."""
        a = np.zeros(n)
        a[self.rows] = self.root * (u - self.design @ (self.design.T @ u)) / np.sqrt(self.degrees)
        return a

    def fitted(self, Z: FloatArray) -> FloatArray:
        """Return the coefficients of the design, without a copy of the rows."""
        scattered = np.zeros((len(Z), self.design.shape[1]))
        scattered[self.rows] = self.design * self.root[:, None]
        return np.asarray(scattered.T @ Z)


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
    both sets; in these units ``B = (1 - s) R_b + s tr(R_b)/p I``, with the share s of OAS.

    Examples
    --------
    >>> from cpcapp.moments.sample import make_sample
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(400, 3)) * [3, 1, 1], rng.normal(size=(400, 3))
    >>> sides = Arrangements(make_sample(X), make_sample(B)).observed()
    >>> value, filter_, atom = LargestContrast(np.vstack([X, B])).direction(sides)
    >>> np.abs(filter_).argmax(), bool(abs(filter_ @ atom - 1.0) < 1e-9)
    (np.int64(0), True)
    """

    def __init__(self, Z: FloatArray) -> None:
        self.Z = Z
        self.pooled = Z.var(axis=0)
        self.pooled[self.pooled < _CONSTANT] = 0.0
        self.total = Z.T @ Z if Z.shape[1] <= len(Z) else None

    def value(self, sides: Sides) -> float:
        """Return the largest contrast only."""
        return self._in_rows(sides)[0] if self.total is None else self._in_features(sides)[0]

    def direction(self, sides: Sides) -> tuple[float, FloatArray, FloatArray]:
        """Return the largest contrast, its filter and its atom."""
        value, make = self._in_rows(sides) if self.total is None else self._in_features(sides)
        return value, *make()

    def _in_features(self, sides: Sides) -> tuple[float, Any]:
        R_f, R_b = self._covariances(sides)
        p = len(R_b)
        scale = self._scale(R_b.diagonal())
        for R in (R_f, R_b):
            R *= scale
            R *= scale[:, None]
        weight, ridge = _shrink(np.trace(R_b), np.vdot(R_b, R_b), len(sides[1].rows), p)
        R_b *= weight
        R_b[np.diag_indices(p)] += ridge
        value, v = _top(R_f, R_b)
        return value, lambda: (v * scale, _divide(R_b @ v, scale))

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

    def _in_rows(self, sides: Sides) -> tuple[float, Any]:
        """Do the same with inner products of rows, where there are fewer of them than features.

        With ``B = c YᵀY + δI``, the largest eigenvalues of ``XᵀX`` relative to ``B`` are those of
        ``X B⁻¹ Xᵀ = (XXᵀ - c XYᵀ (c YYᵀ + δI)⁻¹ YXᵀ) / δ``.
        """
        f, b = sides
        n, p = self.Z.shape
        rows = self.Z[b.rows]
        squares = np.einsum("i,ij,ij->j", b.root**2, rows, rows)
        squares -= np.einsum("ij,ij->j", *[b.fitted(self.Z)] * 2)
        scale = self._scale(squares / b.degrees)
        scaled = self.Z * scale
        inner = scaled @ scaled.T
        ZX, ZY = f.residuals(inner).T, b.residuals(inner).T
        XX, YX, YY = f.residuals(ZX), b.residuals(ZX), b.residuals(ZY)
        weight, ridge = _shrink(np.trace(YY), np.vdot(YY, YY), len(YY), p)
        YY *= weight
        YY[np.diag_indices(len(YY))] += ridge
        solved = cho_solve(cho_factor(YY, check_finite=False), YX, check_finite=False)
        XX -= weight * (YX.T @ solved)
        values, U = eigh(XX, subset_by_index=(len(XX) - 1, len(XX) - 1), check_finite=False)

        def direction() -> tuple[FloatArray, FloatArray]:
            # B v = Xᵀu and vᵀBv = 1
            u = U[:, 0] * np.sqrt(ridge / max(values[0], 1e-300))
            atom = f.residuals_adjoint(u, n)
            filter_ = (atom - weight * b.residuals_adjoint(solved @ u, n)) / ridge
            return (scaled.T @ filter_) * scale, _divide(scaled.T @ atom, scale)

        return float(values[0] / ridge), direction

    def _scale(self, variance: FloatArray) -> FloatArray:
        """Return what features are multiplied by; 0 for those that do not vary at all."""
        varies = self.pooled > 0.0
        units = (1.0 - _SHARE_OF_BOTH) * np.maximum(variance, 0.0) + _SHARE_OF_BOTH * self.pooled
        return np.where(varies, 1.0 / np.sqrt(np.where(varies, units, 1.0)), 0.0)


def _top(A: FloatArray, B: FloatArray) -> tuple[float, FloatArray]:
    """Return the largest λ of ``A v = λ B v`` and its v, with ``vᵀBv = 1``."""
    p = len(A)
    if p < _LANCZOS_FROM:
        values, V = eigh(A, B, subset_by_index=(p - 1, p - 1), check_finite=False)
        return float(values[0]), V[:, 0]
    # C = L⁻¹AL⁻ᵀ, of which LAPACK gives the lower triangle
    L = lapack.dpotrf(B, lower=1)[0]
    C = np.tril(lapack.dsygst(A, L, lower=1)[0])
    C += np.tril(C, -1).T
    values, U = eigsh(C, k=1, which="LA", v0=np.ones(p), tol=1e-5)
    return float(values[0]), solve_triangular(L, U[:, 0], lower=True, trans=1, check_finite=False)


def _shrink(trace: Any, square: Any, n: int, p: int) -> tuple[float, float]:
    """Return the weight of the covariance, and what is added to its diagonal."""
    share = oas_shrinkage(float(trace), float(square), n, p) if trace > 0.0 else 1.0
    return 1.0 - share, share * float(trace) / p + _RIDGE


def _divide(atom: FloatArray, scale: FloatArray) -> FloatArray:
    return np.where(scale > 0.0, atom / np.where(scale > 0.0, scale, 1.0), 0.0)
