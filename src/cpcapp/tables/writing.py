"""Writing scores as they come, and small tables whole."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from cpcapp._files import atomic_write
from cpcapp.tables._table import Chunk, TableError
from cpcapp.tables.model import FloatArray


class ScoresWriter(Protocol):
    """Takes rows of scores."""

    def write(self, chunk: Chunk, scores: FloatArray, role: str | None = None) -> None:
        """Add the rows of a chunk."""


def score_columns(kept: Sequence[str], n_components: int, *, with_set: bool = False) -> list[str]:
    """Return the names of the columns of a table of scores.

    Rows without an id are told by their number in the table.

    Examples
    --------
    >>> score_columns([], 2), score_columns(["mouse"], 1, with_set=True)
    (['row', 'component_1', 'component_2'], ['mouse', 'set', 'component_1'])
    """
    components = [f"component_{i + 1}" for i in range(n_components)]
    names = [*(kept or ["row"]), *(["set"] if with_set else []), *components]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(f"column {twice!r} can't be kept: the scores have a column of that name")
    return names


class _CsvWriter:
    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self.text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        self.table = csv.writer(self.text, lineterminator="\n")
        self.table.writerow(names)

    def write(self, chunk: Chunk, scores: FloatArray, role: str | None = None) -> None:
        self.table.writerows(zip(*_lists(chunk, scores, role), strict=True))


class _ParquetWriter:
    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self.file, self.names, self.writer = file, list(names), None

    def write(self, chunk: Chunk, scores: FloatArray, role: str | None = None) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        columns: list[Any] = list(chunk.kept.values()) or [pa.array(chunk.rows)]
        if role is not None:
            columns.append(pa.array([role] * len(chunk.rows)))
        columns += [pa.array(column) for column in scores.T]
        table = pa.table(dict(zip(self.names, columns, strict=True)))
        if self.writer is None:
            self.writer = pa.parquet.ParquetWriter(self.file, table.schema)
        assert self.writer is not None
        self.writer.write_table(table.cast(self.writer.schema))

    def close(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        if self.writer is None:
            empty = pa.table({name: pa.array([], pa.float64()) for name in self.names})
            pa.parquet.write_table(empty, self.file)
        else:
            self.writer.close()


@contextmanager
def scores_to(path: Path | IO[bytes], names: Sequence[str]) -> Iterator[ScoresWriter]:
    """Open a file for scores, Parquet if its name says so, else CSV; or a stream, for CSV."""
    if not isinstance(path, Path):
        writer = _CsvWriter(path, names)
        try:
            yield writer
        finally:
            writer.text.detach()
        return
    with atomic_write(path) as file:
        if path.suffix in (".parquet", ".pq"):
            parquet = _ParquetWriter(file, names)
            yield parquet
            parquet.close()
        else:
            writer = _CsvWriter(file, names)
            yield writer
            writer.text.detach()


def write_rows(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV of a few rows."""
    with atomic_write(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        table = csv.writer(text, lineterminator="\n")
        table.writerow(names)
        table.writerows(rows)
        text.detach()


def _lists(chunk: Chunk, scores: FloatArray, role: str | None) -> list[list[Any]]:
    columns = [column.to_pylist() for column in chunk.kept.values()] or [chunk.rows.tolist()]
    if role is not None:
        columns.append([role] * len(chunk.rows))
    return [*columns, *scores.T.tolist()]
