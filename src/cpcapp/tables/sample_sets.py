"""Read a set of rows into moments, and bring sets to one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp.moments.moments import Moments
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample, make_sample, sample_size
from cpcapp.tables.cleaning import Cleaner, RowCounts
from cpcapp.tables.columns import Selection
from cpcapp.tables.messages import TableError, quote_names
from cpcapp.tables.model import divide_features
from cpcapp.tables.read.table import Chunk, Progress, ProgressReport

# Rows of a set that are kept: what the permutation test uses at most, and p-values of 0.0002.
_MAX_ROWS = 5000
# Both chosen by eye. Labels seldom have more values than this, and if a larger share of the
# features looks like labels, they are counts or answers.
_MAX_LABEL_VALUES, _MAX_LABEL_SHARE = 10, 0.25
STANDARDIZATIONS = ("none", "each", "background")


class KeptRows:
    """A random sample of the rows of a set, with their lines or row numbers in the table."""

    def __init__(self, features: Sequence[str]) -> None:
        self.features = list(features)
        n_kept = min(_MAX_ROWS, sample_size(len(features)))
        # With one seed the two keep the same rows.
        self._rows, self._places = Reservoir(n_kept), Reservoir(n_kept)

    def update(self, chunk: Chunk) -> None:
        """Add the rows of a chunk."""
        self._rows.update(chunk.values)
        self._places.update(np.column_stack([chunk.positions, chunk.rows]))

    @property
    def n_seen(self) -> int:
        """Number of all rows."""
        return self._rows.n_seen

    @property
    def rows(self) -> Any:
        """Values, dense or sparse, in the units of the table."""
        return self._rows.rows()

    @property
    def positions(self) -> NDArray[np.int64]:
        """Lines of a text file, or row numbers."""
        return np.asarray(self._places.rows()[:, 0])

    def find_labels(self) -> tuple[dict[str, int], list[str]]:
        """Return columns that are probably no measurements: labels, and those that count the rows.

        Labels have a few distinct whole numbers (how many is returned). If many columns have, they
        are counts or answers, and none is a label.
        """
        if not self.n_seen or sp.issparse(self.rows):  # sparse tables hold no labels
            return {}, []
        whole = np.flatnonzero((self.rows == np.rint(self.rows)).all(axis=0))
        offsets = self.rows[:, whole] - self._places.rows()[:, 1:]
        counting = set(whole[(offsets == offsets[0]).all(axis=0)].tolist())
        sizes = {i: len(np.unique(self.rows[:, i])) for i in whole.tolist() if i not in counting}
        labels = {self.features[i]: n for i, n in sizes.items() if 1 < n <= _MAX_LABEL_VALUES}
        is_usual = len(labels) <= max(1.0, _MAX_LABEL_SHARE * len(self.features))
        return labels if is_usual else {}, [self.features[i] for i in sorted(counting)]


@dataclass(frozen=True)
class SampleSet:
    """Target or background after one pass: its moments, and how its rows are prepared.

    Moments and the rows at hand are in the units of the table. ``fill`` replaces missing values if
    they are to become means. Features are divided by ``scale``.
    """

    selection: Selection
    missing: str
    moments: Moments
    mean: FloatArray
    fill: FloatArray
    scale: FloatArray
    counts: RowCounts
    rows: KeptRows

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return self.rows.features

    @property
    def deviation(self) -> FloatArray:
        """Standard deviation of each feature, in units of its scale."""
        return np.asarray(np.sqrt(self.moments.variance()) / self.scale)

    def scaled_moments(self) -> Moments:
        """Return the moments of the features divided by their scale."""
        return self.moments if (self.scale == 1.0).all() else self.moments.rescaled(self.scale)

    def scaled_rows(self) -> Any:
        """Return the rows at hand, dense or sparse, with features divided by their scale."""
        return divide_features(self.rows.rows, self.scale)

    @cached_property
    def sample(self) -> Sample:
        """The rows at hand with features divided by their scale, to shuffle or hold out."""
        return make_sample(self.scaled_rows(), index=self.rows.positions)

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
    table, fill = selection.table, None
    if missing == "mean":
        with progress(f"averaging {selection.role}") as share:
            fill = _average(selection, features, share, skip_bad_rows=skip_bad_rows)
    cleaner = Cleaner(missing, fill, skip_bad_rows=skip_bad_rows)
    moments, rows = Moments(), KeptRows(features)
    with progress(f"reading {selection.role}") as share:
        for chunk in cleaner.clean(selection.chunks(features, [], share), features):
            moments.update(chunk.values)
            rows.update(chunk)
    if error := cleaner.find_error(table):
        raise error
    counts, mean = cleaner.counts, moments.mean
    if mean is None or moments.n_samples < 2:
        raise TableError(
            f"{table.name}: {counts.n_used} of {counts.n_rows} rows can be used as "
            f"{selection.role}; at least 2 are needed"
        )
    fill = mean if fill is None else fill
    return SampleSet(selection, missing, moments, mean, fill, np.ones(len(mean)), counts, rows)


def _average(
    selection: Selection, features: Sequence[str], progress: Progress, *, skip_bad_rows: bool
) -> FloatArray:
    """Return the mean of the values that each column has."""
    cleaner = Cleaner("mean", np.full(len(features), np.nan), skip_bad_rows=skip_bad_rows)
    total, count = np.zeros(len(features)), np.zeros(len(features))
    for chunk in cleaner.clean(selection.chunks(features, [], progress), features):
        if isinstance(chunk.values, np.ndarray):
            count += (~np.isnan(chunk.values)).sum(axis=0)
            total += np.nansum(chunk.values, axis=0)
        else:
            count += chunk.values.shape[0]
            total += np.asarray(chunk.values.sum(axis=0)).ravel()
    if error := cleaner.find_error(selection.table):
        raise error
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
