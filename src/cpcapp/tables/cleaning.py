"""What becomes of rows that can't be used, and of values that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cpcapp.tables._table import Chunk, TableError
from cpcapp.tables.choosing import taken

MISSING_RULES = ("error", "zero", "mean", "drop")
_SHOWN = 5


@dataclass
class Tally:
    """How many rows were read, used and left out, and the first of those that are trouble."""

    n_rows: int = 0
    n_used: int = 0
    n_bad: int = 0
    n_incomplete: int = 0
    n_missing: int = 0
    n_filled: int = 0
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
    """Takes chunks, gives back those rows of them that can be used, and keeps count.

    Parameters
    ----------
    missing : {"error", "zero", "mean", "drop"}
        What to do about missing values.
    fill : ndarray of shape (n_features,), optional
        What to put in their place with ``missing="mean"``.
    skip_bad_rows : bool
    """

    def __init__(
        self, missing: str, fill: NDArray[np.float64] | None = None, *, skip_bad_rows: bool = False
    ) -> None:
        if missing not in MISSING_RULES:
            raise ValueError(f"missing={missing!r} must be one of {', '.join(MISSING_RULES)}")
        self.missing, self.fill, self.skip_bad_rows = missing, fill, skip_bad_rows
        self.tally = Tally()

    def clean(self, chunks: Iterator[Chunk], features: Sequence[str]) -> Iterator[Chunk]:
        """Yield chunks of finite numbers."""
        for chunk in chunks:
            found = self._clean_one(chunk, features)
            if len(found.rows):
                yield found

    def _clean_one(self, chunk: Chunk, features: Sequence[str]) -> Chunk:
        tally, values = self.tally, chunk.values
        tally.n_rows += len(chunk.rows) + len(chunk.broken)
        held = values.data if sp.issparse(values) else values
        if not chunk.bad and not chunk.broken and np.isfinite(held).all():
            tally.n_used += len(chunk.rows)
            return chunk
        # A few chunks at most; and zeros may have to be filled in.
        values = values.toarray() if sp.issparse(values) else values
        usable = self._without_bad(chunk, values, features)
        missing = np.isnan(values) & usable[:, None]
        incomplete = missing.any(axis=1)
        tally.n_missing += int(missing.sum())
        tally.n_incomplete += int(incomplete.sum())
        for row in np.flatnonzero(incomplete)[: _SHOWN - len(tally.incomplete)]:
            name = features[int(missing[row].argmax())]
            tally.incomplete.append((int(chunk.places[row]), f"column {name!r}"))
        if self.missing in ("error", "drop"):
            usable &= ~incomplete
        else:
            fill: Any = 0.0 if self.missing == "zero" else self.fill
            values = np.where(missing, fill, values)
            tally.n_filled += int(missing.sum())
        tally.n_used += int(usable.sum())
        whole = Chunk(chunk.rows, chunk.places, values, chunk.kept)
        return taken(whole, usable, list(chunk.kept))

    def _without_bad(
        self, chunk: Chunk, values: NDArray[np.float64], features: Sequence[str]
    ) -> NDArray[np.bool_]:
        """Return which rows can be used, and count the others."""
        found = dict(chunk.bad)
        for row, column in np.argwhere(np.isinf(values)):
            reason = f"column {features[column]!r} is infinite"
            found.setdefault(int(row), reason)
        places = [(int(chunk.places[row]), reason) for row, reason in found.items()]
        self.tally.n_bad += len(found) + len(chunk.broken)
        room = _SHOWN - len(self.tally.bad)
        self.tally.bad += sorted(places + chunk.broken)[:room]
        usable = np.ones(len(chunk.rows), dtype=bool)
        usable[list(found)] = False
        return usable

    @property
    def may_go_on(self) -> bool:
        """Whether nothing has come up so far that `check` would raise."""
        bad = self.tally.n_bad and not self.skip_bad_rows
        return not bad and not (self.tally.n_incomplete and self.missing == "error")

    def check(self, name: str, place: str) -> None:
        """Raise `TableError` if there was something that may not be passed over.

        Parameters
        ----------
        name : str
            Of the table.
        place : {"line", "row"}
        """
        tally = self.tally
        if tally.n_bad and not self.skip_bad_rows:
            raise TableError(
                f"{name}: {_count(tally.n_bad, 'bad row')}: {_shown(tally.bad, place, tally.n_bad)}"
                "; correct them, or go on without them with --skip-bad-rows"
            )
        if tally.n_incomplete and self.missing == "error":
            where = _shown(tally.incomplete, place, tally.n_incomplete)
            raise TableError(
                f"{name}: {_count(tally.n_missing, 'missing value')} in "
                f"{_count(tally.n_incomplete, 'row')}: {where}; choose --missing zero, mean or "
                "drop (the row)"
            )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _shown(found: Sequence[tuple[int, str]], place: str, total: int) -> str:
    more = f"; and {total - len(found):,} more" if total > len(found) else ""
    return "; ".join(f"{place} {number}: {reason}" for number, reason in found) + more
