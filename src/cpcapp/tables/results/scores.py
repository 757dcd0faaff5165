"""Write scores chunk by chunk, and small tables at once."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from cpcapp._io.files import atomic_write
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.messages import TableError
from cpcapp.tables.read.table import Chunk
from cpcapp.tables.results.files import is_parquet


def name_score_columns(
    kept: Sequence[str],
    components: int | Sequence[str],
    *,
    with_set: bool = False,
    power: Sequence[str] = (),
) -> list[str]:
    """Return the names of the columns of a table of scores.

    Without ids and labels, rows are identified by their number in the table.
    """
    if isinstance(components, int):
        components = [f"component_{i + 1}" for i in range(components)]
    names = [*(kept or ["row"]), *(["set"] if with_set else []), *components, *power]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(
            f"column {twice!r} can't be kept: the scores have a column of that name; rename it"
        )
    return names


class CsvWriter:
    """Writes scores as CSV; the header comes with the first rows: not if these have problems."""

    def __init__(self, table: Any, names: Sequence[str]) -> None:
        self.table = table
        self.header: list[Sequence[str]] = [names]

    def write(self, chunk: Chunk, scores: FloatArray, role: str | None = None) -> None:
        """Add the rows of a chunk."""
        kept = [column.to_pylist() for column in chunk.kept.values()] or [chunk.rows.tolist()]
        roles = [] if role is None else [[role] * len(chunk.rows)]
        self.close()
        self.table.writerows(zip(*kept, *roles, *scores.T.tolist(), strict=True))

    def close(self) -> None:
        """Complete the table: write the header, if there were no rows."""
        self.table.writerows(self.header)
        self.header = []


class ParquetWriter:
    """Writes scores as Parquet."""

    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self.file, self.names = file, list(names)
        self.writer: Any = None

    def write(self, chunk: Chunk, scores: FloatArray, role: str | None = None) -> None:
        """Add the rows of a chunk."""
        import pyarrow as pa

        kept = list(chunk.kept.values()) or [pa.array(chunk.rows)]
        roles = [] if role is None else [pa.array([role] * len(chunk.rows))]
        columns = [*kept, *roles, *map(pa.array, scores.T)]
        self._write(pa.table(dict(zip(self.names, columns, strict=True))))

    def close(self) -> None:
        """Complete the table."""
        import pyarrow as pa

        if self.writer is None:
            self._write(pa.table({name: pa.array([], pa.float64()) for name in self.names}))
        self.writer.close()

    def _write(self, table: Any) -> None:
        import pyarrow.parquet

        if self.writer is None:
            self.writer = pyarrow.parquet.ParquetWriter(self.file, table.schema)
        self.writer.write_table(table.cast(self.writer.schema))


@contextmanager
def open_scores(
    output: Path | IO[bytes], names: Sequence[str]
) -> Iterator[CsvWriter | ParquetWriter]:
    """Open a file for scores, which is written whole or not at all; or a stream, for CSV."""
    with atomic_write(output) if isinstance(output, Path) else nullcontext(output) as file:
        if isinstance(output, Path) and is_parquet(output):
            parquet = ParquetWriter(file, names)
            yield parquet
            parquet.close()
        else:
            with _open_csv(file) as table:
                writer = CsvWriter(table, names)
                yield writer
                writer.close()


@contextmanager
def _open_csv(file: IO[bytes]) -> Iterator[Any]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        yield csv.writer(text, lineterminator="\n")
    finally:
        # Else the file would be closed with the wrapper.
        text.detach()


def write_rows(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file of a few rows."""
    with atomic_write(path) as file, _open_csv(file) as table:
        table.writerow(names)
        table.writerows(rows)
