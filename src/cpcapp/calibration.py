"""How often background has a power as high: counted on background that filters have not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.contrast import Contrast
from cpcapp.moments import FloatArray, Moments

# Held-out rows: enough for a p-value of 0.0002, and 40 kB to keep.
_MAX_ROWS = 5000
_FOLDS = 5
# With fewer rows no p-value could be below 0.05.
_LEAST_UNITS = 20
# Multiplications of one solution, up to which it is repeated for each fold unasked. With five
# folds, 500 features take about as long as reading 10,000 rows.
_MAX_UNASKED = 1.5e8


@dataclass(frozen=True)
class Calibration:
    """Output powers of background rows, by filters that were fitted without them.

    Attributes
    ----------
    powers : ndarray of shape (n_rows,)
        Ascending, each over the power that the solver expects of new background.
    weights : ndarray of shape (n_rows,) or None
        One over the number of rows in the row's group; None if each row is its own.

    Examples
    --------
    >>> calibration = Calibration(np.arange(99.0))
    >>> calibration.p_value([-1.0, 94.0, 200.0])
    array([1.  , 0.06, 0.01])
    >>> calibration.smallest
    0.01
    """

    powers: FloatArray
    weights: FloatArray | None = None

    @property
    def smallest(self) -> float:
        """The smallest p-value there can be, ``1 / (n + 1)`` for ``n`` rows or groups."""
        n_units = len(self.powers) if self.weights is None else float(self.weights.sum())
        return 1.0 / (n_units + 1.0)

    def p_value(self, relative_power: ArrayLike) -> FloatArray:
        """Return the share of background with a power as high; the sample itself counts as one.

        Parameters
        ----------
        relative_power : array-like
            Over the power that the solver expects of new background.
        """
        weights = np.ones(len(self.powers)) if self.weights is None else self.weights
        # above[i] is the weight of powers[i:]
        above = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        values = np.asarray(relative_power, dtype=np.float64)
        first = np.searchsorted(self.powers, values, side="left")
        return np.asarray((above[first] + 1.0) / (above[0] + 1.0))


def expected_power(output_covariance: FloatArray) -> float:
    """Return the mean power to expect of new background samples."""
    return float(output_covariance.trace())


def is_cheap(target: Moments, background: Moments) -> bool:
    """Return whether solving once for each fold takes little time."""
    width = target.n_features or 0
    order = min(width, target.n_samples + background.n_samples)
    return order * order * width <= _MAX_UNASKED


def cross_fit(
    rows: Any,
    groups: NDArray[np.intp] | None,
    background: Moments,
    solve: Callable[[Moments], Contrast],
    random_state: Any,
) -> Calibration | None:
    """Return the powers of background rows that were held out, fold by fold.

    Parameters
    ----------
    rows : array or CSR matrix of shape (n, n_features)
        Background.
    groups : ndarray of shape (n,) or None
        Numbers from 0; rows of one group are held out together.
    background : Moments
        Of the rows.
    solve : callable
        Returns the contrast for the background that is left.
    random_state : int, Generator or None
        Chooses the folds.

    Returns
    -------
    Calibration or None
        None if there are too few rows, or if what is left can't be solved.
    """
    n = rows.shape[0]
    units = np.arange(n) if groups is None else groups
    sizes = np.bincount(units)
    if groups is None and n < _LEAST_UNITS:
        return None
    order = np.random.default_rng(random_state).permutation(len(sizes))
    order = order[: max(int(np.searchsorted(np.cumsum(sizes[order]), _MAX_ROWS, "right")), 2)]
    powers, weights = [], []
    for fold in range(min(_FOLDS, len(order))):
        held = np.flatnonzero(np.isin(units, order[fold::_FOLDS]))
        out = rows[held]
        try:
            left = _without(background, out, rows, held)
            found = solve(left)
        except ValueError:
            return None
        assert left.mean is not None and found.output_covariance is not None
        outputs = np.asarray(out @ found.filters) - left.mean @ found.filters
        # Filters of less background do a little worse on new background, by the factor of
        # generalized cross-validation, which is in the expected power.
        expected = expected_power(found.output_covariance)
        powers.append(np.einsum("ij,ij->i", outputs, outputs) / expected)
        weights.append(1.0 / sizes[units[held]])
    ascending = np.argsort(np.concatenate(powers), kind="stable")
    kept = None if groups is None else np.concatenate(weights)[ascending]
    return Calibration(np.concatenate(powers)[ascending], kept)


def _without(background: Moments, out: Any, rows: Any, held: NDArray[np.intp]) -> Moments:
    """Return the moments of all rows but those held out."""
    if background.is_thin:
        return Moments.of(rows[np.delete(np.arange(rows.shape[0]), held)])
    part = Moments.of(out, form="scatter")
    n, n_out = background.n_samples, part.n_samples
    n_left = n - n_out
    assert background.mean is not None and part.mean is not None
    mean = background.mean + (background.mean - part.mean) * (n_out / n_left)
    # S_all = S_left + S_out + (n_left n_out / n) δδᵀ
    gap = mean - part.mean
    scatter = background.scatter() - part.scatter()
    scatter -= (n_left * n_out / n) * np.multiply.outer(gap, gap)
    return Moments.from_covariance(scatter / n_left, n_left, mean)
