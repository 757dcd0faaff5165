"""Which columns and rows of a table take part, and as what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cpcapp.tables._table import Chunk, Progress, Table, TableError, listed


@dataclass(frozen=True)
class Columns:
    """Names of the columns that are measured, and of those that are handed on.

    ``named`` tells whether somebody named the features one by one.
    """

    features: list[str]
    ids: list[str]
    labels: list[str]
    named: bool = False

    @property
    def kept(self) -> list[str]:
        """Columns that are handed on, in the order of the output."""
        return list(dict.fromkeys([*self.ids, *self.labels]))


def choose_columns(
    table: Table,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    ids: Sequence[str] = (),
    labels: Sequence[str] = (),
    others: Sequence[str] = (),
) -> Columns:
    """Return the features of a table: all columns that are nothing else, or those named.

    Parameters
    ----------
    table : Table
    columns : sequence of str, optional
        The features; by default all that is left.
    drop, ids, labels : sequence of str
        Columns that are left out, that name rows, and that say something about them.
    others : sequence of str
        Further columns that are no features.

    Raises
    ------
    TableError
        If there is no such column, or a feature is not a number.
    """
    if not ids and table.row_names is not None and table.row_names not in drop:
        ids = [table.row_names]
    for option, names in (
        ("--columns", columns or ()),
        ("--drop", drop),
        ("--id", ids),
        ("--label", labels),
        ("--split", others),
    ):
        absent = [name for name in names if name not in table.columns]
        if absent:
            raise TableError(
                f"{table.name} has no column {listed(absent)} ({option}); its columns are "
                f"{listed(table.columns, 8)}"
            )
    taken = {*drop, *ids, *labels, *others}
    if table.row_names is not None:
        taken.add(table.row_names)
    if columns is None:
        features = [name for name in table.measured if name not in taken]
    else:
        features = [name for name in dict.fromkeys(columns) if name not in set(drop)]
        both = [name for name in features if name in {*ids, *labels, *others}]
        if both:
            raise TableError(f"column {listed(both)} can't be a feature and an id or label at once")
    if not features:
        raise TableError(f"{table.name}: no column is left to work with")
    text = table.text_columns(features)
    if text:
        few = text if len(text) <= 3 else [*text[:2], "..."]
        raise TableError(
            f"{table.name}: column {listed(text)} is not numeric; keep it beside the result with "
            f"--label {','.join(few)} or --id, or leave it out with --drop"
        )
    return Columns(features, list(ids), list(labels), named=columns is not None)


def match_columns(background: Table, features: Sequence[str], target: Table) -> None:
    """Raise `TableError` unless the background has all features of the target, as numbers."""
    absent = [name for name in features if name not in background.columns]
    if absent:
        raise TableError(
            f"{background.name} has no column {listed(absent)}, which {target.name} has; leave "
            "such columns out with --drop, or choose with --columns"
        )
    text = background.text_columns(features)
    if text:
        raise TableError(f"{background.name}: column {listed(text)} is not numeric; --drop it")


@dataclass(frozen=True)
class Selection:
    """A table, or the rows of it that have certain values in one column.

    Attributes
    ----------
    table : Table
    role : str
        "target" or "background", for messages.
    column : str or None
    values : frozenset of str or None
        Of the column, as text; None for all that are not in `but`.
    but : frozenset of str
    """

    table: Table
    role: str = "target"
    column: str | None = None
    values: frozenset[str] | None = None
    but: frozenset[str] = frozenset()

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield the rows that are chosen."""
        if self.column is None:
            yield from self.table.chunks(features, kept, progress)
            return
        read = list(dict.fromkeys([*kept, self.column]))
        for chunk in self.table.chunks(features, read, progress):
            found = chunk.kept[self.column].to_pylist()
            texts = ["" if value is None else str(value) for value in found]
            if self.values is None:
                inside = [text not in self.but and text != "" for text in texts]
            else:
                inside = [text in self.values for text in texts]
            yield taken(chunk, np.array(inside, dtype=bool), kept)


def taken(
    chunk: Chunk, mask: np.ndarray[tuple[int], np.dtype[np.bool_]], kept: Sequence[str]
) -> Chunk:
    """Return the rows of a chunk for which a mask is true, with some of the columns."""
    import pyarrow as pa

    number = np.cumsum(mask) - 1
    columns = {name: chunk.kept[name] for name in kept}
    if not mask.all():
        columns = {name: column.filter(pa.array(mask)) for name, column in columns.items()}
    return Chunk(
        chunk.rows[mask],
        chunk.places[mask],
        chunk.values[mask],
        columns,
        {int(number[row]): reason for row, reason in chunk.bad.items() if mask[row]},
        chunk.broken,
    )
