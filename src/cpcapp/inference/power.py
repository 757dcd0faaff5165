"""How often background has a power as high: counted on background that filters have not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cpcapp.contrast.solve import Contrast
from cpcapp.inference.refitting import Refit, Refitter, can_refit
from cpcapp.moments.moments import FloatArray, Moments

# Held-out rows: enough for a p-value of 0.0002, and 40 kB to keep.
_MAX_ROWS = 5000
_FOLDS = 5
# With fewer rows no p-value could be below 0.05.
_LEAST_UNITS = 20
# Multiplications of one solution, up to which it is repeated for each fold unasked: 500 features.
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
    """Return whether solving once more for each fold takes little time."""
    width = target.n_features or 0
    order = min(width, target.n_samples + background.n_samples)
    return order * order * width <= _MAX_UNASKED


def cross_fit(
    rows: Any,
    groups: NDArray[np.intp] | None,
    target: Moments,
    background: Moments,
    contrast: Contrast,
    *,
    solve: Callable[[Moments], Contrast],
    loading: str | float = "auto",
    scaling: str = "background",
    random_state: Any = 0,
) -> Calibration | None:
    """Return the powers of background rows that were held out, fold by fold.

    Parameters
    ----------
    rows : array or CSR matrix of shape (n, n_features)
        Background: all of it, or a random sample.
    groups : ndarray of shape (n,) or None
        Numbers from 0; rows of one group are held out together.
    target, background : Moments
        The background of all its rows.
    contrast : Contrast
        Of both. Folds keep its shrinkage.
    solve : callable
        Returns the contrast for the background that is left; used where there are far fewer samples
        than features.
    loading, scaling : optional
        With which the contrast was found, as in `solve_contrast`.
    random_state : int, Generator or None, default=0
        Chooses the folds.

    Returns
    -------
    Calibration or None
        None if there are too few rows, or if what is left can't be solved.

    Examples
    --------
    >>> from cpcapp.contrast.solve import solve_contrast
    >>> rng = np.random.default_rng(0)
    >>> f, rows = Moments.of(rng.normal(size=(50, 3)) * [4, 1, 1]), rng.normal(size=(99, 3))
    >>> b = Moments.of(rows)
    >>> solve = lambda left: solve_contrast(f, left, 1)
    >>> round(cross_fit(rows, None, f, b, solve(b), solve=solve).smallest, 6)
    0.01
    """
    n = rows.shape[0]
    units = np.arange(n) if groups is None else groups
    sizes = np.bincount(units)
    if groups is None and n < _LEAST_UNITS:
        return None
    order = np.random.default_rng(random_state).permutation(len(sizes))
    order = order[: max(int(np.searchsorted(np.cumsum(sizes[order]), _MAX_ROWS, "right")), 2)]
    fold_of_unit = np.full(len(sizes), -1)
    fold_of_unit[order] = np.arange(len(order)) % _FOLDS
    fold = fold_of_unit[units]
    held = [np.flatnonzero(fold == i) for i in range(min(_FOLDS, len(order)))]
    assert background.mean is not None
    folds = [_centred(rows[part], background.mean) for part in held]
    try:
        if can_refit(target, background):
            again = Refitter(target, background, contrast, loading=loading, scaling=scaling)
            found = list(again.without(folds))
        else:
            found = [_solve_again(solve, background, rows[part]) for part in held]
    except (ValueError, np.linalg.LinAlgError):
        return None
    powers = []
    for part, refit in zip(folds, found, strict=True):
        outputs = (part - refit.mean) @ refit.filters
        # Filters of less background do a little worse on new background, by the factor of
        # generalized cross-validation, which is in the expected power.
        powers.append(np.einsum("ij,ij->i", outputs, outputs) / refit.expected_power)
    ascending = np.argsort(np.concatenate(powers), kind="stable")
    weights = None if groups is None else 1.0 / sizes[units[np.concatenate(held)]][ascending]
    return Calibration(np.concatenate(powers)[ascending], weights)


def _centred(rows: Any, mean: FloatArray) -> FloatArray:
    return np.asarray((rows.toarray() if sp.issparse(rows) else rows) - mean)


def _solve_again(solve: Callable[[Moments], Contrast], background: Moments, out: Any) -> Refit:
    left = background - Moments.of(out)
    found = solve(left)
    assert found.output_covariance is not None
    assert left.mean is not None and background.mean is not None
    power = expected_power(found.output_covariance)
    return Refit(found.filters, left.mean - background.mean, power)
