"""The largest eigenvalues of many shuffled sets at once, for `cpcapp.inference.permutation`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from cpcapp.contrast.loading import Loading
from cpcapp.contrast.whitening import PooledRows, ridges
from cpcapp.moments.moments import FloatArray, Moments

# Rows far out are drawn in until there are none, which takes one time mostly.
_DRAWN_IN_TIMES = 3
_LANCZOS_TOLERANCE = 3e-4
_LANCZOS_STEPS = 300
_CHECKED_EVERY = 10


@dataclass(frozen=True)
class Pool:
    """Rows of target, then of background, whitened by ``A``; and what moves together.

    ``own_rows`` are whitened with the loading of the sets as they are, ``rows`` with that of
    shuffled ones, in single precision: chance needs no more digits.
    """

    rows: NDArray[np.float32]
    own_rows: FloatArray
    n_target: int
    units: NDArray[np.intp]  # of each row; those of the target come first
    n_target_units: int
    slope: float  # c = w/n_b

    @classmethod
    def whiten(
        cls,
        rows: list[Any],
        moments: tuple[Moments, Moments],
        labels: tuple[NDArray[np.intp], NDArray[np.intp]] | None,
        found: Loading,
        loading: str | float,
    ) -> Pool:
        """Return the rows of both sets, whitened with the loading that was found for them."""
        n_f, n_b = (part.shape[0] for part in rows)
        if labels is None:
            labels = np.arange(n_f), np.arange(n_b)
        n_units = int(labels[0].max()) + 1, int(labels[1].max()) + 1
        centred = PooledRows.of(rows, moments, n_units)
        slope = found.weight / n_b
        shuffled, own = ridges(found, moments[1], loading, centred, n_units)
        whitened = centred.whiten(slope, shuffled)
        for _ in range(_DRAWN_IN_TIMES):
            if not centred.draw_in(whitened, slope):
                break
            whitened = centred.whiten(slope, shuffled)
        own_rows = whitened if np.array_equal(own, shuffled) else centred.whiten(slope, own)
        units = np.concatenate([labels[0], labels[1] + n_units[0]])
        return cls(whitened.astype(np.float32), own_rows, n_f, units, n_units[0], slope)

    @property
    def n_units(self) -> int:
        """Number of rows, or groups of rows, that move together."""
        return int(self.units.max()) + 1

    def check_arrangements(self, false_alarm_rate: float) -> None:
        """Raise ``ValueError`` if there are too few ways to divide the units into two sets."""
        ways = comb(self.n_units, self.n_target_units)
        if ways < 1.0 / false_alarm_rate:
            raise ValueError(
                f"{self.n_target_units} target and {self.n_units - self.n_target_units} background "
                f"units (rows or groups) can be arranged in {ways} ways only, too few for "
                f"false_alarm_rate={false_alarm_rate:g}; it must be at least {1.0 / ways:.2g}, or "
                "give n_components as a number"
            )

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return 1 for the rows of each shuffled target, (n_rows, n)."""
        chosen = np.zeros((self.n_units, n), dtype=np.float32)
        for i in range(n):
            chosen[rng.permutation(self.n_units)[: self.n_target_units], i] = 1.0
        return chosen[self.units]

    def largest(self, masks: NDArray[np.float32]) -> FloatArray:
        """Return the largest κ for each target, in the units of the observed number of rows."""
        split = Split(self.rows, masks, self.slope)
        return np.asarray(_largest(split) * (self.n_target / split.counts))

    def own(self) -> Split:
        """Return the two sets as they are."""
        mask = (np.arange(len(self.rows)) < self.n_target).astype(np.float64)[:, None]
        return Split(self.own_rows, mask, self.slope)

    def own_largest(self) -> float:
        """Return the largest κ of the sets as they are."""
        return float(_largest(self.own())[0])

    def count_above(self, kappa: float) -> int:
        """Return how many κ of the sets as they are lie above a value (Sylvester's law)."""
        own = self.own()
        rows = self.own_rows[: self.n_target] - own.mean[:, 0]
        shifted = np.asfortranarray(rows.T @ rows)
        shifted += kappa * np.multiply.outer(own.gap[:, 0], own.gap[:, 0])
        shifted[np.diag_indices_from(shifted)] -= kappa
        return count_positive(shifted)

    def eigenvalue(self, kappa: float) -> float:
        """Return the λ that belongs to a κ."""
        return float(kappa / (self.n_target * max(1.0 - self.slope * kappa, 1e-12)))


