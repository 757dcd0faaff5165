"""The rows of two tables as points in the planes of each method, with their names and labels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.files import atomic_write
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.cleaning import describe_incomplete, describe_skipped
from cpcapp.tables.columns import Columns
from cpcapp.tables.read.numbers import MISSING, guess_number
from cpcapp.tables.read.table import Chunk, ProgressReport
from cpcapp.tables.reduce import contrast_about
from cpcapp.tables.sample_sets import SampleSet
from cpcapp.web.method_planes import N_COMPONENTS, MethodPlanes

SEED = 0
# Classes that are told apart by name; those beyond are "other". Names of rows are copied as long.
_MAX_CLASSES, _MAX_TEXT = 200, 80
# More different numbers than this are a range of colours, fewer are classes.
_MAX_NUMBER_CLASSES = 8


class DrawnPoints:
    """The rows of a set that are drawn: a sample if there are many, the same in every run."""

    def __init__(
        self, sample_set: SampleSet, planes: MethodPlanes, roles: Columns, max_points: int
    ) -> None:
        self.sample_set, self.planes, self.roles = sample_set, planes, roles
        self.role = sample_set.selection.role
        n_rows = sample_set.moments.n_samples
        self.chosen = np.arange(n_rows)
        if n_rows > max_points:
            rng = np.random.default_rng(SEED)
            self.chosen = np.sort(rng.choice(n_rows, max_points, replace=False))
        self.files = {
            method: f"{self.role}-{method.replace('+', 'p')}.f32"
            for method in ("pca", "cpca", "cpca++")
        }
        self.files["values"] = f"{self.role}-values.f32"
        self._parts: dict[str, list[NDArray[Any]]] = {
            name: [] for name in ("positions", "fixed", "sweep", "values")
        }
        self.texts: dict[str, list[Any]] = {name: [] for name in roles.kept}
        # The classes or the range of the label; see `encode_label`.
        self.label: dict[str, Any] | None = None

    def read(self, report: ProgressReport) -> Iterator[tuple[Chunk, FloatArray]]:
        """Read the rows once more; yield all with their scores, and keep those to draw."""
        planes = self.planes
        about, scale = contrast_about(planes.plus, self.sample_set), self.sample_set.scale
        fixed_planes = replace(about, filters=planes.filters.T)
        sweep = replace(about, filters=planes.sweep.reshape(-1, len(scale)).T)
        shown = [self.sample_set.features.index(name) for name in planes.shown_features]
        done = 0
        with report(f"drawing {self.role}") as share:
            for chunk in self.sample_set.clean_rows(self.roles.kept, share):
                values = (
                    chunk.values if isinstance(chunk.values, np.ndarray) else chunk.values.toarray()
                )
                fixed = fixed_planes.transform(values / scale)
                n_rows = len(chunk.rows)
                low, high = np.searchsorted(self.chosen, (done, done + n_rows))
                drawn = self.chosen[low:high] - done
                done += n_rows
                self._parts["positions"].append(chunk.positions[drawn])
                self._parts["fixed"].append(fixed[drawn].astype("<f4"))
                part = sweep.transform(values[drawn] / scale)
                self._parts["sweep"].append(part.astype("<f4"))
                self._parts["values"].append(values[drawn][:, shown].astype("<f4"))
                for name, column in chunk.kept.items():
                    self.texts[name] += column.take(drawn).to_pylist()
                yield chunk, fixed

    def write(self, folder: Path) -> None:
        """Write what `read` has kept."""
        found = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        n_alphas = len(self.planes.alphas)
        sweep = found["sweep"].reshape(-1, n_alphas, N_COMPONENTS).transpose(1, 0, 2)
        arrays = {
            self.files["pca"]: found["fixed"][:, :2],
            self.files["cpca"]: sweep,
            self.files["cpca++"]: found["fixed"][:, 4:],
            self.files["values"]: found["values"],
        }
        if self.role == "target" and self.roles.labels:
            name = self.roles.labels[0]
            self.files["label"] = "target-label.f32"
            self.label, arrays[self.files["label"]] = encode_label(name, self.texts.pop(name))
        for name, array in arrays.items():
            with atomic_write(folder / name) as file:
                file.write(np.ascontiguousarray(array, dtype="<f4").tobytes())
        rows = {
            "unit": self.sample_set.selection.table.unit,
            "positions": found["positions"].tolist(),
            "ids": {
                name: ["" if value is None else str(value)[:_MAX_TEXT] for value in texts]
                for name, texts in self.texts.items()
                if any(value is not None for value in texts)
            },
        }
        with atomic_write(folder / f"{self.role}-rows.json") as file:
            file.write(json.dumps(rows).encode())

    def describe(self) -> dict[str, Any]:
        """Return the counts of the rows, and why some were left out."""
        counts, table = self.sample_set.counts, self.sample_set.selection.table
        reasons = [describe_skipped(counts, table), describe_incomplete(counts, table)]
        return {
            "table": table.name,
            **counts.to_dict(),
            "rows_left_out": counts.n_rows - counts.n_used,
            "reasons": [reason for reason in reasons if reason],
            "drawn": len(self.chosen),
            "sampled": len(self.chosen) < counts.n_used,
        }


def encode_label(name: str, values: Sequence[Any]) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Return what a label is, and a number for each row: itself, or the index of its class.

    NaN is missing.
    """
    texts = ["" if value is None else str(value).strip() for value in values]
    texts = ["" if text in MISSING else text for text in texts]
    counts = Counter(text for text in texts if text)
    numbers = {text: guess_number(text, ".") for text in counts}
    is_number = bool(counts) and all(
        number is not None and np.isfinite(number) for number in numbers.values()
    )
    n_missing = texts.count("")
    if is_number and len({*numbers.values()}) > _MAX_NUMBER_CLASSES:
        codes = np.array([numbers[text] if text else np.nan for text in texts], dtype=np.float64)
        low, high = float(np.nanmin(codes)), float(np.nanmax(codes))
        described = {"kind": "number", "low": low, "high": high}
        return {"name": name, **described, "missing": n_missing}, codes
    common = [text for text, _ in counts.most_common(_MAX_CLASSES)]
    common.sort(key=lambda text: (numbers[text], text) if is_number else (0.0, text))
    rest = counts.total() - sum(counts[text] for text in common)
    classes = [{"name": text[:_MAX_TEXT], "count": counts[text]} for text in common]
    index = {text: i for i, text in enumerate(common)}
    if rest:
        classes.append({"name": "other", "count": rest})
    codes = np.array([index.get(text, len(common)) if text else np.nan for text in texts], float)
    return {"name": name, "kind": "class", "classes": classes, "missing": n_missing}, codes
