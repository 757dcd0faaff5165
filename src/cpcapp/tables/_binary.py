"""Tables that are not text: Parquet, NumPy arrays and AnnData files."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cpcapp.tables._table import (
    CHUNK_VALUES,
    Chunk,
    Progress,
    Table,
    TableError,
    listed,
    numbered,
    require_unique,
    row_slices,
)


class ParquetTable(Table):
    """A Parquet file, read a batch at a time."""

    def __init__(self, path: Path, name: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        self.path, self.name = path, name
        try:
            with pa.parquet.ParquetFile(path) as file:
                self._schema, self._n_rows = file.schema_arrow, file.metadata.num_rows
        except pa.ArrowException as error:
            raise TableError(f"{name} is no Parquet file: {' '.join(str(error).split())}") from None
        self.columns = list(self._schema.names)
        require_unique(self.columns, name)
        # What pandas calls an index without a name.
        self.row_names = next((c for c in self.columns if c.startswith("__index_level_")), None)

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns whose type is not a number."""
        import pyarrow as pa

        types = pa.types
        numeric = [types.is_integer, types.is_floating, types.is_boolean, types.is_decimal]
        numeric.append(types.is_null)  # a column without any value
        return [n for n in names if not any(is_(self._schema.field(n).type) for is_ in numeric)]

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows; see `Table.chunks`."""
        import pyarrow as pa
        import pyarrow.parquet

        names = list(dict.fromkeys([*features, *kept]))
        size, done = max(1, CHUNK_VALUES // max(len(names), 1)), 0
        try:
            with pa.parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(size, columns=names):
                    values = np.empty((batch.num_rows, len(features)))
                    for place, name in enumerate(features):
                        numbers = batch[name].cast(pa.float64(), safe=False)
                        values[:, place] = numbers.to_numpy(zero_copy_only=False)
                    rows = numbered(slice(done, done + batch.num_rows))
                    done += batch.num_rows
                    yield Chunk(rows, rows, values, {name: batch[name] for name in kept})
                    if progress is not None:
                        progress(done / max(self._n_rows, 1))
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"{self.name} is damaged: {' '.join(str(error).split())}") from error


class ArrayTable(Table):
    """A matrix, and columns beside it that name its rows."""

    def __init__(
        self, name: str, matrix: Any, features: Sequence[str], beside: dict[str, Any]
    ) -> None:
        self.name, self.matrix, self.beside = name, matrix, beside
        self._places = {feature: place for place, feature in enumerate(features)}
        self.columns = [*beside, *features]
        require_unique(self.columns, name)

    @property
    def measured(self) -> list[str]:
        """The columns of the matrix."""
        return list(self._places)

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns that are not part of the matrix."""
        return [name for name in names if name not in self._places]

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows; see `Table.chunks`."""
        import pyarrow as pa
        import scipy.sparse as sp

        chosen = np.array([self._places[name] for name in features], dtype=np.intp)
        whole = np.array_equal(chosen, np.arange(self.matrix.shape[1]))
        n_rows = self.matrix.shape[0]
        for part in row_slices(n_rows, self.matrix.shape[1]):
            block = self.matrix[part]
            if sp.issparse(block):
                block = sp.csr_array(block).astype(np.float64)
            else:
                block = np.asarray(block, dtype=np.float64)
            columns = {
                name: pa.array(self.beside[name][part])
                if name in self.beside
                else pa.array(np.asarray(self.matrix[part][:, [self._places[name]]]).ravel())
                for name in kept
            }
            rows = numbered(part)
            yield Chunk(rows, rows, block if whole else block[:, chosen], columns)
            if progress is not None:
                progress(part.stop / n_rows)


def npy_table(path: Path, name: str) -> ArrayTable:
    """Open a ``.npy`` file without reading it; its columns are ``x0``, ``x1`` and so on."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise TableError(f"{name} is no .npy file of numbers: {error}") from error
    return _numbers(name, matrix, {})


def npz_table(path: Path, name: str, array: str | None) -> ArrayTable:
    """Open one matrix of a ``.npz`` archive; its vectors of the same length stand beside it."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            held = {key: archive[key] for key in archive.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise TableError(f"{name} is no .npz archive of numbers: {error}") from error
    matrices = [key for key, value in held.items() if value.ndim == 2]
    if array is None and len(matrices) != 1:
        raise TableError(
            f"{name} holds {len(matrices)} matrices ({listed(matrices)}); choose one with "
            f"{path.name}::NAME"
        )
    key = matrices[0] if array is None else array
    if key not in held:
        raise TableError(f"{name}: there is no array {key!r}; there are {listed(list(held))}")
    matrix = held[key]
    beside = {k: v for k, v in held.items() if v.ndim == 1 and len(v) == len(matrix)}
    return _numbers(name, matrix, beside)


def _numbers(name: str, matrix: Any, beside: dict[str, Any]) -> ArrayTable:
    if matrix.ndim != 2:
        raise TableError(f"{name} has shape {matrix.shape}; it must have rows and columns")
    if matrix.dtype.kind not in "biuf":
        raise TableError(f"{name} has dtype {matrix.dtype}; it must be real numbers")
    return ArrayTable(name, matrix, [f"x{i}" for i in range(matrix.shape[1])], beside)


def h5ad_table(path: Path, name: str, layer: str | None) -> ArrayTable:
    """Open an AnnData file: genes are features, `obs` stands beside; X stays on disk."""
    import anndata

    try:
        with warnings.catch_warnings():
            # Files of older versions are fine.
            warnings.simplefilter("ignore", anndata.OldFormatWarning)
            warnings.filterwarnings("ignore", "Moving element", FutureWarning)
            adata = anndata.read_h5ad(path, backed="r")
    except Exception as error:  # h5py and anndata answer damaged files with anything
        reason = " ".join(str(error).split())[:200]
        raise TableError(f"{name} is no AnnData file that can be read: {reason}") from error
    if layer is not None and layer not in adata.layers:
        raise TableError(
            f"{name}: there is no layer {layer!r}; there are {listed(list(adata.layers))}"
        )
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise TableError(f"{name} has no X; choose a layer with {path.name}::LAYER")
    cells = adata.obs_names.name or "cell"
    beside: dict[str, Any] = {str(cells): adata.obs_names.astype(str).to_numpy(dtype=object)}
    for column in adata.obs.columns:
        values = adata.obs[column]
        numeric = values.dtype.kind in "biuf"
        beside[str(column)] = (
            values.to_numpy() if numeric else values.astype(str).to_numpy(dtype=object)
        )
    table = ArrayTable(name, matrix, [str(gene) for gene in adata.var_names], beside)
    table.row_names = str(cells)
    return table