class Split:
    """The pooled rows divided into target and background in several ways at once.

    Each set is centred on its own mean. ``S_f + S_b`` then lacks ``n_f n_b/n δδᵀ``, with δ the
    difference of the means, of the scatter that ``A`` has: ``S_f v = κ (I - ggᵀ) v``.
    """

    def __init__(self, rows: NDArray[Any], masks: NDArray[Any], slope: float) -> None:
        n = len(rows)
        self.rows, self.masks = rows, masks
        self.counts = masks.sum(axis=0)
        others = n - self.counts
        self.mean = rows.T @ masks / self.counts
        delta = (self.mean - rows.mean(axis=0)[:, None]) * (n / others).astype(rows.dtype)
        self.gap = np.sqrt(slope * self.counts * others / n).astype(rows.dtype) * delta
        square = np.einsum("ij,ij->j", self.gap, self.gap)
        self._unit = self.gap / np.sqrt(np.where(square > 0.0, square, 1.0))
        self._stretch = 1.0 / np.sqrt(np.maximum(1.0 - square, 1e-6)) - 1.0

    def times(self, V: NDArray[Any]) -> NDArray[Any]:
        """Return ``(I - ggᵀ)^-½ S_f (I - ggᵀ)^-½ v`` for the column of each division."""
        stretched = self._stretched(V)
        outputs = self.rows @ stretched
        outputs -= np.einsum("ij,ij->j", self.mean, stretched)
        outputs *= self.masks
        return self._stretched(np.asarray(self.rows.T @ outputs))

    def _stretched(self, V: NDArray[Any]) -> NDArray[Any]:
        along = self._stretch * np.einsum("ij,ij->j", self._unit, V)
        return np.asarray(V + along * self._unit)


def _largest(split: Split) -> FloatArray:
    shape = split.rows.shape[1], split.masks.shape[1]
    start = np.random.default_rng(0).standard_normal(shape)
    return lanczos(split.times, start.astype(split.rows.dtype))


def count_positive(matrix: FloatArray) -> int:
    """Return how many eigenvalues of a symmetric matrix are positive. Uses up the matrix.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        In Fortran order, valid in its lower triangle.

    Examples
    --------
    >>> count_positive(np.asfortranarray([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.0]]))
    2
    """
    workspace = int(lapack.dsytrf_lwork(len(matrix), lower=1)[0])
    factor, pivots, _ = lapack.dsytrf(matrix, lower=1, lwork=workspace, overwrite_a=1)
    # LDLᵀ of Bunch and Kaufman: a block of order 2 has one eigenvalue of either sign, and its
    # two rows a negative pivot each.
    single = pivots > 0
    return int((factor.diagonal()[single] > 0.0).sum()) + int((~single).sum()) // 2


def lanczos(times: Callable[[NDArray[Any]], NDArray[Any]], start: NDArray[Any]) -> FloatArray:
    """Return the largest eigenvalues of several symmetric operators at once.

    Without reorthogonalization Lanczos finds copies of eigenvalues that it has already found, but
    the largest one is right. Doing all operators in one product is what makes this fast.

    Parameters
    ----------
    times : callable
        Applies operator ``i`` to column ``i`` of a matrix.
    start : ndarray of shape (order, n_operators)

    Returns
    -------
    ndarray of shape (n_operators,)

    Examples
    --------
    >>> values = np.array([[5.0, 1.0], [2.0, 7.0], [1.0, 3.0]])
    >>> lanczos(lambda V: values * V, np.ones((3, 2))).round(6)
    array([5., 7.])
    """
    v = start / np.linalg.norm(start, axis=0)
    before = np.zeros_like(v)
    diagonal: list[NDArray[Any]] = []
    beside: list[NDArray[Any]] = []
    largest = np.zeros(v.shape[1])
    for step in range(1, _LANCZOS_STEPS + 1):
        w = times(v)
        if beside:
            w -= beside[-1] * before
        diagonal.append(np.einsum("ij,ij->j", v, w))
        w -= diagonal[-1] * v
        last = step == min(len(v), _LANCZOS_STEPS)
        if last or step % _CHECKED_EVERY == 0:
            previous, largest = largest, _largest_of_tridiagonal(diagonal, beside)
            if last or (largest - previous <= _LANCZOS_TOLERANCE * largest).all():
                break
        beside.append(np.linalg.norm(w, axis=0))
        before, v = v, w / np.where(beside[-1] > 0.0, beside[-1], 1.0)
    return largest


def _largest_of_tridiagonal(diagonal: list[NDArray[Any]], beside: list[NDArray[Any]]) -> FloatArray:
    order = np.arange(len(diagonal))
    matrices = np.zeros((len(diagonal[0]), len(order), len(order)))
    matrices[:, order, order] = np.transpose(diagonal)
    if beside:
        matrices[:, order[1:], order[:-1]] = np.transpose(beside)  # eigvalsh reads this triangle
    return np.asarray(np.linalg.eigvalsh(matrices)[:, -1])
