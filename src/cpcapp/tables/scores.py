"""Write scores chunk by chunk, and small tables at once."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from cpcapp._io.files import atomic_write
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.messages import TableError
from cpcapp.tables.read.arrays import PARQUET_ENDINGS
from cpcapp.tables.read.table import Chunk

# Takes a chunk, its scores, and the name of its set where there is such a column.
ScoreWriter = Callable[..., None]


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Return whether the ending of a name says Parquet, in upper or lower case."""
    return os.fspath(path).lower().endswith(PARQUET_ENDINGS)


def check_outputs(
    paths: Sequence[Path], inputs: Sequence[str], *, overwrite: bool, name: str
) -> None:
    """Raise `TableError` if files are also read, or would be replaced; ``name`` can change them."""
    read = {Path(path.partition("::")[0]).resolve() for path in inputs}
    existing = [path for path in paths if path.exists()]
    for path in existing:
        if path.resolve() in read:
            raise TableError(f"{path} is read by this run; write to another file")
    if existing and not overwrite:
        more = f", with {len(existing) - 1} more" if len(existing) > 1 else ""
        raise TableError(
            f"{existing[0]} exists already{more}",
            f"replace with {{overwrite}}, or choose another {{{name}}}",
            overwrite=True,
        )


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


@contextmanager
def open_scores(output: Path | IO[bytes], names: Sequence[str]) -> Iterator[ScoreWriter]:
    """Open a file for scores, which is written whole or not at all; or a stream, for CSV."""
    parquet = isinstance(output, Path) and is_parquet(output)
    with (
        atomic_write(output) if isinstance(output, Path) else nullcontext(output) as file,
        _open_parquet(file, names) if parquet else _open_csv_scores(file, names) as write,
    ):
        yield write


@contextmanager
def _open_csv_scores(file: IO[bytes], names: Sequence[str]) -> Iterator[ScoreWriter]:
    # Written with the first rows, or at the end: not if these have problems.
    header = [names]

    def write(chunk: Chunk, scores: FloatArray, role: str | None = None) -> None:
        kept = [column.to_pylist() for column in chunk.kept.values()] or [chunk.rows.tolist()]
        roles = [] if role is None else [[role] * len(chunk.rows)]
        table.writerows(header)
        header.clear()
        table.writerows(zip(*kept, *roles, *scores.T.tolist(), strict=True))

    with _open_csv(file) as table:
        yield write
        table.writerows(header)


@contextmanager
def _open_parquet(file: IO[bytes], names: Sequence[str]) -> Iterator[ScoreWriter]:
    import pyarrow as pa
    import pyarrow.parquet

    # The types of the columns are those of the first rows.
    writer: Any = None

    def write(chunk: Chunk, scores: FloatArray, role: str | None = None) -> None:
        kept = list(chunk.kept.values()) or [pa.array(chunk.rows)]
        roles = [] if role is None else [pa.array([role] * len(chunk.rows))]
        columns = [*kept, *roles, *map(pa.array, scores.T)]
        add(pa.table(dict(zip(names, columns, strict=True))))

    def add(table: Any) -> None:
        nonlocal writer
        if writer is None:
            writer = pyarrow.parquet.ParquetWriter(file, table.schema)
        writer.write_table(table.cast(writer.schema))

    yield write
    if writer is None:
        add(pa.table({name: pa.array([], pa.float64()) for name in names}))
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
