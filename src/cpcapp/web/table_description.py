"""Say what two tables hold, before anything is computed from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from cpcapp.tables.read.numbers import MISSING
from cpcapp.tables.read.table import Chunk, ProgressReport, Table, report_nothing
from cpcapp.tables.reduce import AnyTable, open_rereadable
from cpcapp.tables.sample_sets import KeptRows

# Different values of a column are counted up to here: a bound on the memory if it holds ids.
_MAX_DISTINCT = 1000
# Chosen by eye: a text with more values than this is a name rather than a class.
_MAX_CLASSES = 40
_LABEL_NAME = re.compile(
    r"label|class|group|type|condition|cluster|species|categor|diagnos|treat|target|outcome|status",
    re.IGNORECASE,
)


def describe_tables(
    target: AnyTable, background: AnyTable, report: ProgressReport = report_nothing
) -> dict[str, Any]:
    """Return what two tables hold, for a person who chooses columns, in types that JSON knows."""
    target, background = open_rereadable(target, "auto"), open_rereadable(background, None)
    ours, theirs = _TableCounter(target), _TableCounter(background)
    for counter, role in ((ours, "target"), (theirs, "background")):
        with report(f"reading {role}") as share:
            for chunk in counter.table.chunks(counter.numeric, list(counter.texts), share):
                counter.update(chunk)
    reasons = find_unusable(target, background)
    columns = [
        _describe_column(name, ours, theirs, reasons.get(name, "")) for name in target.columns
    ]
    labels, row_numbers = ours.rows.find_labels()
    label = _suggest_label(columns, ours, labels)
    doubtful = {*labels, *row_numbers, *([label] if label else [])}
    for column in columns:
        column["selected"] = column["usable"] and column["name"] not in doubtful
    if not any(column["selected"] for column in columns):
        for column in columns:
            column["selected"] = column["usable"] and column["name"] != label
    return {
        "columns": columns,
        "label": label,
        "only_in_background": [
            name for name in background.columns if name not in target.column_index
        ],
        "target": ours.to_dict(),
        "background": theirs.to_dict(),
    }


def find_unusable(target: Table, background: Table) -> dict[str, str]:
    """Return why columns of the target can't be features, for those that can't."""
    shared = [name for name in target.columns if name in background.column_index]
    reasons = dict.fromkeys(background.text_columns(shared), "text in the background")
    reasons |= dict.fromkeys(background.find_absent(target.columns), "not in the background")
    reasons |= dict.fromkeys(target.text_columns(target.columns), "text")
    if target.row_names is not None:
        reasons[target.row_names] = "names of rows"
    return reasons


class _TableCounter:
    """Counts rows, missing values and different values of each column."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.texts = list(table.text_columns(table.columns))
        self.numeric = [name for name in table.columns if name not in set(self.texts)]
        self.n_rows = self.n_bad = 0
        self.problems: list[str] = []
        self.missing = dict.fromkeys(table.columns, 0)
        self.distinct: dict[str, set[Any]] = {name: set() for name in table.columns}
        self.rows = KeptRows(self.numeric)

    def update(self, chunk: Chunk) -> None:
        """Count further rows."""
        self.n_rows += len(chunk.rows) + len(chunk.unreadable)
        bad = [(int(chunk.positions[row]), reason) for row, reason in chunk.bad.items()]
        bad = sorted(bad + chunk.unreadable)
        self.n_bad += len(bad)
        first = bad[: 5 - len(self.problems)]
        self.problems += [f"{self.table.unit} {place}: {reason}" for place, reason in first]
        usable = np.ones(len(chunk.rows), dtype=bool)
        usable[list(chunk.bad)] = False
        if self.numeric and usable.any():
            self.rows.update(chunk.select_rows(usable))
        if not sp.issparse(chunk.values):  # else of counts, which are neither missing nor labels
            for name, values in zip(self.numeric, chunk.values.T, strict=False):
                is_missing = np.isnan(values)
                self.missing[name] += int(is_missing.sum())
                if len(self.distinct[name]) < _MAX_DISTINCT:
                    self._add(name, np.unique(values[~is_missing])[:_MAX_DISTINCT].tolist())
        for name in self.texts:
            self._update_text(name, chunk.kept[name])

    def _update_text(self, name: str, column: Any) -> None:
        import pyarrow as pa

        try:
            entries = column.value_counts().to_pylist()
        except pa.ArrowNotImplementedError:  # lists and the like, which are of no use here
            self.missing[name] += column.null_count
            return
        counts = [(entry["values"], entry["counts"]) for entry in entries]
        missing = [value is None or str(value) in MISSING for value, _ in counts]
        self.missing[name] += sum(n for (_, n), gone in zip(counts, missing, strict=True) if gone)
        self._add(name, [str(v) for (v, _), gone in zip(counts, missing, strict=True) if not gone])

    def _add(self, name: str, values: Sequence[Any]) -> None:
        seen = self.distinct[name]
        seen.update(values[: _MAX_DISTINCT - len(seen)])

    def has_no_values(self, name: str) -> bool:
        """Whether all values of a column are missing."""
        return name in self.missing and not self.distinct[name] and self.missing[name] > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, for JSON."""
        more = self.n_bad - len(self.problems)
        return {
            "name": self.table.name,
            "n_rows": self.n_rows,
            "n_columns": len(self.table.columns),
            "n_bad_rows": self.n_bad,
            "problems": self.problems + ([f"and {more:,} more"] if more else []),
        }


def _describe_column(
    name: str, ours: _TableCounter, theirs: _TableCounter, reason: str
) -> dict[str, Any]:
    if not reason and ours.has_no_values(name):
        reason = "no values"
    elif not reason and theirs.has_no_values(name):
        reason = "no values in the background"
    return {
        "name": name,
        "kind": "text" if name in ours.texts else "number",
        "missing": ours.missing[name],
        "missing_in_background": theirs.missing.get(name, 0),
        "distinct": len(ours.distinct[name]),
        "shared": name in theirs.missing,
        "usable": not reason,
        "reason": reason,
    }


def _suggest_label(
    columns: Sequence[dict[str, Any]], ours: _TableCounter, labels: Iterable[str]
) -> str | None:
    # With one row each, texts are names.
    most = min(_MAX_CLASSES, ours.n_rows - 1)
    few = [c["name"] for c in columns if c["kind"] == "text" and 2 <= c["distinct"] <= most]
    candidates = [*few, *labels]
    named = [name for name in candidates if _LABEL_NAME.search(name)]
    return next(iter([*named, *candidates]), None)
