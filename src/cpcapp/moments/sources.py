"""Rows of any kind, added up in one pass: which kinds are read, and how in chunks.

A kind is known by the module of its type. So nothing is imported for a kind that is not used. A
new one is named in `KINDS`, and read by `row_chunks` (and `column_names`, if it has names): then
moments, `fit` and `transform` take it. Files are read in `cpcapp.tables.read`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import zip_longest
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.moments.dask import sum_blocks
from cpcapp.moments.moments import Moments
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import (
    TextColumnsError,
    align,
    as_rows,
    check_weights,
    drop_zero_weights,
)

# Values that are read at once: 32 MB of float64. A read goes to the end of a stored chunk, unless
# that would take sixteen times as much, as chunks of single columns do.
_VALUES = 1 << 22
_MOST_VALUES = _VALUES << 4
_NOTHING = object()

KINDS = {
    "dask": "a Dask collection",
    "h5py": "an h5py dataset",
    "zarr": "a zarr array",
    "pyarrow": "Arrow data",
    "torch": "a torch tensor on a device",
    "cupy": "a CuPy array",
    "iterator": "an iterator of chunks",
}


def kind_of(data: Any) -> str | None:
    """Return which of `KINDS` data is; None for what NumPy and scikit-learn read themselves."""
    root = type(data).__module__.partition(".")[0]
    if root == "torch":
        return "torch" if getattr(data, "is_cpu", True) is False else None
    if root in KINDS:
        return root
    return "iterator" if isinstance(data, Iterator) else None


def as_host_array(data: Any) -> Any:
    """Return a torch tensor of the CPU as a NumPy array of the same memory; others as they are."""
    is_tensor = type(data).__module__.partition(".")[0] == "torch"
    return data.detach().numpy() if is_tensor and data.is_cpu else data


def column_names(data: Any) -> list[Any] | None:
    """Return the names of the columns of Arrow data or of a Dask dataframe; None without names."""
    kind = kind_of(data)
    if kind == "pyarrow":
        return list(_schema(data).names)
    return list(data.columns) if kind == "dask" and hasattr(data, "columns") else None


def row_chunks(data: Any) -> Iterator[Any]:
    """Yield rows in chunks that NumPy or SciPy holds; what is in memory as it is, in one piece."""
    kind = kind_of(data)
    if kind in ("h5py", "zarr"):
        yield from _stored_chunks(data, KINDS[kind])
    elif kind == "pyarrow":
        yield from map(_batch_rows, _batches(data))
    elif kind == "dask":
        for block in data.to_delayed().ravel():
            yield block.compute()
    elif kind in ("torch", "cupy"):
        for start in range(0, len(data), rows := _rows_at_once(data.shape[1])):
            part = data[start : start + rows]
            yield part.detach().cpu().numpy() if kind == "torch" else part.get()
    elif _in_chunks(data):
        for chunk in data:
            yield from row_chunks(chunk)
    else:
        yield as_host_array(data)


def weighted_row_chunks(data: Any, sample_weight: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of any source in chunks, each with its weights or None."""
    if sample_weight is None or isinstance(sample_weight, Real):
        yield from ((rows, sample_weight) for rows in row_chunks(data))
    elif _in_chunks(data):
        for chunk, weights in zip_longest(data, sample_weight, fillvalue=_NOTHING):
            if chunk is _NOTHING or weights is _NOTHING:
                raise ValueError(
                    "sample_weight must give weights for each chunk, as many as chunks"
                )
            yield from weighted_row_chunks(chunk, weights)
    elif kind_of(data) is None:
        yield as_host_array(data), align(sample_weight, data, "sample_weight")
    else:  # read in chunks, but weighted as a whole
        weights, done = np.asarray(sample_weight), 0
        for chunk in row_chunks(data):
            yield chunk, weights[done : done + chunk.shape[0]]
            done += chunk.shape[0]
        if weights.shape != (done,):
            raise ValueError(
                f"sample_weight has shape {weights.shape}; it must be ({done},), one a row"
            )


