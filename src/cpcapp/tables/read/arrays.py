"""Tables that are not text: Parquet and NumPy arrays."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.text import natural_order
from cpcapp.tables.messages import TableError, one_line, quote_names
from cpcapp.tables.read.table import Chunk, Progress, Table, require_unique

PARQUET_ENDINGS = (".parquet", ".pq")
# An archive that unpacks to less than the first number of bytes, or to less than the second number
# times its own size, is read. Tables of counts shrink to a tenth, and seldom to a fiftieth.
_MAX_SMALL = 256 << 20
_MAX_RATIO = 64
# Values in a chunk: 16 MB in float64, chosen so that few chunks of any table fit in memory. A row
# is never divided.
_CHUNK_VALUES = 2_000_000


class ParquetTable(Table):
    """A Parquet file, or those of a folder one after the other, read a batch at a time."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._files = _list_parts(path, name) if path.is_dir() else [path]
        self._schemas, counts = zip(*map(_read_footer, self._files), strict=True)
        self.n_rows = sum(counts)
        self.columns = list(self._schemas[0].names)
        require_unique(self.columns, name)
        for file, schema in zip(self._files, self._schemas, strict=True):
            others = set(schema.names) ^ set(self.columns)
            if others:
                raise TableError(
                    f"{name}: {file.name} and {self._files[0].name} have different columns "
                    f"({quote_names(sorted(others))}); all files must have the same"
                )
        # The name that pandas gives to an index without one.
        self.row_names = next((c for c in self.columns if c.startswith("__index_level_")), None)

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns whose type is not numeric, in any of the files."""
        import pyarrow as pa

        types = pa.types
        numeric = [types.is_integer, types.is_floating, types.is_boolean, types.is_decimal]
        numeric.append(types.is_null)  # a column without any value

        def is_number(name: str) -> bool:
            kinds = (schema.field(name).type for schema in self._schemas)
            return all(any(is_kind(kind) for is_kind in numeric) for kind in kinds)

        return [name for name in names if not is_number(name)]

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows; see `Table.chunks`."""
        import pyarrow as pa
        import pyarrow.parquet

        names = list(dict.fromkeys([*features, *kept]))
        size, done = max(1, _CHUNK_VALUES // max(len(names), 1)), 0
        for path in self._files:
            try:
                with pa.parquet.ParquetFile(path) as file:
                    for batch in file.iter_batches(size, columns=names):
                        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                        values = np.empty((batch.num_rows, len(features)))
                        for index, name in enumerate(features):
                            numbers = columns[name].cast(pa.float64(), safe=False)
                            values[:, index] = numbers.to_numpy(zero_copy_only=False)
                        rows = np.arange(done, done + batch.num_rows) + 1
                        done += batch.num_rows
                        yield Chunk(rows, rows, values, {name: columns[name] for name in kept})
                        if progress is not None:
                            progress(done / max(self.n_rows, 1))
            except (pa.ArrowException, OSError, UnicodeError) as error:
                raise TableError(
                    f"{path} is damaged after row {done}: {one_line(error)}"
                ) from error


def _list_parts(folder: Path, name: str) -> list[Path]:
    named = (path for path in folder.iterdir() if path.suffix.lower() in PARQUET_ENDINGS)
    # Names with a leading dot or underscore are no parts but notes about them, as Arrow has it.
    parts = [path for path in named if path.name[0] not in "._" and path.is_file()]
    if not parts:
        raise TableError(f"{name} is a folder without Parquet files; give a file, or such a folder")
    return sorted(parts, key=natural_order)


def _read_footer(path: Path) -> tuple[Any, int]:
    """Return the schema of a file, and how many rows it has."""
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return file.schema_arrow, int(file.metadata.num_rows)
    except Exception as error:  # Arrow raises errors of many kinds on damaged files
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise TableError(f"{path} is not a Parquet file: {one_line(error)}") from None


class ArrayTable(Table):
    """A matrix, dense or sparse, in memory or on disk, and vectors that annotate its rows."""

    def __init__(
        self,
        name: str,
        matrix: Any,
        features: Sequence[str],
        annotations: dict[str, Any],
        *,
        default_features: Sequence[str] | None = None,
    ) -> None:
        self.name, self.matrix, self.annotations = name, matrix, annotations
        self._matrix_index = {feature: index for index, feature in enumerate(features)}
        self._default_features = list(features if default_features is None else default_features)
        self.columns = [*annotations, *features]
        require_unique(self.columns, name)

    @property
    def default_features(self) -> list[str]:
        """Columns of the matrix; in an AnnData file those of the chosen genes."""
        return self._default_features

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns that are not part of the matrix."""
        return [name for name in names if name not in self._matrix_index]

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows; see `Table.chunks`."""
        import pyarrow as pa
        import scipy.sparse as sp

        chosen = np.array([self._matrix_index[name] for name in features], dtype=np.intp)
        n_rows, n_columns = self.matrix.shape
        whole = np.array_equal(chosen, np.arange(n_columns))
        step = max(1, _CHUNK_VALUES // n_columns)
        for start in range(0, n_rows, step):
            part = slice(start, min(start + step, n_rows))
            block: Any = self.matrix[part]
            block = sp.csr_array(block) if sp.issparse(block) else np.asarray(block)
            columns = {}
            for name in kept:
                values = self.annotations.get(name)
                if values is None:
                    column = block[:, [self._matrix_index[name]]]
                    values = (column.toarray() if sp.issparse(column) else column).ravel()
                else:
                    values = values[part]
                columns[name] = pa.array(values)
            block = block.astype(np.float64, copy=False)
            rows = np.arange(start, part.stop) + 1
            yield Chunk(rows, rows, block if whole else block[:, chosen], columns)
            if progress is not None:
                progress(part.stop / n_rows)


def npy_table(path: Path, name: str) -> ArrayTable:
    """Open a ``.npy`` file without reading it; its columns are ``x0``, ``x1`` and so on."""
    try:
        matrix = np.lib.format.open_memmap(path, "r")  # no objects
    except Exception as error:  # the header is parsed as Python, which has many errors
        raise TableError(f"{name} is not a .npy file of numbers: {one_line(error)}") from error
    return _check_numbers(name, matrix, {})


def npz_table(path: Path, name: str, array: str | None) -> ArrayTable:
    """Open one matrix of a ``.npz`` archive; vectors of the same length annotate its rows."""
    try:
        held = _read_npz(path)
    except Exception as error:  # zipfile answers damaged bytes with errors of many kinds
        reason = one_line(error)
        raise TableError(f"{name} is not a .npz archive of numbers: {reason}") from error
    matrices = [key for key, value in held.items() if value.ndim == 2]
    if array is None and len(matrices) != 1:
        raise TableError(
            f"{name} holds {len(matrices)} matrices ({quote_names(matrices)}); choose one with "
            f"{path.name}::NAME"
        )
    key = matrices[0] if array is None else array
    if key not in held:
        raise TableError(f"{name}: there is no array {key!r}; there are {quote_names(list(held))}")
    matrix = held[key]
    annotations = {k: v for k, v in held.items() if v.ndim == 1 and len(v) == len(matrix)}
    return _check_numbers(name, matrix, annotations)


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an archive; numpy.load would not compare their checksums."""
    held, size = {}, path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        total = sum(member.file_size for member in archive.infolist())
        if total > max(_MAX_SMALL, _MAX_RATIO * size):
            raise ValueError(
                f"its {size >> 20} MB unpack to {total >> 20} MB; if you trust it, save it "
                "without compression (numpy.savez)"
            )
        for member in archive.infolist():
            try:
                data = io.BytesIO(archive.read(member))
                array: NDArray[Any] = np.lib.format.read_array(data, allow_pickle=False)
            except Exception as error:
                reason = f"its member {member.filename!r} is damaged: {one_line(error)}"
                raise ValueError(reason) from error
            held[member.filename.removesuffix(".npy")] = array
    return held


def _check_numbers(name: str, matrix: Any, annotations: dict[str, Any]) -> ArrayTable:
    # Without a column there may be any number of rows in no byte at all, and the reverse.
    if matrix.ndim != 2 or not matrix.size:
        raise TableError(f"{name} has shape {matrix.shape}; it must have rows and columns")
    if matrix.dtype.kind not in "biuf":
        raise TableError(f"{name} has dtype {matrix.dtype}; it must be real numbers")
    return ArrayTable(name, matrix, [f"x{i}" for i in range(matrix.shape[1])], annotations)
