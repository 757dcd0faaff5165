"""What ``cpcapp reduce`` leaves in its folder, and what it says."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from cpcapp import __version__
from cpcapp._files import atomic_write
from cpcapp.cli._errors import UserError
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli._results import number, printable
from cpcapp.tables import Chunk
from cpcapp.tables._table import listed
from cpcapp.tables.choosing import Columns, Selection
from cpcapp.tables.model import FloatArray
from cpcapp.tables.reducing import Reduction, Side
from cpcapp.tables.writing import score_columns, scores_to, write_rows

_TOP_WRITTEN = 20
_TOP_PRINTED = 5
_MAX_POINTS = 20_000


@dataclass(frozen=True)
class Outputs:
    """The files that a run makes."""

    folder: Path
    scores: Path
    plot: Path | None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Self:
        """Name the files by the options of a run."""
        parquet = arguments.table.lower().endswith((".parquet", ".pq"))
        kind = arguments.format or ("parquet" if parquet else "csv")
        folder: Path = arguments.output
        return cls(folder, folder / f"scores.{kind}", arguments.plot)

    @property
    def loadings(self) -> Path:
        """Filter and atom of every feature."""
        return self.folder / "loadings.csv"

    @property
    def top_features(self) -> Path:
        """The features of largest weight."""
        return self.folder / "top_features.csv"

    @property
    def model(self) -> Path:
        """For ``cpcapp apply``."""
        return self.folder / "model.safetensors"

    @property
    def summary(self) -> Path:
        """Written last: where it is, the others are complete."""
        return self.folder / "summary.json"

    @property
    def all(self) -> list[Path]:
        """All of them."""
        files = [self.scores, self.loadings, self.top_features, self.model, self.summary]
        return files if self.plot is None else [*files, self.plot]

    @property
    def stale(self) -> Path:
        """Scores of an earlier run in the other format, which would not fit the rest."""
        return self.scores.with_suffix(".csv" if self.scores.suffix == ".parquet" else ".parquet")

    def check(self, inputs: Sequence[str], *, force: bool) -> None:
        """See that nothing gets lost unless it is said to, and that all can be written."""
        read = {Path(path.partition("::")[0]).resolve() for path in inputs}
        there = [path for path in [*self.all, self.stale] if path.exists()]
        for path in there:
            if path.resolve() in read:
                raise UserError(
                    f"{printable(path)} is a table to read; choose another -o or --plot"
                )
        if there and not force:
            more = f", with {len(there) - 1} more" if len(there) > 1 else ""
            raise UserError(
                f"{printable(there[0])} is there already{more}; --force to replace, or choose "
                "another -o"
            )
        parent = self.folder if self.plot is None else self.plot.parent
        if parent.resolve() != self.folder.resolve() and not parent.is_dir():
            raise UserError(f"there is no folder {printable(parent)} to write --plot to")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"can't make the folder {printable(self.folder)}: {error.strerror}"
            ) from error

    def write(self, found: Reduction, columns: Columns, *, include_background: bool) -> None:
        """Write everything, and print what was found."""
        self.summary.unlink(missing_ok=True)
        self.stale.unlink(missing_ok=True)
        other = found.background if include_background else None
        kept = columns.kept
        names = score_columns(kept, found.model.n_components, with_set=other is not None)
        sample = _Sample(columns.labels)
        with scores_to(self.scores, names) as writer:
            for chunk, scores in _rows(found, found.target, kept):
                writer.write(chunk, scores, None if other is None else "target")
                sample.add(chunk, scores)
            for chunk, scores in [] if other is None else _rows(found, other, kept):
                writer.write(chunk, scores, "background")
        _write_loadings(self.loadings, found)
        _write_top_features(self.top_features, found)
        found.model.save(self.model)
        if self.plot is not None:
            _draw(self.plot, found, sample)
        doubts = [] if columns.named else list(_doubts(found.target))
        summary = {**_summary(found), "notes": doubts}
        with atomic_write(self.summary) as file:
            file.write(json.dumps(summary, indent=1).encode())
        print("\n".join([*_lines(found), *(f"{'note':11} {doubt}" for doubt in doubts)]))
        print(f"-> {', '.join(printable(path) for path in self.all)}")


def _rows(found: Reduction, side: Side, kept: Sequence[str]) -> Iterator[tuple[Chunk, FloatArray]]:
    """Yield rows and scores; columns that only the target has are empty in the background."""
    import pyarrow as pa

    held = [name for name in kept if name in side.selection.table.columns]
    with ProgressLine(f"writing {side.selection.role}") as progress:
        for chunk, scores in found.scores(side, held, progress):
            nothing = pa.nulls(len(chunk.rows), pa.string())
            columns = {name: chunk.kept.get(name, nothing) for name in kept}
            yield Chunk(chunk.rows, chunk.places, None, columns), scores


class _Sample:
    """So many rows at random of all that pass by: a picture of millions shows no more."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.label = labels[0] if labels else None
        self.rng = np.random.default_rng(0)
        self.keys = np.empty(0)
        self.scores: FloatArray | None = None
        self.labels: list[str] = []
        self.n_rows = 0

    def add(self, chunk: Chunk, scores: FloatArray) -> None:
        found = [None] * len(scores) if self.label is None else chunk.kept[self.label].to_pylist()
        self.labels += ["" if value is None else str(value) for value in found]
        self.keys = np.concatenate([self.keys, self.rng.random(len(scores))])
        self.scores = scores if self.scores is None else np.concatenate([self.scores, scores])
        self.n_rows += len(scores)
        if len(self.keys) > _MAX_POINTS:
            chosen = np.sort(np.argpartition(self.keys, _MAX_POINTS)[:_MAX_POINTS])
            self.keys, self.scores = self.keys[chosen], self.scores[chosen]
            self.labels = [self.labels[i] for i in chosen]


