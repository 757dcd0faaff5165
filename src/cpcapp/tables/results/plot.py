"""The plot of a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import numpy as np

from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.read.table import Chunk
from cpcapp.tables.reduce import Reduction

# Chosen by eye: more points than this hide each other.
_MAX_POINTS = 20_000


class DrawnRows:
    """A random sample of the rows that are added to it, with their first label."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.label = labels[0] if labels else None
        # With one seed the two keep the same rows.
        self.scores, self.texts = Reservoir(_MAX_POINTS), Reservoir(_MAX_POINTS)

    def add(self, chunk: Chunk, scores: FloatArray) -> None:
        """Add rows and their scores."""
        self.scores.update(scores)
        if self.label is not None:
            values = chunk.kept[self.label].to_pylist()
            texts = ["" if value is None else str(value) for value in values]
            self.texts.update(np.array(texts, dtype=object))

    def count(self) -> str:
        """Return how many rows there are, and how many of them are shown."""
        n_rows, n_shown = self.scores.n_seen, len(self.scores.rows())
        return f"{n_rows:,} rows" + (f" ({n_shown:,} shown)" if n_rows > n_shown else "")


def write_plot(
    file: IO[bytes],
    suffix: str,
    reduction: Reduction,
    sample: DrawnRows,
    background: DrawnRows | None = None,
) -> None:
    """Write a scatter plot of samples, and beside it the top features, as its suffix says."""
    # Matplotlib is optional.
    from cpcapp.plotting import contrast_figure

    model = reduction.model
    title = f"{model.method}, {sample.count()}"
    if background is not None:
        title += f"; background {background.count()}"
    figure = contrast_figure(
        sample.scores.rows(),
        None if sample.label is None else sample.texts.rows().tolist(),
        weights=reduction.weights,
        feature_names=model.features,
        eigenvalues=model.eigenvalues,
        background=None if background is None else background.scores.rows(),
        title=title,
        label_title=sample.label or "",
    )
    figure.savefig(file, format=suffix[1:].lower(), dpi=150)
