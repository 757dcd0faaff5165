"""Write all files of a result."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from cpcapp._io.files import atomic_write, stage_results
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.messages import TableError
from cpcapp.tables.read.table import Chunk, ProgressReport, as_texts, report_nothing
from cpcapp.tables.reduce import Reduction
from cpcapp.tables.results.files import ResultFiles, plan_files
from cpcapp.tables.results.scores import name_score_columns, open_scores, write_rows
from cpcapp.tables.results.summary import Summary
from cpcapp.tables.sample_sets import SampleSet

_TOP_WRITTEN = 20
# Chosen by eye: more points than this hide each other.
_MAX_POINTS = 20_000


@dataclass(frozen=True)
class Results:
    """The files that were written, and the summary.

    Attributes
    ----------
    files : ResultFiles
        ``scores``, ``loadings``, ``top_features``, ``model``, ``summary`` and ``plot`` are
        paths; ``all`` is the list of them.
    summary : Summary
        Print it, or use its ``to_dict``.
    """

    files: ResultFiles
    summary: Summary


def write_results(
    reduction: Reduction,
    folder: str | os.PathLike[str],
    *,
    scores_format: str | None = None,
    plot: str | os.PathLike[str] | None = None,
    include_background: bool = False,
    overwrite: bool = False,
    progress: ProgressReport | None = None,
) -> Results:
    """Write scores, loadings, top features, model and summary into a folder.

    The target is read once more for its scores. Files are made beside their places and moved when
    all are complete, ``summary.json`` last: an error leaves an earlier result as it was. If the
    process is killed in between, there is no ``summary.json``: where it is, the files belong
    together.

    Parameters
    ----------
    reduction : Reduction
        Of :func:`reduce_tables`.
    folder : path-like
        It is made if it does not exist.
    scores_format : {"csv", "parquet"}, optional
        By default as the target table: Parquet for Parquet, CSV for all others.
    plot : path-like, optional
        Also write a plot: ``.png``, ``.svg`` or ``.pdf``.
    include_background : bool, default=False
        Also write the scores of the background; a column ``set`` says which is which.
    overwrite : bool, default=False
        Whether an earlier result may be replaced.
    progress : callable of a title, optional
        As for :func:`reduce_tables`.

    Returns
    -------
    Results

    Raises
    ------
    TableError
        If files can't be written or would be replaced.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from cpcapp.tables import reduce_tables, write_results
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rng = np.random.default_rng(0)
    >>> np.save(folder / "treated.npy", rng.normal(size=(200, 4)) * [1, 1, 3, 1])
    >>> np.save(folder / "control.npy", rng.normal(size=(200, 4)))
    >>> found = reduce_tables(folder / "treated.npy", folder / "control.npy", 1)
    >>> results = write_results(found, folder / "result")
    >>> [path.name for path in results.files.all]
    ['scores.csv', 'loadings.csv', 'top_features.csv', 'model.safetensors', 'summary.json']
    >>> print(str(results.summary).splitlines()[-1])
    1 component is significant (permutation test)
    """
    if include_background and reduction.background is None:
        raise TableError("PCA has no background", "leave out {include_background}")
    names = [one.selection.table.name for one in (reduction.target, reduction.background) if one]
    files = plan_files(folder, names[0], scores_format=scores_format, plot=plot)
    files.check(names, overwrite=overwrite)
    background = reduction.background if include_background else None
    report = report_nothing if progress is None else progress
    summary = Summary(reduction)
    with stage_results(files.folder) as staged:
        new = plan_files(staged.new, names[0], scores_format=files.scores.suffix[1:])
        drawn = _write_scores(
            new.scores, reduction, background, report, plot=files.plot is not None
        )
        _write_loadings(new.loadings, reduction)
        _write_top_features(new.top_features, reduction)
        reduction.model.save(new.model)
        with atomic_write(new.summary) as file:
            file.write(json.dumps(summary.to_dict(), indent=1).encode())
        staged.commit(marker=new.summary.name, remove=[files.outdated_scores.name])
    if files.plot is not None:
        with atomic_write(files.plot) as file:
            _write_plot(file, files.plot.suffix, reduction, *drawn)
    return Results(files, summary)


class _DrawnRows:
    """A random sample of the rows that are added to it, with their first label."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.label = labels[0] if labels else None
        # With one seed the two keep the same rows.
        self.scores, self.texts = Reservoir(_MAX_POINTS), Reservoir(_MAX_POINTS)

    def add(self, chunk: Chunk, scores: FloatArray) -> None:
        """Add rows and their scores."""
        self.scores.update(scores)
        if self.label is not None:
            self.texts.update(np.array(as_texts(chunk.kept[self.label]), dtype=object))

    def count(self) -> str:
        """Return how many rows there are, and how many of them are shown."""
        n_rows, n_shown = self.scores.n_seen, len(self.scores.rows())
        return f"{n_rows:,} rows" + (f" ({n_shown:,} shown)" if n_rows > n_shown else "")


def _write_scores(
    path: Path,
    reduction: Reduction,
    background: SampleSet | None,
    progress: ProgressReport,
    *,
    plot: bool,
) -> tuple[_DrawnRows, _DrawnRows | None]:
    """Write the scores; return samples of both sets, of the background for a plot only.

    The background is read once more for its scores or its points, and not at all for neither.
    """
    kept, n_components = reduction.columns.kept, reduction.model.n_components
    names = name_score_columns(kept, n_components, with_set=background is not None)
    sample, grey = _DrawnRows(reduction.columns.labels), _DrawnRows(())
    with open_scores(path, names) as writer:
        with progress("writing target") as share:
            for chunk, scores in reduction.scores(reduction.target, kept, share):
                writer.write(chunk, scores, None if background is None else "target")
                sample.add(chunk, scores)
        if reduction.background is not None and (plot or background is not None):
            with progress("writing background") as share:
                for chunk, scores in reduction.scores(reduction.background, kept, share):
                    if background is not None:
                        writer.write(chunk, scores, "background")
                    grey.add(chunk, scores)
    return sample, grey if grey.scores.n_seen else None


def _write_loadings(path: Path, reduction: Reduction) -> None:
    model = reduction.model
    matrices = {"filter": model.components, "atom": model.atoms, "weight": reduction.weights}
    names = [f"{name}_{i + 1}" for name in matrices for i in range(model.n_components)]
    values = np.concatenate(list(matrices.values())).T.tolist()
    rows = ([name, *row] for name, row in zip(model.features, values, strict=True))
    write_rows(path, ["feature", *names], rows)


def _write_top_features(path: Path, reduction: Reduction) -> None:
    rows = [
        (component + 1, rank + 1, name, weight)
        for component, top in enumerate(reduction.top_features(_TOP_WRITTEN))
        for rank, (name, weight) in enumerate(top)
    ]
    write_rows(path, ["component", "rank", "feature", "weight"], rows)


def _write_plot(
    file: IO[bytes],
    suffix: str,
    reduction: Reduction,
    sample: _DrawnRows,
    background: _DrawnRows | None = None,
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
