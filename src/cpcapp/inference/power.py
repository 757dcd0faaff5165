"""How often background has a power as high: counted on background that filters have not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.contrast.solution import Contrast
from cpcapp.inference.refit import refit
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample

# With fewer rows no p-value could be below 0.05.
_LEAST_UNITS = 20
# Held-out rows that are kept: enough for a p-value of 0.0001.
_MAX_POWERS = 10_000


@dataclass(frozen=True)
class Calibration:
    """Output powers of background rows, by filters that were fitted without them.

    Attributes
    ----------
    powers : ndarray of shape (n_rows,)
        Ascending.
    weights : ndarray of shape (n_rows,) or None
        How many rows, or groups, each one counts as; None for one each.

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
        """The smallest p-value there can be, ``1 / (n + 1)`` for ``n`` rows or groups in effect."""
        total = len(self.powers) if self.weights is None else float(self.weights.sum())
        return 1.0 / (total + 1.0)

    def p_value(self, power: ArrayLike) -> FloatArray:
        """Return the share of background with a power as high; the row itself counts as one."""
        weights = np.ones(len(self.powers)) if self.weights is None else self.weights
        # above[i] is the weight of powers[i:]
        above = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        first = np.searchsorted(self.powers, np.asarray(power, dtype=np.float64), side="left")
        return np.asarray((above[first] + 1.0) / (above[0] + 1.0))


def calibrate(
    target: Sample,
    background: Sample,
    contrast: Contrast,
    *,
    folds: int = 5,
    random_state: int | np.random.Generator | None = 0,
) -> Calibration:
    """Return the powers of background rows, or groups, that were held out, fold by fold.

    Raises
    ------
    ValueError
        With fewer than 20 background rows, or groups, as far as their weights let them count.
    """
    n = background.n_groups
    # Kish's effective number, of groups where there are any
    units = np.bincount(background.groups, background.weights)
    effective = units.sum() ** 2 / (units @ units)
    if round(effective, 6) < _LEAST_UNITS:
        what = "rows" if n == len(background) else "groups"
        counted = f"{n}" if round(effective) == n else f"{n} that count as {effective:.0f}"
        raise ValueError(
            f"p-values need at least {_LEAST_UNITS} background {what}, not {counted}; they are the "
            "ranks of new rows among background that the filters have not seen"
        )
    rng = np.random.default_rng(random_state)
    fold = (rng.permutation(n) % folds)[background.groups]
    powers = np.empty(len(background))
    for i in range(folds):
        held = fold == i
        seen = background.take(np.flatnonzero(~held))
        filters = refit(contrast, target, seen, (target, background)).filters
        outputs = _about(background, held, seen) @ filters
        powers[held] = np.einsum("ij,ij->i", outputs, outputs)
    weights = background.weights * (effective / len(background))
    kept = np.arange(len(powers))
    if len(kept) > _MAX_POWERS:
        kept = rng.permutation(kept)[:_MAX_POWERS]
    kept = kept[np.argsort(powers[kept], kind="stable")]
    return Calibration(powers[kept], None if (weights == 1.0).all() else weights[kept])


def _about(background: Sample, held: NDArray[np.bool_], seen: Sample) -> FloatArray:
    """Return held-out rows about the mean of the others, as a new row would be taken."""
    design = background.design
    if ((design == 0.0) | (design == 1.0)).all() and (design.sum(axis=1) == 1.0).all():
        return np.asarray(background.raw[held] - seen.mean)  # means only, of one set or several
    others = np.average(background.rows[~held], axis=0, weights=background.weights[~held])
    return np.asarray(background.rows[held] - others)
