"""Which of the directions with a large contrast to take: the loud ones.

The rule is here once, for every solver: a solver is a `Problem`, that is a few eigenproblems of the
two covariances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import lapack

from cpcapp.contrast import loading as rules
from cpcapp.moments.moments import FloatArray


@dataclass(frozen=True)
class Solution:
    """Filters with ``FᵀΣF = I`` and ``FᵀR_fF = diag(eigenvalues)``, and their atoms."""

    filters: FloatArray
    atoms: FloatArray
    eigenvalues: FloatArray


class Problem(Protocol):
    """``R_f v = λΣv``, with ``Σ`` the loaded background."""

    def largest(
        self, k: int, extra: FloatArray | None = None, without: FloatArray | None = None
    ) -> Solution:
        """Return the ``k`` filters of the largest contrast with ``Σ + diag(extra)``.

        Their outputs over the target are uncorrelated with those of the filters ``without``.
        """

    def loudness(self, alpha: float, units: FloatArray) -> float:
        """Return the largest eigenvalue θ of ``(R_f - αΣ) v = θ diag(units) v``."""

    def loudest(self, k: int, alpha: float, units: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ``k`` largest of these eigenvalues, and their vectors in columns."""

    def restrict(self, filters: FloatArray) -> Solution:
        """Solve the problem within the span of filters."""


@dataclass(frozen=True)
class Steering:
    """How filters were steered, so that it can be done again; see `steer`.

    Attributes
    ----------
    bound : float
        ``c``, that of cPCA's filters.
    n_loud, n_more : int
        How many filters are those of cPCA, and how many of ``R_f v = μ (Σ + rD) v``.
    ridge : ndarray of shape (n_features,)
        ``rD``.
    least_ridge : ndarray of shape (n_features,)
        A diagonal that each of the steered filters has beside ``Σ``, or more of it.
    units : ndarray of shape (n_features,)
        ``D``.
    """

    bound: float
    n_loud: int
    n_more: int
    ridge: FloatArray
    least_ridge: FloatArray
    units: FloatArray

    @property
    def n_steered(self) -> int:
        """How many dimensions of the span are those of steered filters."""
        return self.n_loud + self.n_more


@dataclass(frozen=True)
class Steered:
    """What steering made of a problem.

    Attributes
    ----------
    solution : Solution
    steering : Steering
    by_choice : bool
        Whether contrasts above the bound were given up. If not, all that was given up is too little
        for samples to tell.
    """

    solution: Solution
    steering: Steering
    by_choice: bool


def steer(
    problem: Problem, plain: FloatArray, n_target: int, n_background: int, units: FloatArray
) -> Steered:
    """Return filters that are louder than those of the largest contrast.

    Parameters
    ----------
    problem : Problem
    plain : ndarray of shape (k,)
        The largest contrasts there are, descending.
    n_target, n_background : int
        How many samples there are.
    units : ndarray of shape (n_features,)
        ``D``, the units that loudness is measured in.

    Notes
    -----
    Let ``c`` be the bound. If samples can tell that the largest contrast is above it, the
    first filters are those of cPCA at ``α = c``: the vectors with positive eigenvalues θ of
    ``(R_f - cΣ) v = θDv``. Each has a contrast above ``c``, and there are as many as
    contrasts above ``c``. More filters are then taken from ``R_f v = μ (Σ + rD) v`` with
    ``r = θ₁/c``, of which the first of those above is a solution too, as long as they keep two
    thirds of what the target could have more than the background (`loading.loses_contrast`); and
    last from ``R_f v = λΣv``.
    The outputs of all of these over the target are uncorrelated with those of the filters before.

    Otherwise all filters are those of ``R_f v = μ (Σ + rD) v`` with the ``r`` that makes the
    largest μ the least contrast that samples cannot tell from the largest.
    """
    k, bound = len(plain), rules.contrast_bound(n_target, len(units))
    alike = rules.indistinct_contrast(float(plain[0]), n_target, n_background)
    by_choice = alike > bound
    if by_choice:
        theta, filters = problem.loudest(int((plain > bound).sum()), bound, units)
        most, least = theta[0] / bound * units, theta[-1] / bound * units
    else:
        # R_f v = c (Σ + rD) v is (R_f - cΣ) v = c r D v.
        filters = np.empty((len(units), 0))
        most = least = problem.loudness(alike, units) / alike * units
    n_loud = n_steered = filters.shape[1]
    if n_steered < k:
        more = problem.largest(k - n_steered, most, filters if n_steered else None)
        # With Fᵀ(Σ + rD)F = I, what is left for Σ is 1 - fᵀrDf.
        inside = 1.0 - np.einsum("ij,ij,i->j", more.filters, more.filters, most)
        lost = rules.loses_contrast(more.eigenvalues / inside, plain[n_steered:])
        kept = int(lost.argmax()) if lost.any() else k - n_steered
        filters = np.concatenate([filters, more.filters[:, :kept]], axis=1)
        n_steered += kept
    if n_steered < k:
        rest = problem.largest(k - n_steered, None, filters if n_steered else None).filters
        filters = np.concatenate([filters, rest], axis=1)
    steering = Steering(bound, n_loud, n_steered - n_loud, most, least, units)
    return Steered(problem.restrict(filters), steering, by_choice)


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
    # Filters may come in lengths of any size.
    scale = 1.0 / np.sqrt(sigma.diagonal())
    both = scale[:, None] * scale
    # SciPy's checks take longer than the problem.
    values, y, failed = lapack.dsygvd(target_outputs * both, sigma * both)
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's dsygvd gave {failed}")
    values, y = values[::-1], y[:, ::-1] * scale[:, None]
    return Solution(filters.dot(y), r_f_filters.dot(y / values), values)


class _Maps(Protocol):
    """Anything with filters and atoms."""

    @property
    def filters(self) -> FloatArray: ...
    @property
    def atoms(self) -> FloatArray: ...


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
    squares = np.linalg.eigvals(_squared_correlations(one, other)).real
    return np.asarray(np.sqrt(np.clip(np.sort(squares)[::-1], 0.0, 1.0)))


def mean_squared_correlation(one: _Maps, other: _Maps) -> float:
    """Return the mean square of the canonical correlations, which takes less time.

    Examples
    --------
    >>> eye = np.eye(3)
    >>> a = Solution(eye[:, :2], eye[:, :2], np.ones(2))
    >>> b = Solution(eye[:, 1:], eye[:, 1:], np.ones(2))
    >>> mean_squared_correlation(a, b)
    0.5
    """
    matrix = _squared_correlations(one, other)
    return float(matrix.trace() / len(matrix))


def _squared_correlations(one: _Maps, other: _Maps) -> FloatArray:
    """Return a matrix whose eigenvalues are the squares of the canonical correlations."""
    # (F₁ᵀR_fF₁)⁻¹ F₁ᵀR_fF₂ (F₂ᵀR_fF₂)⁻¹ F₂ᵀR_fF₁ = W₁ᵀF₂ W₂ᵀF₁
    return np.asarray(one.atoms.T.dot(other.filters).dot(other.atoms.T.dot(one.filters)))
