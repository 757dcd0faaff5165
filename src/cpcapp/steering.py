"""Steered filters beside the plain ones, and what is made of both.

All of this happens in coordinates in which the loaded background is white: with ``Σ = LLᵀ`` a
filter ``f`` is ``a = Lᵀf``, and the target covariance is ``C = L⁻¹R_fL⁻ᵀ``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import eigh, solve_triangular

from cpcapp.dense_algebra import DenseAlgebra
from cpcapp.loading import count_steered
from cpcapp.moments import FloatArray


@dataclass(frozen=True)
class Steered:
    """Filters of ``R_f v = μ (Σ + S) v`` with ``Fᵀ(Σ + S)F = I``.

    ``freedom`` is the effective number of parameters that they take from the background.
    """

    filters: FloatArray
    contrasts: FloatArray
    steering: FloatArray
    freedom: float


@dataclass(frozen=True)
class Solution:
    """Filters with ``FᵀΣF = I`` and ``FᵀR_fF = diag(eigenvalues)``, and their atoms."""

    filters: FloatArray
    atoms: FloatArray
    eigenvalues: FloatArray


class _Maps(Protocol):
    """Anything with filters and atoms."""

    @property
    def filters(self) -> FloatArray: ...
    @property
    def atoms(self) -> FloatArray: ...


def solve_both(
    steered: Steered,
    plain: FloatArray,
    bound: float,
    lower: Any,
    c: Any,
    algebra: DenseAlgebra,
) -> tuple[int, Solution, Solution]:
    """Return how many steered filters hold, the solution by those alone, and the one to take.

    The one to take has the steered filters that hold, filled up with those of the largest contrast
    whose outputs over the target are uncorrelated with theirs. So its span grows with k. (Filters
    that are uncorrelated over the background instead would spend components on a larger contrast
    for what the steered ones show already.)

    Parameters
    ----------
    steered : Steered
    plain : ndarray of shape (k,)
        The largest contrasts there are.
    bound : float
    lower, c : matrices of shape (n_features, n_features)
        ``L`` and ``C``, as ``algebra`` has them. ``C`` is used up.
    algebra : DenseAlgebra
    """
    a = algebra.times_lower(lower, steered.filters, transposed=True)  # LᵀF
    n_steered = count_steered(steered.contrasts / (a**2).sum(axis=0), plain, bound)
    basis = np.asfortranarray(np.linalg.qr(a).Q)
    times = algebra.times(c, basis)  # CQ
    loud = _ritz(basis, times, lower, algebra)
    k = len(plain)
    if n_steered == k:
        return n_steered, loud, loud
    # The first columns of Q span the first of the steered filters. Outputs are uncorrelated with
    # theirs if uᵀCQ = 0. With P an orthonormal basis of CQ, that leaves
    #   (I - PPᵀ) C (I - PPᵀ) = C - PYᵀ - YPᵀ with Y = CP - ½P(PᵀCP).
    kept, product = basis[:, :n_steered], times[:, :n_steered]
    p = np.asfortranarray(np.linalg.qr(product).Q)
    c_p = algebra.times(c, p)
    y = np.asfortranarray(c_p - 0.5 * p @ (p.T @ c_p))
    values, u = algebra.top(algebra.subtract(c, p, y), k - n_steered)
    # Cu = (C - PYᵀ - YPᵀ)u + P(CP)ᵀu, since Pᵀu = 0.
    span, r = np.linalg.qr(np.concatenate([kept, u], axis=1))
    filled = np.concatenate([product, u * values + p @ (c_p.T @ u)], axis=1)
    filled = solve_triangular(r, filled.T, trans="T").T  # from [Q, u] to its orthonormal basis
    return n_steered, loud, _ritz(span, filled, lower, algebra)


def _ritz(basis: FloatArray, times: FloatArray, lower: Any, algebra: DenseAlgebra) -> Solution:
    """Solve ``R_f v = λΣv`` within the span of an orthonormal basis, given ``C`` times that."""
    values, y = np.linalg.eigh(basis.T @ times)
    values, y = values[::-1], y[:, ::-1]
    filters = algebra.solve(lower, np.asfortranarray(basis @ y))  # F = L⁻ᵀQy
    # The atoms from which the outputs predict the target best: R_fF(FᵀR_fF)⁻¹ = L CQy Λ⁻¹.
    atoms = algebra.times_lower(lower, np.asfortranarray(times @ (y / values)))
    return Solution(filters, atoms, values)


def restricted(
    filters: FloatArray, target_outputs: FloatArray, r_f_filters: FloatArray, sigma: FloatArray
) -> Solution:
    """Solve ``R_f v = λΣv`` within the span of given filters.

    Parameters
    ----------
    filters : ndarray of shape (n_features, k)
    target_outputs : ndarray of shape (k, k)
        ``FᵀR_fF``.
    r_f_filters : ndarray of shape (n_features, k)
        ``R_fF``.
    sigma : ndarray of shape (k, k)
        ``FᵀΣF``.

    Examples
    --------
    >>> found = restricted(np.eye(3)[:, :1], np.array([[8.0]]), np.array([[8.0], [4.0], [0.0]]),
    ...                    np.array([[2.0]]))
    >>> found.eigenvalues, (found.filters.T @ found.atoms).round(6)
    (array([4.]), array([[1.]]))
    """
    values, y = eigh(target_outputs, sigma)
    values, y = values[::-1], y[:, ::-1]
    return Solution(filters @ y, r_f_filters @ (y / values), values)


def output_correlations(one: _Maps, other: _Maps) -> FloatArray:
    """Return the canonical correlations of two solutions' outputs over the target, descending.

    Parameters
    ----------
    one, other : Solution or Contrast
        With ``R_fF(FᵀR_fF)⁻¹ = W``, in any scaling of the filters.

    Examples
    --------
    >>> eye = np.eye(3)
    >>> a = Solution(eye[:, :2], eye[:, :2], np.ones(2))
    >>> b = Solution(eye[:, 1:], eye[:, 1:], np.ones(2))
    >>> output_correlations(a, b)
    array([1., 0.])
    """
    # The eigenvalues of (F₁ᵀR_fF₁)⁻¹ F₁ᵀR_fF₂ (F₂ᵀR_fF₂)⁻¹ F₂ᵀR_fF₁ = W₁ᵀF₂ W₂ᵀF₁ are the squares.
    squares = np.linalg.eigvals((one.atoms.T @ other.filters) @ (other.atoms.T @ one.filters)).real
    return np.asarray(np.sqrt(np.clip(np.sort(squares)[::-1], 0.0, 1.0)))
