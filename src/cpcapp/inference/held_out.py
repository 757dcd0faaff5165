"""What a component is worth, told by rows that its filter has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cpcapp.contrast.solve import Contrast
from cpcapp.inference.refit import match, refit
from cpcapp.moments.moments import FloatArray
from cpcapp.moments.sample import Sample

# More units than these are added up in random blocks before blocks are drawn.
_MAX_UNITS = 1000


@dataclass(frozen=True)
class HeldOutContrasts:
    """Contrasts on rows that the filters have not seen.

    Attributes
    ----------
    contrasts : ndarray of shape (n_components,)
        Variance of the target over variance of the background.
    intervals : ndarray of shape (n_components, 2)
    level : float
        Confidence of the intervals.
    note : str or None
        What to know where intervals can be too narrow.
    """

    contrasts: FloatArray
    intervals: FloatArray
    level: float
    note: str | None = None


def held_out(
    target: Sample,
    background: Sample,
    contrast: Contrast,
    *,
    folds: int = 20,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
) -> HeldOutContrasts:
    """Return the contrast of each component on held-out rows, with intervals.

    The contrast of the fit itself is too high: the filters were chosen for it. Here both sets are
    divided into folds, of rows or groups; the filters of all other rows, at the fitted loading,
    give the outputs of each fold. Intervals come from drawing rows, or groups, again.
    """
    if folds < 2:
        raise ValueError(f"folds={folds} must be at least 2")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level={level} must be between 0 and 1")
    if min(target.n_groups, background.n_groups) < 4:
        raise ValueError(
            f"held-out contrasts need at least 4 rows or groups of each set, not "
            f"{target.n_groups} and {background.n_groups}"
        )
    rng = np.random.default_rng(random_state)
    sides = target, background
    fold = [_folds(side, folds, rng) for side in sides]
    squares = [np.zeros((len(side), contrast.filters.shape[1])) for side in sides]
    for i in range(folds):
        held = [own == i for own in fold]
        if not any(part.any() for part in held):
            continue
        seen = [side.take(np.flatnonzero(~part)) for side, part in zip(sides, held, strict=True)]
        found = refit(contrast, *seen)
        filters = found.filters[:, match(found, contrast)[0]]
        for side, part, square in zip(sides, held, squares, strict=True):
            others = np.average(side.rows[~part], axis=0, weights=side.weights[~part])
            square[part] = ((side.rows[part] - others) @ filters) ** 2
    sums = [_unit_sums(side, square, rng) for side, square in zip(sides, squares, strict=True)]
    return _with_intervals(sums, n_resamples, level, rng, None)


def _folds(sample: Sample, folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return (rng.permutation(sample.n_groups) % folds)[sample.groups]


def _unit_sums(sample: Sample, squares: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return the weighted sums of each row, group, or block of them; the weight comes last."""
    units = sample.groups
    if sample.n_groups > _MAX_UNITS:
        units = (rng.permutation(sample.n_groups) % _MAX_UNITS)[units]
    columns = np.column_stack([squares, np.ones(len(squares))]) * sample.weights[:, None]
    return np.column_stack([np.bincount(units, column) for column in columns.T])


def _with_intervals(
    sums: list[FloatArray], n: int, level: float, rng: np.random.Generator, note: str | None
) -> HeldOutContrasts:
    def variances(times: FloatArray, part: FloatArray) -> FloatArray:
        drawn = times @ part
        return np.asarray(drawn[:, :-1] / drawn[:, -1:])

    target, background = (variances(np.ones((1, len(part))), part)[0] for part in sums)
    drawn = [
        variances(rng.multinomial(len(part), np.full(len(part), 1.0 / len(part)), n), part)
        for part in sums
    ]
    tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    ratios = drawn[0] / drawn[1]
    return HeldOutContrasts(target / background, np.quantile(ratios, tails, axis=0).T, level, note)
