"""The files of a result, and its summary in words and in JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from cpcapp import __version__
from cpcapp._io.files import atomic_write, remove_leftovers, stage_results
from cpcapp._io.packages import require_packages
from cpcapp._io.text import number
from cpcapp.inference.held_out import HeldOutContrasts
from cpcapp.inference.permutation import PermutationTest
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.cleaning import describe_skipped
from cpcapp.tables.messages import (
    Message,
    TableError,
    check_choice,
    count_of,
    quote_names,
)
from cpcapp.tables.read.table import Chunk, ProgressReport, as_texts, report_nothing
from cpcapp.tables.reduce import Reduction
from cpcapp.tables.sample_sets import SampleSet
from cpcapp.tables.scores import (
    check_outputs,
    is_parquet,
    name_score_columns,
    open_scores,
    write_rows,
)

_PLOT_ENDINGS = (".png", ".svg", ".pdf")
_TOP_LISTED, _TOP_WRITTEN = 5, 20
# Chosen by eye: more points than this hide each other.
_MAX_POINTS = 20_000


class ResultFiles:
    """The files that `write_results` writes. Where ``summary`` is, the others are complete."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        target: str,
        *,
        scores_format: str | None = None,
        plot: str | os.PathLike[str] | None = None,
    ) -> None:
        if scores_format is None:
            # A folder is one of Parquet files.
            scores_format = "parquet" if is_parquet(target) or Path(target).is_dir() else "csv"
        check_choice("scores_format", scores_format, ("csv", "parquet"))
        self.folder, self.plot = Path(folder), None if plot is None else Path(plot)
        # The second is of an earlier run in the other format, which would not fit the others.
        endings = ("parquet", "csv") if scores_format == "parquet" else ("csv", "parquet")
        self.scores, self.outdated_scores = (self.folder / f"scores.{e}" for e in endings)
        self.loadings = self.folder / "loadings.csv"
        self.top_features = self.folder / "top_features.csv"
        self.model = self.folder / "model.safetensors"
        self.summary = self.folder / "summary.json"
        self.all = [self.scores, self.loadings, self.top_features, self.model, self.summary]
        self.all += [] if self.plot is None else [self.plot]

    def check(self, inputs: Sequence[str] = (), *, overwrite: bool = False) -> None:
        """Raise `TableError` if the files can't be written, would replace others, or are inputs.

        What killed runs left in the folder is removed first.
        """
        remove_leftovers(self.folder)
        if self.plot is not None:
            self._check_plot(self.plot)
            remove_leftovers(self.plot.parent, self.plot.name)
        if self.folder.resolve() in {Path(path).resolve() for path in inputs}:
            raise TableError(f"{self.folder} is read by this run", "choose another {folder}")
        outputs = [*self.all, self.outdated_scores]
        check_outputs(outputs, inputs, overwrite=overwrite, name="folder")
        above = [self.folder, *self.folder.absolute().parents]
        nearest = next(path for path in above if path.exists())
        if not nearest.is_dir():
            raise TableError(f"{nearest} is not a folder", "choose another {folder}")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise TableError(f"the folder {nearest} can't be written to", "choose another {folder}")

    def _check_plot(self, plot: Path) -> None:
        if plot.suffix.lower() not in _PLOT_ENDINGS:
            raise TableError(
                f"a plot can't be written as {plot.name!r}",
                "{plot} must end in " + ", ".join(_PLOT_ENDINGS),
            )
        require_packages("plot", "matplotlib")
        if plot.parent.resolve() != self.folder.resolve() and not plot.parent.is_dir():
            raise TableError(
                f"there is no folder {plot.parent}", "make it, or choose another {plot}"
            )


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
    names = [one.selection.table.name for one in reduction.sets]
    files = ResultFiles(folder, names[0], scores_format=scores_format, plot=plot)
    files.check(names, overwrite=overwrite)
    report = report_nothing if progress is None else progress
    summary = Summary(reduction)
    with stage_results(files.folder) as staged:
        new = ResultFiles(staged.new, names[0], scores_format=files.scores.suffix[1:])
        drawn = _write_scores(
            new.scores, reduction, report, both=include_background, plot=files.plot is not None
        )
        _write_loadings(new.loadings, reduction)
        _write_top_features(new.top_features, reduction)
        reduction.model.save(new.model)
        with atomic_write(new.summary) as file:
            file.write(json.dumps(summary.to_dict(), indent=1).encode())
        staged.commit(marker=new.summary.name, remove=[files.outdated_scores.name])
    if files.plot is not None:
        with atomic_write(files.plot) as file:
            _write_plot(file, files.plot.suffix, reduction, drawn)
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
    path: Path, reduction: Reduction, report: ProgressReport, *, both: bool, plot: bool
) -> list[_DrawnRows]:
    """Write the scores, of one set or both; return samples of both sets, or of the target only.

    The background is read once more for its scores or its points, and not at all for neither.
    """
    kept, drawn = reduction.columns.kept, list[_DrawnRows]()
    names = name_score_columns(kept, reduction.model.n_components, with_set=both)
    with open_scores(path, names) as write:
        for one in reduction.sets[: 2 if both or plot else 1]:
            role = one.selection.role
            sample = _DrawnRows([] if drawn else reduction.columns.labels)
            with report(f"writing {role}") as share:
                for chunk, scores in reduction.scores(one, kept, share):
                    if both or not drawn:
                        write(chunk, scores, role if both else None)
                    sample.add(chunk, scores)
            drawn.append(sample)
    return drawn


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
    file: IO[bytes], suffix: str, reduction: Reduction, drawn: Sequence[_DrawnRows]
) -> None:
    """Write a scatter plot of samples, and beside it the top features, as its suffix says."""
    # Matplotlib is optional.
    from cpcapp.plotting import contrast_figure

    model, sample = reduction.model, drawn[0]
    figure = contrast_figure(
        sample.scores.rows(),
        None if sample.label is None else sample.texts.rows().tolist(),
        weights=reduction.weights,
        feature_names=model.features,
        eigenvalues=model.eigenvalues,
        background=drawn[1].scores.rows() if drawn[1:] else None,
        title=f"{model.method}, " + "; background ".join(rows.count() for rows in drawn),
        label_title=sample.label or "",
    )
    figure.savefig(file, format=suffix[1:].lower(), dpi=150)