def _draw(path: Path, found: Reduction, sample: _Sample) -> None:
    from cpcapp.plotting import contrast_figure

    model = found.model
    assert sample.scores is not None
    title = f"{model.method}, {sample.n_rows:,} rows"
    if sample.n_rows > len(sample.scores):
        title += f" ({len(sample.scores):,} shown)"
    figure = contrast_figure(
        sample.scores,
        sample.labels if sample.label is not None else None,
        weights=found.weights,
        feature_names=model.features,
        eigenvalues=model.eigenvalues,
        title=title,
        label_title=sample.label or "",
    )
    with atomic_write(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)


def _write_loadings(path: Path, found: Reduction) -> None:
    model = found.model
    numbers = range(1, model.n_components + 1)
    kinds = (("filter", model.components), ("atom", model.atoms), ("weight", found.weights))
    names = [f"{kind}_{i}" for kind, _ in kinds for i in numbers]
    values = np.concatenate([matrix for _, matrix in kinds]).T.tolist()
    rows = ([name, *row] for name, row in zip(model.features, values, strict=True))
    write_rows(path, ["feature", *names], rows)


def _write_top_features(path: Path, found: Reduction) -> None:
    rows = [
        (component + 1, rank + 1, name, weight)
        for component, top in enumerate(found.top_features(_TOP_WRITTEN))
        for rank, (name, weight) in enumerate(top)
    ]
    write_rows(path, ["component", "rank", "feature", "weight"], rows)


def _summary(found: Reduction) -> dict[str, Any]:
    model = found.model
    return {
        "cpcapp": __version__,
        "numpy": np.__version__,
        "method": model.method,
        "standardize": model.standardize,
        "missing": model.missing,
        "alpha": number(model.facts.get("alpha")),
        "n_features": len(model.features),
        "n_components": model.n_components,
        "eigenvalues": model.eigenvalues.tolist(),
        "components_that_stand_out": found.n_real,
        "components_that_stand_out_by": found.n_real_by,
        "constant_in_background": found.new_features,
        "constant": found.still_features,
        "target": {**_origin(found.target.selection), **found.target.tally.to_dict()},
        "background": None
        if found.background is None
        else {**_origin(found.background.selection), **found.background.tally.to_dict()},
        "top_features": [
            [{"feature": name, "weight": number(weight)} for name, weight in top]
            for top in found.top_features(_TOP_PRINTED)
        ],
    }


def _origin(selection: Selection) -> dict[str, Any]:
    values = None if selection.values is None else sorted(selection.values)
    return {
        "table": selection.table.name,
        "split": selection.column,
        "values": values,
        "all_values_but": sorted(selection.but) or None if values is None else None,
    }


def _lines(found: Reduction) -> Iterator[str]:
    for side in (found.target, found.background):
        if side is not None:
            yield _side_line(side)
    model = found.model
    extra = f", alpha {model.facts['alpha']:.3g}" if "alpha" in model.facts else ""
    yield f"{'features':11} {len(model.features)}, method {model.method}{extra}"
    for still, where in (
        (found.new_features, "in the background"),
        (found.still_features, "at all"),
    ):
        if still:
            verb = "varies" if len(still) == 1 else "vary"
            yield f"{'note':11} {listed(still)} never {verb} {where}"
    what = {"cpca++": "times the variance of the background", "pca": "variance"}
    for i, top in enumerate(found.top_features(_TOP_PRINTED)):
        names = ", ".join(f"{name} {weight:+.3g}" for name, weight in top)
        meaning = what.get(model.method, "eigenvalue")
        yield f"component {i + 1} {model.eigenvalues[i]:.4g} {meaning}; most of it: {names}"
    if found.n_real is not None:
        some = f"{found.n_real} component{'s stand' if found.n_real != 1 else ' stands'}"
        yield f"{some} out from noise ({found.n_real_by})"
    elif model.method == "cpca++":
        yield f"how many components stand out from noise was not tested: {found.n_real_by}"


def _doubts(side: Side) -> Iterator[str]:
    """Say which features are hardly measurements: nobody named them, they were left over."""
    for name, count in side.label_like.labels.items():
        yield (
            f"{name!r} is taken as a feature, but has only {count} values, all whole numbers. If "
            f"it is a label: --label {_quoted(name)} (or --drop)"
        )
    for name in side.label_like.row_numbers:
        yield (
            f"{name!r} is taken as a feature, but counts the rows. If it names them: "
            f"--id {_quoted(name)} (or --drop)"
        )


def _quoted(name: str) -> str:
    return shlex.quote(f'"{name}"' if "," in name else name)


def _side_line(side: Side) -> str:
    selection, tally = side.selection, side.tally
    where = ""
    if selection.column is not None:
        values = selection.but if selection.values is None else selection.values
        sign = "is not" if selection.values is None else "is"
        where = f" where {selection.column} {sign} {' or '.join(sorted(values))}"
    notes = [
        f"{count:,} {what if count != 1 else one}"
        for count, one, what in (
            (tally.n_bad, "bad row skipped", "bad rows skipped"),
            (
                0 if tally.n_filled else tally.n_incomplete,
                "row with missing values dropped",
                "rows with missing values dropped",
            ),
            (tally.n_filled, "missing value filled", "missing values filled"),
        )
        if count
    ]
    remark = f" ({', '.join(notes)})" if notes else ""
    return f"{selection.role:11} {tally.n_used:,} rows of {printable(selection.table.name)}{where}{remark}"
