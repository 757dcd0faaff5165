"""The plot of a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import numpy as np

from cpcapp.tables.model import FloatArray
from cpcapp.tables.read.table import Chunk
from cpcapp.tables.reduce import Reduction

# Chosen by eye: more points than this hide each other.
_MAX_POINTS = 20_000


class RowSample:
    """A random sample of the rows that are added to it, with their first label.

    Parameters
    ----------
    labels : sequence of str
        Columns; the first one is used.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.label = labels[0] if labels else None
        self.rng = np.random.default_rng(0)
        # Rows with the smallest random keys are kept: a sample without replacement.
        self.keys = np.empty(0)
        self.scores: FloatArray | None = None
        self.labels: list[str] = []
        self.n_rows = 0

    def add(self, chunk: Chunk, scores: FloatArray) -> None:
        """Add rows and their scores."""
        found = [None] * len(scores) if self.label is None else chunk.kept[self.label].to_pylist()
        self.labels += ["" if value is None else str(value) for value in found]
        self.keys = np.concatenate([self.keys, self.rng.random(len(scores))])
        self.scores = scores if self.scores is None else np.concatenate([self.scores, scores])
        self.n_rows += len(scores)
        if len(self.keys) > _MAX_POINTS:
            chosen = np.sort(np.argpartition(self.keys, _MAX_POINTS)[:_MAX_POINTS])
            self.keys, self.scores = self.keys[chosen], self.scores[chosen]
            self.labels = [self.labels[i] for i in chosen]


def write_plot(
    file: IO[bytes],
    suffix: str,
    reduction: Reduction,
    sample: RowSample,
    background: RowSample | None = None,
) -> None:
    """Write a scatter plot of samples, and beside it the top features, as its suffix says."""
    # Matplotlib is optional.
    from cpcapp.plotting import contrast_figure

    model = reduction.model
    assert sample.scores is not None
    title = f"{model.method}, {sample.n_rows:,} rows"
    title += _count_shown(sample)
    if background is not None:
        title += f"; background {background.n_rows:,} rows{_count_shown(background)}"
    figure = contrast_figure(
        sample.scores,
        sample.labels if sample.label is not None else None,
        weights=reduction.weights,
        feature_names=model.features,
        eigenvalues=model.eigenvalues,
        background=None if background is None else background.scores,
        title=title,
        label_title=sample.label or "",
    )
    figure.savefig(file, format=suffix[1:].lower(), dpi=150)


def _count_shown(sample: RowSample) -> str:
    assert sample.scores is not None
    shown = len(sample.scores)
    return f" ({shown:,} shown)" if sample.n_rows > shown else ""
