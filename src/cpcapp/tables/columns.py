"""Choose columns and rows: features, labels, and the rows of each set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cpcapp.tables.messages import TableError, count_of, quote_names
from cpcapp.tables.read.table import Chunk, Progress, Table, as_texts

# Distinct values of a split column that are counted for messages: enough for any real one, and a
# bound on the memory if the column holds ids.
_MAX_COUNTED_VALUES = 10_000
_MAX_LISTED_VALUES = 8


@dataclass(frozen=True)
class Columns:
    """The roles of the columns of a table; whether the user named the features one by one."""

    features: list[str]
    ids: list[str]
    labels: list[str]
    explicit: bool = False

    @property
    def kept(self) -> list[str]:
        """Columns that are copied to the scores, in this order."""
        return list(dict.fromkeys([*self.ids, *self.labels]))


def as_names(names: Iterable[Any] | str | None) -> list[str]:
    """Return one name or several as a list, each once."""
    if names is None:
        return []
    if isinstance(names, str):
        return [names]
    return list(dict.fromkeys(str(name) for name in names))


def choose_columns(
    table: Table,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    ids: Sequence[str] = (),
    labels: Sequence[str] = (),
    split: str | None = None,
) -> Columns:
    """Return the roles of the columns; features are all without another role, or those named.

    ``split`` is the column that says to which set a row belongs.
    """
    if not ids and table.row_names is not None and table.row_names not in drop:
        ids = [table.row_names]
    others = [] if split is None else [split]
    roles = {"columns": columns or (), "drop": drop, "ids": ids, "labels": labels, "split": others}
    for role, names in roles.items():
        absent = table.find_absent(names)
        if absent:
            raise TableError(
                f"{table.name} has no column {quote_names(absent)}; its columns are "
                f"{quote_names(table.columns, 8)}",
                f"correct {{{role}}}",
            )
    not_features = {*drop, *ids, *labels, *others}
    if table.row_names is not None:
        not_features.add(table.row_names)
    if columns is None:
        features = [name for name in table.default_features if name not in not_features]
    else:
        dropped = set(drop)
        features = [name for name in dict.fromkeys(columns) if name not in dropped]
        kept = {*ids, *labels, *others}
        both = [name for name in features if name in kept]
        if both:
            raise TableError(
                f"column {quote_names(both)} can't be a feature and an id or label at once"
            )
    if not features:
        raise TableError(f"{table.name}: no column is left to be a feature")
    _require_numbers(table, features)
    return Columns(features, list(ids), list(labels), explicit=columns is not None)


def _require_numbers(table: Table, features: Sequence[str]) -> None:
    text = table.text_columns(features)
    if text:
        raise TableError(
            f"{table.name}: column {quote_names(text)} is not numeric",
            "copy it to the scores with {labels} or {ids}, or leave it out with {drop}",
            labels=text if len(text) <= 3 else [*text[:2], "..."],
        )


def match_columns(background: Table, features: Sequence[str], target: Table) -> None:
    """Raise `TableError` unless the background has all features of the target, as numbers."""
    absent = background.find_absent(features)
    if absent:
        raise TableError(
            f"{background.name} has no column {quote_names(absent)}, which {target.name} has",
            "leave such columns out with {drop}, or choose the features with {columns}",
        )
    text = background.text_columns(features)
    if text:
        raise TableError(
            f"{background.name}: column {quote_names(text)} is not numeric",
            "leave it out with {drop}",
        )


@dataclass(frozen=True)
class Selection:
    """A table, or its rows whose value in one column is among some, or is not excluded."""

    table: Table
    role: str = "target"
    column: str | None = None
    values: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()

    def chunks(
        self,
        features: Sequence[str],
        kept: Sequence[str],
        progress: Progress | None = None,
        value_counts: Counter[str] | None = None,
    ) -> Iterator[Chunk]:
        """Yield the selected rows; ``value_counts`` gets the split column's values in all rows."""
        if self.column is None:
            yield from self.table.chunks(features, kept, progress)
            return
        read = list(dict.fromkeys([*kept, self.column]))
        for chunk in self.table.chunks(features, read, progress):
            texts = as_texts(chunk.kept[self.column])
            if value_counts is not None:
                self._count(texts, value_counts)
            if self.values is None:
                selected = [text not in self.excluded and text != "" for text in texts]
            else:
                selected = [text in self.values for text in texts]
            yield chunk.select_rows(np.array(selected, dtype=bool), kept)

    def _count(self, texts: list[str], value_counts: Counter[str]) -> None:
        wanted = self.values or frozenset()
        for text, count in Counter(texts).items():
            if text in value_counts or text in wanted or len(value_counts) < _MAX_COUNTED_VALUES:
                value_counts[text] += count

    def check_values(self, value_counts: Counter[str]) -> None:
        """Raise `TableError` if a value was asked for that no row has."""
        absent = sorted((self.values or frozenset()) - set(value_counts))
        if absent:
            raise TableError(
                f"{self.table.name}: no row has {quote_names(absent)} in column {self.column!r}; "
                f"{_describe_values(value_counts)}",
                f"correct {{{self.role}_values}}",
            )


def _describe_values(value_counts: Counter[str]) -> str:
    named = [(value, count) for value, count in value_counts.most_common() if value]
    if not named:
        return "it has no values"
    number = f"{len(named):,}" + ("" if len(named) < _MAX_COUNTED_VALUES else " or more")
    listed = [
        f"{value!r} ({count_of(count, 'row')})" for value, count in named[:_MAX_LISTED_VALUES]
    ]
    more = ", ..." if len(named) > len(listed) else ""
    return f"it has {number} value{'s' if len(named) > 1 else ''}: {', '.join(listed)}{more}"


def choose_sets(
    target: Table,
    background: Table | None,
    *,
    split: str | None = None,
    target_values: Iterable[Any] | str | None = None,
    background_values: Iterable[Any] | str | None = None,
) -> tuple[Selection, Selection | None]:
    """Return the rows of target and background: two tables, or one with a split column.

    Without ``target_values`` all rows that are not background are the target.
    """
    inside, outside = frozenset(as_names(target_values)), frozenset(as_names(background_values))
    if split is None:
        if inside or outside:
            raise TableError(
                "values are given, but no column to look them up in", "name the column with {split}"
            )
        other = None if background is None else Selection(background, "background")
        return Selection(target), other
    if background is not None:
        raise TableError("the background is given twice", "give either {background} or {split}")
    if not inside and not outside:
        raise TableError(
            f"column {split!r} is to split the table, but by no value", "give {background_values}"
        )
    if inside & outside:
        both = sorted(inside & outside)
        raise TableError(f"{both[0]!r} can't be target and background at once")
    own = Selection(target, "target", split, inside or None, outside)
    return own, Selection(target, "background", split, outside) if outside else None
