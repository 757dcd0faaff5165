"""Leave out rows that can't be used, and fill in missing values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp.tables.messages import TableError, check_choice, count_of
from cpcapp.tables.read.table import Chunk, Table

MISSING_RULES = ("error", "zero", "mean", "drop")
# Problems that a message lists.
_MAX_LISTED = 5


@dataclass
class RowCounts:
    """How many rows were read, used and left out, and where the first problems are.

    Bad rows have the wrong number of fields, text in place of a number, or infinity.
    """

    n_rows: int = 0
    n_used: int = 0
    n_bad: int = 0
    n_incomplete: int = 0  # rows with missing values
    n_missing: int = 0
    n_filled: int = 0
    # Position and reason of the first few.
    bad: list[tuple[int, str]] = field(default_factory=list)
    incomplete: list[tuple[int, str]] = field(default_factory=list)

    def to_dict(self) -> dict[str, int]:
        """Return the counts, for JSON."""
        return {
            "rows": self.n_rows,
            "rows_used": self.n_used,
            "rows_bad": self.n_bad,
            "rows_with_missing_values": self.n_incomplete,
            "missing_values": self.n_missing,
            "values_filled": self.n_filled,
        }


class Cleaner:
    """Selects the rows that can be used, fills in missing values, and counts both.

    Missing values stop the work, become 0 or ``fill``, or their row is dropped. Bad rows are
    errors, or are left out.
    """

    def __init__(
        self, missing: str, fill: NDArray[np.float64] | None = None, *, skip_bad_rows: bool = False
    ) -> None:
        check_choice("missing", missing, MISSING_RULES)
        self.missing, self.fill, self.skip_bad_rows = missing, fill, skip_bad_rows
        self.counts = RowCounts()

    def clean(self, chunks: Iterator[Chunk], features: Sequence[str]) -> Iterator[Chunk]:
        """Yield the usable rows; all their values are finite."""
        for chunk in chunks:
            self.counts.n_rows += len(chunk.rows) + len(chunk.unreadable)
            held = chunk.values.data if sp.issparse(chunk.values) else chunk.values
            if chunk.bad or chunk.unreadable or not np.isfinite(held).all():
                chunk = self._clean_one(chunk, features)
            self.counts.n_used += len(chunk.rows)
            if len(chunk.rows):
                yield chunk

    def _clean_one(self, chunk: Chunk, features: Sequence[str]) -> Chunk:
        counts = self.counts
        # Few chunks come here, so a dense copy is no burden.
        values = chunk.values.toarray() if sp.issparse(chunk.values) else chunk.values
        bad = dict(chunk.bad)
        for row, column in np.argwhere(np.isinf(values)):
            bad.setdefault(int(row), f"column {features[column]!r} is infinite")
        listed = [(int(chunk.positions[row]), reason) for row, reason in bad.items()]
        counts.bad += sorted(listed + chunk.unreadable)[: _MAX_LISTED - len(counts.bad)]
        counts.n_bad += len(listed) + len(chunk.unreadable)
        usable = np.ones(len(chunk.rows), dtype=bool)
        usable[list(bad)] = False
        missing = np.isnan(values) & usable[:, None]
        incomplete = missing.any(axis=1)
        for row in np.flatnonzero(incomplete)[: _MAX_LISTED - len(counts.incomplete)]:
            name = features[int(missing[row].argmax())]
            counts.incomplete.append((int(chunk.positions[row]), f"column {name!r}"))
        counts.n_missing += int(missing.sum())
        counts.n_incomplete += int(incomplete.sum())
        if self.missing in ("error", "drop"):
            usable &= ~incomplete
        else:
            fill: Any = 0.0 if self.missing == "zero" else self.fill
            values = np.where(missing, fill, values)
            counts.n_filled += int(missing.sum())
        return Chunk(chunk.rows, chunk.positions, values, chunk.kept).select_rows(usable)

    def find_error(self, table: Table) -> TableError | None:
        """Return what is wrong if there were bad rows or missing values that are not allowed."""
        counts = self.counts
        if counts.n_bad and not self.skip_bad_rows:
            bad = _list_problems(counts.bad, table.unit, counts.n_bad)
            return TableError(
                f"{table.name}: {count_of(counts.n_bad, 'bad row')}: {bad}",
                "correct them, or leave them out with {skip_bad_rows}",
                skip_bad_rows=True,
            )
        if counts.n_incomplete and self.missing == "error":
            where = _list_problems(counts.incomplete, table.unit, counts.n_incomplete)
            return TableError(
                f"{table.name}: {count_of(counts.n_missing, 'missing value')} in "
                f"{count_of(counts.n_incomplete, 'row')}: {where}",
                "fill them in with {missing}, or use 'mean', or 'drop' to leave out the rows",
                missing="zero",
            )
        return None


def describe_skipped(counts: RowCounts, table: Table) -> str:
    """Return in one line which bad rows were left out; nothing if there were none."""
    if not counts.n_bad:
        return ""
    bad = _list_problems(counts.bad, table.unit, counts.n_bad)
    return f"{table.name}: {count_of(counts.n_bad, 'bad row')} left out: {bad}"


def describe_incomplete(counts: RowCounts, table: Table) -> str:
    """Return in one line which rows with missing values were left out, or how many were filled."""
    if not counts.n_incomplete:
        return ""
    rows = f"{count_of(counts.n_incomplete, 'row')} with missing values"
    if counts.n_filled:
        return f"{table.name}: {count_of(counts.n_filled, 'missing value')} filled in, in {rows}"
    where = _list_problems(counts.incomplete, table.unit, counts.n_incomplete)
    return f"{table.name}: {rows} left out: {where}"


def _list_problems(found: Sequence[tuple[int, str]], unit: str, total: int) -> str:
    more = f"; and {total - len(found):,} more" if total > len(found) else ""
    return "; ".join(f"{unit} {position}: {reason}" for position, reason in found) + more
