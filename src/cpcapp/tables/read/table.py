"""The interface of all tables: names of columns, and rows in chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.tables.messages import TableError

Progress = Callable[[float], None]
# Called with the title of a step. Gives what is called with the share done, from 0 to 1.
ProgressReport = Callable[[str], AbstractContextManager[Progress]]


def report_nothing(title: str) -> AbstractContextManager[Progress]:
    """Take the place of a progress report where none is wanted."""
    return nullcontext(lambda share: None)


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a table.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        Row numbers in the table, from 1, header and blank lines not counted.
    positions : ndarray of shape (n,)
        Line numbers in a text file; in other files the same as `rows`.
    values : ndarray or CSR matrix of shape (n, n_features)
        Missing values are NaN.
    kept : dict of str to pyarrow Array of length n
        Columns that are copied to the output.
    bad : dict of int to str
        Indices of rows in this chunk that can't be used, and why.
    unreadable : list of (int, str)
        Positions of rows that are not in the chunk at all, and why.

    Examples
    --------
    >>> import numpy as np
    >>> chunk = Chunk(np.array([1, 2]), np.array([2, 3]), np.eye(2), {})
    >>> chunk.select_rows(np.array([False, True])).values
    array([[0., 1.]])
    """

    rows: NDArray[np.int64]
    positions: NDArray[np.int64]
    values: Any
    kept: dict[str, Any]
    bad: dict[int, str] = field(default_factory=dict)
    unreadable: list[tuple[int, str]] = field(default_factory=list)

    def select_rows(self, mask: NDArray[np.bool_], kept: Sequence[str] | None = None) -> Chunk:
        """Return the rows where a mask is true, with some of the kept columns or all."""
        new_index = np.cumsum(mask) - 1
        columns = {name: self.kept[name] for name in (self.kept if kept is None else kept)}
        if not mask.all():
            columns = {name: column.filter(mask) for name, column in columns.items()}
        return Chunk(
            self.rows[mask],
            self.positions[mask],
            self.values[mask],
            columns,
            {int(new_index[row]): reason for row, reason in self.bad.items() if mask[row]},
            self.unreadable,
        )


class Table(ABC):
    r"""A table in a file, as :func:`open_table` returns it.

    Attributes
    ----------
    name : str
        For messages.
    columns : list of str
        Names of all columns, each once.
    row_names : str or None
        The column with the names of the rows.
    unit : {"line", "row"}
        What `Chunk.positions` counts.
    rereadable : bool
        Whether it can be read more than once.
    mask_column : str or None
        The column of ``var`` that marks the default features of an AnnData file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from cpcapp.tables import open_table
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "mice.csv"
    >>> _ = path.write_text("mouse,weight\na,21.5\nb,19\n")
    >>> table = open_table(path)
    >>> [float(chunk.values.mean()) for chunk in table.chunks(["weight"], [])]
    [20.25]
    """

    name: str
    columns: list[str]
    unit: str = "row"
    row_names: str | None = None
    rereadable: bool = True
    mask_column: str | None = None

    @property
    def default_features(self) -> list[str]:
        """Columns that are features unless the user says otherwise."""
        return self.columns

    @cached_property
    def column_index(self) -> dict[str, int]:
        """Position of each column; a look-up in the list would take a search."""
        return {name: index for index, name in enumerate(self.columns)}

    def find_absent(self, names: Sequence[str]) -> list[str]:
        """Return the names that are no column of this table."""
        return [name for name in names if name not in self.column_index]

    def reading_notes(self) -> list[str]:
        """Return what was recognised in the file and a reader might have taken otherwise.

        Complete when all rows have been read.
        """
        return []

    def describe_reading(self) -> str:
        """Return in one line what was recognised in the file; nothing if all was as usual."""
        notes = self.reading_notes()
        return f"{self.name}: {', '.join(notes)}" if notes else ""

    @abstractmethod
    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return those of the named columns that do not hold numbers."""

    @abstractmethod
    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows.

        Parameters
        ----------
        features : sequence of str
            Columns that become numbers.
        kept : sequence of str
            Columns that stay as they are.
        progress : callable of a float, optional
            Called with the share read.

        Yields
        ------
        Chunk
        """


def require_unique(columns: Sequence[str], name: str) -> None:
    """Raise `TableError` if two columns have the same name."""
    seen: set[str] = set()
    for column in columns:
        if column in seen:
            raise TableError(f"{name}: two columns are called {column!r}; rename one of them")
        seen.add(column)


def as_texts(column: Any) -> list[str]:
    """Return the values of a kept column as text; empty where there is none."""
    return ["" if value is None else str(value) for value in column.to_pylist()]
