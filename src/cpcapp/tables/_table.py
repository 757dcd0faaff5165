"""What every kind of table gives: names of columns, and rows in chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Progress = Callable[[float], None]

# Values in a chunk, as a rule: 16 MB in float64. A row is never divided.
CHUNK_VALUES = 2_000_000


class TableError(ValueError):
    """A table can't be used as it is; the message says where and what to do, in one line."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table that follow each other.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        Numbers of the rows in the table, from 1, header and blank lines not counted.
    places : ndarray of shape (n,)
        Where a user finds them: numbers of lines in a text, else `rows`.
    values : ndarray or CSR matrix of shape (n, n_features)
        Missing values are NaN.
    kept : dict of str to pyarrow Array of length n
        Columns that are handed on.
    bad : dict of int to str
        Rows of this chunk that can't be used, and why.
    broken : list of (int, str)
        Places of rows that are not in the chunk at all, and why.
    """

    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    values: Any
    kept: dict[str, Any]
    bad: dict[int, str] = field(default_factory=dict)
    broken: list[tuple[int, str]] = field(default_factory=list)


class Table(ABC):
    """A table in a file.

    Attributes
    ----------
    name : str
        For messages.
    columns : list of str
        Names of all columns, each once.
    row_names : str or None
        The column that names rows rather than measuring something.
    place : {"line", "row"}
        What `Chunk.places` counts.
    again : bool
        Whether it can be read more than once.
    """

    place: ClassVar[str] = "row"

    @property
    def measured(self) -> list[str]:
        """Columns that are features unless something else is said of them."""
        return self.columns

    name: str
    columns: list[str]
    row_names: str | None = None
    again: bool = True

    @abstractmethod
    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return those of the named columns that can't be numbers."""

    @abstractmethod
    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows, with features as numbers and other columns as they are."""


def require_unique(columns: Sequence[str], name: str) -> None:
    """Raise `TableError` if two columns have one name."""
    seen: set[str] = set()
    for column in columns:
        if column in seen:
            raise TableError(f"{name}: two columns are called {column!r}; rename one of them")
        seen.add(column)


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def row_slices(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Yield slices of rows that make chunks of the usual size."""
    step = max(1, CHUNK_VALUES // max(n_columns, 1))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def numbered(rows: slice) -> NDArray[np.int64]:
    """Return the numbers of the rows of a slice, from 1."""
    return np.arange(rows.start + 1, rows.stop + 1)
