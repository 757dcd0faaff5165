"""Read a set of rows into moments, and bring sets to one scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cpcapp.moments.moments import Moments
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample, make_sample, sample_size
from cpcapp.tables.cleaning import Cleaner, RowCounts
from cpcapp.tables.columns import Selection
from cpcapp.tables.label_columns import LabelColumnFinder
from cpcapp.tables.messages import TableError, quote_names
from cpcapp.tables.model import divide_features
from cpcapp.tables.read.table import Chunk, Progress, ProgressReport

# Rows of a set that are kept: what the permutation test uses at most, and p-values of 0.0002.
_MAX_ROWS = 5000
STANDARDIZATIONS = ("none", "each", "background")


@dataclass(frozen=True)
class SampleSet:
    """Target or background after one pass: its moments, and how its rows are prepared.

    Moments and the rows at hand are in the units of the table. ``fill`` replaces missing values if
    they are to become means. Features are divided by ``scale``. ``positions`` are the lines of a
    text file, or the numbers of the rows, of those at hand.
    """

    selection: Selection
    features: list[str]
    missing: str
    moments: Moments
    fill: FloatArray
    scale: FloatArray
    counts: RowCounts
    label_columns: LabelColumnFinder
    rows: Reservoir
    positions: Reservoir

    @property
    def mean(self) -> FloatArray:
        """Mean of each feature, in the units of the table."""
        assert self.moments.mean is not None
        return self.moments.mean

    @property
    def deviation(self) -> FloatArray:
        """Standard deviation of each feature, in units of its scale."""
        return np.asarray(np.sqrt(self.moments.variance()) / self.scale)

    def scaled_moments(self) -> Moments:
        """Return the moments of the features divided by their scale."""
        return self.moments if (self.scale == 1.0).all() else self.moments.rescaled(self.scale)

    def scaled_rows(self) -> Any:
        """Return the rows at hand, dense or sparse, with features divided by their scale."""
        return divide_features(self.rows.rows(), self.scale)

    @cached_property
    def sample(self) -> Sample:
        """The rows at hand with features divided by their scale, to shuffle or hold out."""
        return make_sample(self.scaled_rows(), index=self.positions.rows())

    def clean_rows(self, kept: Sequence[str], progress: Progress | None = None) -> Iterator[Chunk]:
        """Yield the rows once more, as in the first pass; columns the table lacks are empty."""
        import pyarrow as pa

        cleaner = Cleaner(self.missing, self.fill, skip_bad_rows=True)
        present = [name for name in kept if name in self.selection.table.column_index]
        chunks = self.selection.chunks(self.features, present, progress)
        for chunk in cleaner.clean(chunks, self.features):
            empty = pa.nulls(len(chunk.rows), pa.string())
            yield replace(chunk, kept={name: chunk.kept.get(name, empty) for name in kept})


def read_set(
    selection: Selection,
    features: Sequence[str],
    progress: ProgressReport,
    *,
    missing: str = "error",
    skip_bad_rows: bool = False,
) -> SampleSet:
    """Read a set in one pass; with ``missing="mean"`` in two."""
    table, value_counts = selection.table, Counter[str]()
    fill = None
    if missing == "mean":
        cleaner = Cleaner("mean", np.full(len(features), np.nan), skip_bad_rows=skip_bad_rows)
        with progress(f"averaging {selection.role}") as share:
            fill = _average(cleaner, selection, features, share)
    cleaner = Cleaner(missing, fill, skip_bad_rows=skip_bad_rows)
    moments, label_columns = Moments(), LabelColumnFinder(features)
    n_kept = min(_MAX_ROWS, sample_size(len(features)))
    # With one seed the two keep the same rows.
    rows, positions = Reservoir(n_kept), Reservoir(n_kept)
    with progress(f"reading {selection.role}") as share:
        chunks = selection.chunks(features, [], share, value_counts)
        for chunk in cleaner.clean(chunks, features):
            moments.update(chunk.values)
            rows.update(chunk.values)
            positions.update(chunk.positions)
            label_columns.update(chunk.values)
    cleaner.raise_errors(table)
    if selection.column is not None:
        selection.check_values(value_counts)
    counts = cleaner.counts
    if moments.n_samples < 2:
        raise TableError(
            f"{table.name}: {counts.n_used} of {counts.n_rows} rows can be used as "
            f"{selection.role}; at least 2 are needed"
        )
    assert moments.mean is not None
    fill = moments.mean if fill is None else fill
    read = (moments, fill, np.ones(len(features)), counts, label_columns, rows, positions)
    return SampleSet(selection, list(features), missing, *read)


def _average(
    cleaner: Cleaner, selection: Selection, features: Sequence[str], progress: Progress
) -> FloatArray:
    """Return the mean of the values that each column has."""
    total, count = np.zeros(len(features)), np.zeros(len(features))
    for chunk in cleaner.clean(selection.chunks(features, [], progress), features):
        if isinstance(chunk.values, np.ndarray):
            present = ~np.isnan(chunk.values)
            total += np.where(present, chunk.values, 0.0).sum(axis=0)
            count += present.sum(axis=0)
        else:
            total += np.asarray(chunk.values.sum(axis=0)).ravel()
            count += chunk.values.shape[0]
    cleaner.raise_errors(selection.table)
    empty = [name for name, number in zip(features, count, strict=True) if not number]
    if empty and cleaner.counts.n_used:
        raise TableError(
            f"{selection.table.name}: column {quote_names(empty)} has no value at all in the "
            f"{selection.role}",
            "leave it out with {drop}",
        )
    return np.asarray(total / np.maximum(count, 1))


def standardize_sets(sets: list[SampleSet], rule: str) -> list[SampleSet]:
    """Return the sets with a scale: each by its own standard deviation, or all by the background's.

    The background is the last of the sets, if there is one.
    """
    if rule == "none":
        return sets
    scales = []
    for sample_set in sets:
        scale = np.sqrt(sample_set.moments.variance())
        scale[sample_set.moments.constant_features()] = 1.0
        scales.append(scale)
    if rule == "background":
        scales = [scales[-1]] * len(sets)
    return [replace(one, scale=scale) for one, scale in zip(sets, scales, strict=True)]
