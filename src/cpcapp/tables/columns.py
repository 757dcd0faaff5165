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
    return [names] if isinstance(names, str) else list(dict.fromkeys(map(str, names)))


def choose_columns(
    table: Table,
    *,
    columns: Iterable[str] | str | None = None,
    drop: Iterable[str] | str = (),
    ids: Iterable[str] | str = (),
    labels: Iterable[str] | str = (),
    split: str | None = None,
) -> Columns:
    """Return the roles of the columns; features are all without another role, or those named.

    ``split`` is the column that says to which set a row belongs.
    """
    chosen, roles = as_names(columns), {"drop": as_names(drop), "ids": as_names(ids)}
    if not roles["ids"] and table.row_names is not None and table.row_names not in roles["drop"]:
        roles["ids"] = [table.row_names]
    roles |= {"labels": as_names(labels), "split": as_names(split)}
    for role, names in {"columns": chosen, **roles}.items():
        if absent := table.find_absent(names):
            raise TableError(
                f"{table.name} has no column {quote_names(absent)}; its columns are "
                f"{quote_names(table.columns, 8)}",
                f"correct {{{role}}}",
            )
    others = {name for names in roles.values() for name in names}
    if columns is None:
        others.add(table.row_names or "")
        features = [name for name in table.default_features if name not in others]
    else:
        dropped = set(roles["drop"])
        features = [name for name in chosen if name not in dropped]
        if both := [name for name in features if name in others]:
            raise TableError(
                f"column {quote_names(both)} can't be a feature and an id or label at once"
            )
    if not features:
        raise TableError(f"{table.name}: no column is left to be a feature")
    if text := table.text_columns(features):
        raise TableError(
            f"{table.name}: column {quote_names(text)} is not numeric",
            "copy it to the scores with {labels} or {ids}, or leave it out with {drop}",
            labels=text if len(text) <= 3 else [*text[:2], "..."],
        )
    return Columns(features, roles["ids"], roles["labels"], explicit=columns is not None)


def match_columns(background: Table, features: Sequence[str], target: Table) -> None:
    """Raise `TableError` unless the background has all features of the target, as numbers."""
    if absent := background.find_absent(features):
        raise TableError(
            f"{background.name} has no column {quote_names(absent)}, which {target.name} has",
            "leave such columns out with {drop}, or choose the features with {columns}",
        )
    if text := background.text_columns(features):
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
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield the selected rows; raise `TableError` if a value was asked for that no row has."""
        if self.column is None:
            yield from self.table.chunks(features, kept, progress)
            return
        counts, wanted = Counter[str](), self.values or frozenset()
        read = list(dict.fromkeys([*kept, self.column]))
        for chunk in self.table.chunks(features, read, progress):
            texts = as_texts(chunk.kept[self.column])
            for text, count in Counter(texts).items():
                if text in counts or text in wanted or len(counts) < _MAX_COUNTED_VALUES:
                    counts[text] += count
            if self.values is None:
                selected = [text not in self.excluded and text != "" for text in texts]
            else:
                selected = [text in wanted for text in texts]
            yield chunk.select_rows(np.array(selected, dtype=bool), kept)
        absent = sorted(wanted - set(counts))
        if absent:
            raise TableError(
                f"{self.table.name}: no row has {quote_names(absent)} in column {self.column!r}; "
                f"{_describe_values(counts)}",
                f"correct {{{self.role}_values}}",
            )

    def condition(self) -> str:
        """Return in words which rows of the table these are; nothing if all."""
        if self.column is None:
            return ""
        values = self.excluded if self.values is None else self.values
        verb = "is not" if self.values is None else "is"
        return f" where {self.column} {verb} {' or '.join(sorted(values))}"


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
    split: str | None,
    target_values: Iterable[Any] | str | None,
    background_values: Iterable[Any] | str | None,
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
    target_rows = Selection(target, "target", split, inside or None, outside)
    return target_rows, Selection(target, "background", split, outside) if outside else None
