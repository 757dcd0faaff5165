"""From two tables to filters: read the moments, bring them to one scale, solve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cpcapp import __version__
from cpcapp.contrast import SingularBackgroundError
from cpcapp.detection import count_components
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.moments import Moments
from cpcapp.tables._table import Chunk, Progress, TableError, listed
from cpcapp.tables.choosing import Selection
from cpcapp.tables.cleaning import Cleaner, Tally
from cpcapp.tables.label_like import LabelLike
from cpcapp.tables.model import FloatArray, TableModel, scores_of

METHODS = ("cpca++", "cpca", "pca")
STANDARDIZATIONS = ("none", "each", "background")

# A hundred solutions of this many operations take half a minute.
_MAX_PERMUTED = 5e8


@dataclass(frozen=True)
class Options:
    """How to reduce; see ``cpcapp reduce --help``."""

    n_components: int | str = 2
    method: str = "cpca++"
    alpha: str | float = "auto"
    standardize: str = "none"
    missing: str = "error"
    skip_bad_rows: bool = False


@dataclass(frozen=True)
class Side:
    """What was learned from one of the two sets: all that its rows go through."""

    selection: Selection
    moments: Moments
    fill: FloatArray
    scale: FloatArray
    tally: Tally
    label_like: LabelLike

    @property
    def mean(self) -> FloatArray:
        """Mean of each feature, in the units of the table."""
        assert self.moments.mean is not None
        return self.moments.mean

    def in_units(self) -> Moments:
        """Return the moments after standardization."""
        return self.moments if (self.scale == 1.0).all() else self.moments.rescaled(self.scale)


@dataclass(frozen=True)
class Reduction:
    """A model, and what it was made from."""

    model: TableModel
    target: Side
    background: Side | None
    n_real: int | None
    n_real_by: str

    @property
    def weights(self) -> FloatArray:
        """Filters times the standard deviation of each feature in the target.

        How much of a score a feature moves as a rule, whatever its unit: what features are
        ranked by. Shape (n_components, n_features).
        """
        deviation = np.sqrt(self.target.moments.variance()) / self.target.scale
        return self.model.components * deviation

    def top_features(self, count: int) -> list[list[tuple[str, float]]]:
        """Return, for each component, the features of largest weight, and the weights."""
        found = []
        for weights in self.weights:
            order = np.argsort(-np.abs(weights), kind="stable")[:count]
            found.append([(self.model.features[i], float(weights[i])) for i in order])
        return found

    @property
    def new_features(self) -> list[str]:
        """Features that vary in the target and not at all in the background.

        Often no measurement at all but a label that was taken for one.
        """
        if self.background is None:
            return []
        still = self.background.moments.constant_features()
        moving = ~self.target.moments.constant_features()
        return [self.model.features[i] for i in np.flatnonzero(still & moving)]

    @property
    def still_features(self) -> list[str]:
        """Features that vary in neither set, and so play no part."""
        sides = [side for side in (self.target, self.background) if side is not None]
        still = np.logical_and.reduce([side.moments.constant_features() for side in sides])
        return [self.model.features[i] for i in np.flatnonzero(still)]

    def scores(
        self, side: Side, kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[tuple[Chunk, FloatArray]]:
        """Yield the rows of a set once more, with their components."""
        model = self.model
        # With a scale of its own each set has its own origin; otherwise both have the target's.
        mean = side.mean if model.standardize == "each" else model.mean
        cleaner = Cleaner(model.missing, side.fill, skip_bad_rows=True)
        chunks = side.selection.chunks(model.features, kept, progress)
        for chunk in cleaner.clean(chunks, model.features):
            yield chunk, scores_of(chunk.values, model.components, mean, side.scale)


def reduce_tables(
    target: Selection,
    background: Selection | None,
    features: Sequence[str],
    options: Options,
    progress: Any = None,
) -> Reduction:
    """Find the components of a target against a background.

    Parameters
    ----------
    target, background : Selection
    features : sequence of str
        Columns that both have.
    options : Options
    progress : callable of a title, optional
        Returns a context manager that gives what is called with the share read.

    Returns
    -------
    Reduction
    """
    if options.method == "pca":
        background = None
    elif background is None:
        raise TableError(f"--method {options.method} needs a background")
    if options.standardize == "background" and background is None:
        raise TableError("--standardize background needs a background; --method pca has none")
    sides = [
        _read(selection, features, options, progress)
        for selection in (target, background)
        if selection is not None
    ]
    sides = _standardized(sides, options.standardize)
    own, other = sides[0], sides[1] if len(sides) > 1 else None
    n_real, by = _count(own, other, features, options)
    k = _how_many(options.n_components, n_real, by)
    model = _fit(own, other, k, features, options)
    return Reduction(model, own, other, n_real, by)


def _read(selection: Selection, features: Sequence[str], options: Options, progress: Any) -> Side:
    fill = None
    if options.missing == "mean":
        fill = _means(selection, features, options, progress)
    cleaner = Cleaner(options.missing, fill, skip_bad_rows=options.skip_bad_rows)
    moments, label_like = Moments(), LabelLike(features)
    with progress(f"reading {selection.role}") as share:
        for chunk in cleaner.clean(selection.chunks(features, [], share), features):
            moments.update(chunk.values)
            label_like.update(chunk.values)
    cleaner.check(selection.table.name, selection.table.place)
    if moments.n_samples < 2:
        raise TableError(_too_few(selection, cleaner.tally))
    assert moments.mean is not None
    return Side(
        selection,
        moments,
        moments.mean if fill is None else fill,
        np.ones(len(features)),
        cleaner.tally,
        label_like,
    )


def _too_few(selection: Selection, tally: Tally) -> str:
    rows = f"{tally.n_used} of {tally.n_rows} rows can be used as {selection.role}"
    message = f"{selection.table.name}: {rows}; at least 2 are needed"
    if selection.column is not None and tally.n_rows < 2:
        values = "other values" if selection.values is None else listed(sorted(selection.values))
        message += f"; is it {values} that column {selection.column!r} holds?"
    return message


def _means(
    selection: Selection, features: Sequence[str], options: Options, progress: Any
) -> FloatArray:
    """Return the mean of what is there of each column, in a pass of its own."""
    nothing = np.full(len(features), np.nan)
    cleaner = Cleaner("mean", nothing, skip_bad_rows=options.skip_bad_rows)
    total, count = np.zeros(len(features)), np.zeros(len(features))
    with progress(f"averaging {selection.role}") as share:
        for chunk in cleaner.clean(selection.chunks(features, [], share), features):
            if isinstance(chunk.values, np.ndarray):
                there = ~np.isnan(chunk.values)
                total += np.where(there, chunk.values, 0.0).sum(axis=0)
                count += there.sum(axis=0)
            else:
                total += np.asarray(chunk.values.sum(axis=0)).ravel()
                count += chunk.values.shape[0]
    cleaner.check(selection.table.name, selection.table.place)
    empty = [name for name, number in zip(features, count, strict=True) if not number]
    if empty and cleaner.tally.n_used:
        raise TableError(
            f"{selection.table.name}: column {listed(empty)} has no value at all in the "
            f"{selection.role}; leave it out with --drop"
        )
    return np.asarray(total / np.maximum(count, 1))


def _standardized(sides: list[Side], rule: str) -> list[Side]:
    if rule not in STANDARDIZATIONS:
        raise ValueError(f"standardize={rule!r} must be one of {', '.join(STANDARDIZATIONS)}")
    if rule == "none":
        return sides
    units = []
    for side in sides:
        scale = np.sqrt(side.moments.variance())
        scale[side.moments.constant_features()] = 1.0
        units.append(scale)
    if rule == "background":
        units = [units[-1]] * len(sides)
    return [replace(side, scale=scale) for side, scale in zip(sides, units, strict=True)]


def _fit(
    own: Side, other: Side | None, k: int, features: Sequence[str], options: Options
) -> TableModel:
    estimator: Any = CPCAPlusPlus(k)
    if options.method == "cpca":
        estimator = CPCA(k, alpha=options.alpha)
    estimator.fit_moments(own.in_units(), None if other is None else other.in_units())
    facts: dict[str, Any] = {
        "cpcapp": __version__,
        "rows": own.moments.n_samples,
        "background_rows": 0 if other is None else other.moments.n_samples,
    }
    if options.method == "cpca":
        facts["alpha"] = estimator.alpha_
    return TableModel(
        features=list(features),
        components=np.asarray(estimator.components_),
        atoms=np.asarray(estimator.atoms_),
        eigenvalues=np.asarray(estimator.eigenvalues_),
        mean=own.mean,
        scale=own.scale,
        fill=own.fill,
        method=options.method,
        standardize=options.standardize,
        missing=options.missing,
        facts=facts,
    )


# -- how many components are real ----------------------------------------------------------


def _count(
    own: Side, other: Side | None, features: Sequence[str], options: Options
) -> tuple[int | None, str]:
    """Return how many components stand out from noise, and how that was found or why not."""
    if options.method != "cpca++" or other is None:
        return None, "the test is for cpca++ only"
    try:
        found = count_components(own.in_units(), other.in_units())
        return found, "law of noise eigenvalues"
    except (SingularBackgroundError, ValueError):
        n, p = own.moments.n_samples + other.moments.n_samples, len(features)
        if n * p * min(n, p) > _MAX_PERMUTED:
            return None, (
                f"the law needs a background of full rank with more than {p + 1} rows, and the "
                "tables are too large to permute"
            )
    target, background = (_rows(side, features, options) for side in (own, other))
    estimator = CPCAPlusPlus("permutation").fit(target, background=background)
    return estimator.n_components_, "permutation"


def _rows(side: Side, features: Sequence[str], options: Options) -> FloatArray:
    cleaner = Cleaner(options.missing, side.fill, skip_bad_rows=True)
    chunks = cleaner.clean(side.selection.chunks(features, []), features)
    values = [
        chunk.values if isinstance(chunk.values, np.ndarray) else chunk.values.toarray()
        for chunk in chunks
    ]
    return np.asarray(np.concatenate(values) / side.scale)


def _how_many(asked: int | str, n_real: int | None, by: str) -> int:
    if not isinstance(asked, str):
        return asked
    if n_real is None:
        raise TableError(f"-k auto can't be told here: {by}; give a number")
    if n_real == 0:
        raise TableError(
            f"no component stands out from noise ({by}); give a number, as in -k 2, to look anyway"
        )
    return n_real