def add_up(
    data: Any,
    sample_weight: Any = None,
    *,
    reservoir: Reservoir | None = None,
    into: Moments | None = None,
) -> Moments:
    """Return the moments of rows of any kind, and keep a random sample of them on the way.

    Weights are as for `Moments.update`. Blocks of Dask are added up where they lie, tensors on a
    device there; only those of their rows come here that the reservoir keeps.

    >>> sample = Reservoir(10)
    >>> add_up((np.full((100, 2), i) for i in range(3)), reservoir=sample).n_samples
    300
    >>> sample.rows().shape, sample.n_seen
    ((10, 2), 300)
    """
    moments = Moments() if into is None else into
    if isinstance(data, Moments):
        raise TypeError("data is Moments already; add moments with +")
    in_memory = type(data) is np.ndarray
    kind = None if in_memory else kind_of(data)
    if kind == "dask":
        bound = None if reservoir is None else (reservoir.max_rows, reservoir.seed)
        total, *samples = sum_blocks(data, partial(_summarize, bound), sample_weight)
        moments += total
        if reservoir is not None:
            reservoir += samples[0]
        return moments
    if kind == "torch":
        torch = import_module("cpcapp.moments.torch")  # by name, as it takes long to import
        weights = torch.host_weights(sample_weight, len(data))
        if len(data) >= data.shape[-1]:
            moments += torch.DeviceMoments(data.device).update(data, weights).to_moments()
            if reservoir is not None:
                reservoir.update(data, weights)
            return moments
        data, sample_weight = data.detach().cpu().numpy(), weights
    pairs = [(data, sample_weight)] if in_memory else weighted_row_chunks(data, sample_weight)
    for chunk, given in pairs:
        rows, weights = as_rows(chunk), None
        if given is not None:
            weights = check_weights(given, rows.shape[0])
        moments.add_checked(*drop_zero_weights(rows, weights))
        if reservoir is not None:
            reservoir.update(rows, weights)
    return moments


def _summarize(
    bound: tuple[int, Any] | None, number: int, block: Any, weights: Any
) -> Sequence[Any]:
    """Return what a block of Dask adds to moments and reservoir."""
    if bound is None:
        return [add_up(block, weights)]
    sample = Reservoir(bound[0], [*np.atleast_1d(bound[1]), number])
    return [add_up(block, weights, reservoir=sample), sample]


def _in_chunks(data: Any) -> bool:
    """Return whether data is an iterable of chunks, not one array of rows."""
    whole = hasattr(data, "shape") or hasattr(data, "__array__") or isinstance(data, (list, tuple))
    return kind_of(data) in (None, "iterator") and not whole and isinstance(data, Iterable)


def _rows_at_once(n_features: int) -> int:
    return max(1, _VALUES // max(n_features, 1))


def _stored_chunks(data: Any, kind: str) -> Iterator[NDArray[Any]]:
    """Yield rows of a dataset on disk; each stored chunk is read and unpacked once."""
    shape = getattr(data, "shape", None)
    if shape is None or len(shape) != 2:
        given = "a group" if shape is None else f"of shape {tuple(shape)}"
        raise ValueError(
            f"{kind} is needed with shape (n_samples, n_features), but this one is {given}"
        )
    n, m = shape
    rows, stored = _rows_at_once(m), (getattr(data, "chunks", None) or (1,))[0]
    aligned = max(rows // stored, 1) * stored
    if aligned * m <= _MOST_VALUES:
        rows = aligned
    for start in range(0, n, rows):
        yield np.asarray(data[start : start + rows])


def _schema(data: Any) -> Any:
    schema = getattr(data, "schema_arrow", getattr(data, "schema", None))
    if schema is None:
        raise ValueError(
            f"{type(data).__name__} of pyarrow has no columns; give a Table, a RecordBatch, a "
            "RecordBatchReader, a Dataset or a ParquetFile"
        )
    return schema


def _batches(data: Any) -> Iterator[Any]:
    """Yield the record batches of anything that Arrow reads, of a limited size where it can be."""
    rows = _rows_at_once(len(_schema(data).names))
    if hasattr(data, "iter_batches"):  # ParquetFile
        yield from data.iter_batches(rows)
    elif type(data).__name__ == "Table":
        yield from data.to_batches(max_chunksize=rows)
    elif hasattr(data, "scanner"):  # Dataset
        yield from data.scanner(batch_size=rows).to_batches()
    elif hasattr(data, "to_batches"):  # Scanner
        yield from data.to_batches()
    else:
        yield from [data] if hasattr(data, "num_rows") else data  # RecordBatch, or their reader


def _batch_rows(batch: Any) -> NDArray[np.float64]:
    """Return a record batch as an array; missing values are NaN."""
    import pyarrow as pa

    types = pa.types
    numeric = [types.is_integer, types.is_floating, types.is_boolean, types.is_decimal]
    text = [f.name for f in batch.schema if not any(is_kind(f.type) for is_kind in numeric)]
    if text:
        raise TextColumnsError(text, "input")
    same = {str(field.type) for field in batch.schema} == {"float"}
    rows = np.empty((batch.num_rows, batch.num_columns), np.float32 if same else np.float64)
    for number, column in enumerate(batch.columns):
        values = column if same else column.cast(pa.float64(), safe=False)
        rows[:, number] = values.to_numpy(zero_copy_only=False)
    return rows
