"""Dask collections of rows, block by block: reduced by a tree, and mapped lazily."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np

from cpcapp.moments.rows import TextColumnsError

# Results that one task adds up. Each is up to 8 * n_features² bytes; chosen by hand.
_SPLIT_EVERY = 8


def as_dask_array(data: Any) -> Any:
    """Return a Dask array or dataframe as an array with all features in each block."""
    if hasattr(data, "dtypes") and hasattr(data, "to_dask_array"):
        text = [name for name, kind in data.dtypes.items() if not _is_number(kind)]
        if text:
            raise TextColumnsError(text, "input")
        data = data.to_dask_array()
    if getattr(data, "ndim", None) != 2:
        raise ValueError(
            f"a Dask {type(data).__name__} is no table of rows; give an array of shape (n_samples, "
            "n_features) or a dataframe"
        )
    return data if data.numblocks[1] == 1 else data.rechunk({1: -1})


def _is_number(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in "biuf"


def sum_blocks(data: Any, summarize: Callable[[int, Any, Any], Any], weights: Any = None) -> Any:
    """Return the sums of what ``summarize`` lists for each block: its number, rows and weights.

    Blocks are summarized where they lie, and added up by a tree, by whichever scheduler Dask is
    set to; by default threads.

    >>> import dask.array as da
    >>> rows = da.arange(8, chunks=3).reshape(-1, 1)
    >>> sum_blocks(rows, lambda number, block, weights: [int(block.sum()), number])
    [28, 3]
    """
    import dask
    import dask.bag as db

    rows = as_dask_array(data)
    blocks = rows.to_delayed().ravel().tolist()
    block_weights = _weight_blocks(rows, weights, len(blocks))
    # Names that depend on the graph only would not do: a summary may be a closure.
    part = dask.delayed(_summary, pure=False)
    parts = [
        part(summarize, number, block, own)
        for number, (block, own) in enumerate(zip(blocks, block_weights, strict=True))
    ]
    total = db.from_delayed(parts).reduction(_add, _add, split_every=_SPLIT_EVERY)
    # A bag on its own would start processes; a delayed value runs in threads, or on a cluster.
    return total.to_delayed().compute()


def _summary(summarize: Callable[..., Any], number: int, block: Any, weights: Any) -> list[Any]:
    return [summarize(number, block, weights)]


def _add(parts: Iterable[Any]) -> Any:
    """Add up without a change of any part: a worker that is lost may need one of them again."""
    return reduce(lambda total, part: [a + b for a, b in zip(total, part, strict=True)], parts)


def _weight_blocks(rows: Any, weights: Any, count: int) -> list[Any]:
    if weights is None or np.ndim(weights) == 0:
        return [weights] * count
    import dask.array as da

    if np.isnan(rows.shape[0]):
        rows.compute_chunk_sizes()
    if np.shape(weights) != (rows.shape[0],):
        raise ValueError(
            f"sample_weight has shape {np.shape(weights)}; it must be ({rows.shape[0]},), one a row"
        )
    return list(da.asarray(weights).rechunk((rows.chunks[0],)).to_delayed().ravel())


def map_blocks(data: Any, work: Callable[[Any], Any], n_columns: int | None) -> Any:
    """Return the results of ``work`` for all blocks as a Dask array that is not computed yet.

    It has as many rows and ``n_columns`` columns; None stands for one number a row.
    """
    rows = as_dask_array(data)
    single = n_columns is not None and rows.dtype == np.float32
    meta = np.empty((0,) if n_columns is None else (0, 0), np.float32 if single else np.float64)
    if n_columns is None:
        return rows.map_blocks(work, drop_axis=1, dtype=meta.dtype, meta=meta)
    chunks = (rows.chunks[0], (n_columns,))
    return rows.map_blocks(work, chunks=chunks, dtype=meta.dtype, meta=meta)
