"""How often background has a power as high: counted on background that filters have not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

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
    """Powers of background rows by filters that have not seen them, and what each counts as.

    >>> calibration = Calibration(np.arange(99.0))
    >>> calibration.p_value([-1.0, 94.0, 200.0])
    array([1.  , 0.06, 0.01])
    >>> calibration.smallest
    0.01
    """

    powers: FloatArray  # ascending
    weights: FloatArray | None = None  # None for one row, or group, each

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
    """Return the powers of background rows, or groups, that were held out, fold by fold."""
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
    design = background.design
    # The means of one set, or of several
    only_means = np.isin(design, (0.0, 1.0)).all() and (design.sum(axis=1) == 1.0).all()
    rng = np.random.default_rng(random_state)
    fold = (rng.permutation(n) % folds)[background.groups]
    powers = np.empty(len(background))
    for i in range(folds):
        held = fold == i
        seen = background.take(np.flatnonzero(~held))
        filters = refit(contrast, target, seen, (target, background)).filters
        # About the mean of the others, as a new row would be taken
        if only_means:
            about = background.raw[held] - seen.mean
        else:
            mean = np.average(background.rows[~held], axis=0, weights=background.weights[~held])
            about = background.rows[held] - mean
        powers[held] = ((about @ filters) ** 2).sum(axis=1)
    weights = background.weights * (effective / len(background))
    kept = rng.permutation(len(powers))[:_MAX_POWERS]
    kept = kept[np.argsort(powers[kept], kind="stable")]
    return Calibration(powers[kept], None if (weights == 1.0).all() else weights[kept])
