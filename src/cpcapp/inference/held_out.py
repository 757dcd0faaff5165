"""What a component is worth, told by rows that its filter has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cpcapp.contrast.solution import Contrast
from cpcapp.inference.refit import match, refit
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample

# More units than these are added up in random blocks before blocks are drawn.
_MAX_UNITS = 1000
# Intervals are made wider by what refits to random halves say. The factor for their variance, and
# how many rows for each feature are few, were found with made sets
# (benchmarks/results/counting.json).
_HALVES, _FACTOR, _PLENTY = 10, 4.0, 10
# An output whose sum of squares is that of fewer rows has tails too heavy for intervals.
_LEAST_EFFECTIVE = 15


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
    for i in range(min(folds, max(side.n_groups for side in sides))):
        held = [part == i for part in fold]
        new = _held_squares(sides, held, contrast)
        for square, part, values in zip(squares, held, new, strict=True):
            square[part] = values
    sums = [_unit_sums(side, square, rng) for side, square in zip(sides, squares, strict=True)]
    estimate = np.divide(*(_means(part.sum(axis=0)) for part in sums))
    drawn = np.divide(
        *(
            _means(
                rng.multinomial(len(part), np.full(len(part), 1 / len(part)), n_resamples) @ part
            )
            for part in sums
        )
    )
    tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    # In logarithms, about the estimate
    ends = np.log(np.quantile(drawn, tails, axis=0).T / estimate[:, None])
    ends *= _widening(sides, contrast, np.log(drawn).std(axis=0), rng)[:, None]
    notes = []
    # Each covariate costs a row.
    least = min(side.n_groups - side.design.shape[1] + 1 for side in sides)
    if least < _PLENTY * target.rows.shape[1]:
        notes.append(
            f"{least} rows or groups are few for {target.rows.shape[1]} features: the filters are "
            "unsure, and the intervals were made wider for that"
        )
    effective = min((part.sum(axis=0) ** 2 / (part**2).sum(axis=0))[:-1].min() for part in sums)
    if effective < _LEAST_EFFECTIVE:
        notes.append(
            f"the variance of an output comes from about {effective:.0f} rows: the intervals can "
            "be too narrow"
        )
    intervals = estimate[:, None] * np.exp(ends)
    return HeldOutContrasts(estimate, intervals, level, "; ".join(notes) or None)


def _folds(sample: Sample, folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return (rng.permutation(sample.n_groups) % folds)[sample.groups]


def _held_squares(
    sides: tuple[Sample, Sample], held: list[NDArray[np.bool_]], contrast: Contrast
) -> list[FloatArray]:
    """Return squared outputs of the rows held out of both sets, by filters of the others."""
    seen = [side.take(np.flatnonzero(~part)) for side, part in zip(sides, held, strict=True)]
    found = refit(contrast, seen[0], seen[1], sides)
    filters = found.filters[:, match(found, contrast)[0]]
    squares = []
    for side, part in zip(sides, held, strict=True):
        others = np.average(side.rows[~part], axis=0, weights=side.weights[~part])
        squares.append(((side.rows[part] - others) @ filters) ** 2)
    return squares


def _widening(
    sides: tuple[Sample, Sample], contrast: Contrast, spread: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Return how many times wider intervals are, because other rows give other filters.

    Filters of one random half of the rows are tried on the other half. What their contrasts
    vary more than drawing rows explains is due to the filters.
    """
    contrasts = []
    for _ in range(_HALVES):
        half = [_folds(side, 2, rng) == 0 for side in sides]
        for held in (half, [~part for part in half]):
            squares = _held_squares(sides, held, contrast)
            weights = (side.weights[part] for side, part in zip(sides, held, strict=True))
            contrasts.append(
                np.divide(
                    *(w @ square / w.sum() for w, square in zip(weights, squares, strict=True))
                )
            )
    more = np.log(contrasts).var(axis=0) / spread**2 - 1.0
    return np.asarray(np.sqrt(1.0 + _FACTOR * np.maximum(more, 0.0)))


def _unit_sums(sample: Sample, squares: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return the weighted sums of each row, group, or block of them; the weight comes last."""
    units = sample.groups
    if sample.n_groups > _MAX_UNITS:
        units = (rng.permutation(sample.n_groups) % _MAX_UNITS)[units]
    columns = np.column_stack([squares, np.ones(len(squares))]) * sample.weights[:, None]
    return np.column_stack([np.bincount(units, column) for column in columns.T])


def _means(sums: FloatArray) -> FloatArray:
    return np.asarray(sums[..., :-1] / sums[..., -1:])