@dataclass(frozen=True)
class Summary:
    """What was found, for people and programs; ``str()`` gives the lines of text."""

    reduction: Reduction

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of ``summary.json``."""
        found, model = self.reduction, self.reduction.model
        test = found.significance
        return {
            "cpcapp": __version__,
            "numpy": np.__version__,
            "method": model.method,
            "standardize": model.standardize,
            "missing": model.missing,
            "alpha": number(model.info.get("alpha")),
            "n_features": len(model.features),
            "n_components": model.n_components,
            "eigenvalues": model.eigenvalues.tolist(),
            "contrasts": [number(value) for value in model.contrast.contrast],
            "held_out_contrasts": describe_held_out(found.held_out),
            "components_that_stand_out": test.n_components,
            "components_that_stand_out_by": test.test
            if test.reason is None
            else test.reason.text(),
            "permutation_test": _describe_permutations(test.permutations),
            "constant_in_background": found.constant_in_background,
            "constant": found.constant_features,
            "target": _describe_set(found.target),
            "background": None if found.background is None else _describe_set(found.background),
            "top_features": [
                [{"feature": name, "weight": number(weight)} for name, weight in top]
                for top in found.top_features(_TOP_LISTED)
            ],
            "notes": [
                *(note.text for note in found.doubts),
                *(note.problem for note in self._label_notes()),
            ],
        }

    def lines(self) -> list[str]:
        """Return the result in lines of text."""
        found, model = self.reduction, self.reduction.model
        lines = [_set_line(one) for one in found.sets]
        tables = dict.fromkeys(one.selection.table for one in found.sets)
        lines += [
            f"{'recognised':11} {note}" for table in tables if (note := table.describe_reading())
        ]
        alpha = f", alpha {model.info['alpha']:.3g}" if "alpha" in model.info else ""
        mask = found.target.selection.table.mask_column
        genes = "" if mask is None or found.columns.explicit else f" (genes in var[{mask!r}])"
        lines.append(f"{'features':11} {len(model.features)}{genes}, method {model.method}{alpha}")
        for i, top in enumerate(found.top_features(_TOP_LISTED)):
            names = ", ".join(f"{name} {weight:+.3g}" for name, weight in top)
            lines.append(f"component {i + 1} {_size(found, i)}; top features: {names}")
        if found.n_significant is not None:
            verb = "is" if found.n_significant == 1 else "are"
            number = count_of(found.n_significant, "component")
            lines.append(f"{number} {verb} significant ({found.significance.describe()})")
        return lines

    def notes(self) -> list[Message]:
        """Return what a user should look at: rows left out, and doubtful features."""
        found = self.reduction
        skipped = (describe_skipped(one.counts, one.selection.table) for one in found.sets)
        notes = [Message(text) for text in skipped if text]
        reason = found.significance.reason
        if reason is not None and found.model.method == "cpca++":
            problem = f"the number of significant components was not tested: {reason.problem}"
            notes.append(Message(problem, reason.advice, reason.values))
        notes += [Message(note.text) for note in found.doubts]
        for names, where in (
            (found.constant_in_background, "in the background"),
            (found.constant_features, "in both sets" if found.background else "in the target"),
        ):
            if names:
                verb = "is" if len(names) == 1 else "are"
                notes.append(Message(f"{quote_names(names)} {verb} constant {where}"))
        return [*notes, *self._label_notes()]

    def _label_notes(self) -> Iterator[Message]:
        if self.reduction.columns.explicit:
            return
        labels, row_numbers = self.reduction.target.rows.find_labels()
        for name, count in labels.items():
            yield Message(
                f"{name!r} is used as a feature, but has only {count} values, all whole numbers",
                "if it is a label, use {labels} or {drop}",
                {"labels": [name]},
            )
        for name in row_numbers:
            yield Message(
                f"{name!r} is used as a feature, but counts the rows",
                "if it is a row number, use {ids} or {drop}",
                {"ids": [name]},
            )

    def __str__(self) -> str:
        notes = [f"note: {note.text()}" for note in self.notes()]
        return "\n".join([*self.lines(), *notes])


def _size(found: Reduction, component: int) -> str:
    """Return how much of a component there is, in words."""
    model = found.model
    if model.method != "cpca++":
        unit = "variance" if model.method == "pca" else "eigenvalue"
        return f"{model.eigenvalues[component]:.4g} {unit}"
    text = f"{model.contrast.contrast[component]:.4g} times the background's variance"
    if found.held_out is None:
        return text
    low, high = found.held_out.intervals[component]
    share = f"{100 * found.held_out.level:.0f} %"
    return (
        f"{text} ({found.held_out.contrasts[component]:.3g} in rows that were held out, {share} "
        f"interval {low:.3g} to {high:.3g})"
    )


def describe_held_out(found: HeldOutContrasts | None) -> list[dict[str, Any]] | None:
    """Return contrasts with their intervals, in types that JSON knows."""
    if found is None:
        return None
    return [
        {"contrast": number(value), "interval": [number(low), number(high)], "level": found.level}
        for value, (low, high) in zip(found.contrasts, found.intervals, strict=True)
    ]


def _describe_permutations(test: PermutationTest | None) -> dict[str, Any] | None:
    if test is None:
        return None
    return {
        "p": number(test.p_value),
        # Both in the units of the test, which has a loading of its own: not those of eigenvalues.
        "test_statistic": number(test.largest),
        "test_statistic_of_chance": number(test.threshold),
        "permutations": test.n_permutations,
        "target_rows": test.n_rows[0],
        "background_rows": test.n_rows[1],
    }


def _describe_set(sample_set: SampleSet) -> dict[str, Any]:
    selection = sample_set.selection
    values = None if selection.values is None else sorted(selection.values)
    return {
        "table": selection.table.name,
        "split": selection.column,
        "values": values,
        "all_values_but": sorted(selection.excluded) or None if values is None else None,
        "recognised": selection.table.reading_notes(),
        **sample_set.counts.to_dict(),
    }


def _set_line(sample_set: SampleSet) -> str:
    selection, counts = sample_set.selection, sample_set.counts
    dropped = 0 if counts.n_filled else counts.n_incomplete
    facts = [
        f"{count_of(number, noun)} {verb}"
        for number, noun, verb in (
            (counts.n_bad, "bad row", "left out"),
            (dropped, "row", "with missing values left out"),
            (counts.n_filled, "missing value", "filled in"),
        )
        if number
    ]
    remark = f" ({', '.join(facts)})" if facts else ""
    rows = f"{count_of(counts.n_used, 'row')} of {selection.table.name}{selection.condition()}"
    return f"{selection.role:11} {rows}{remark}"
