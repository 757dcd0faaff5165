"""Rows of any kind, added up in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from cpcapp.moments.blocks import quiet
from cpcapp.moments.dask_blocks import sum_blocks
from cpcapp.moments.moments import Moments
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.sources import kind_of, weighted_row_chunks
from cpcapp.moments.weights import check_weights, drop_zero_weights

_M = TypeVar("_M", bound=Moments)


def add_up(
    data: Any,
    sample_weight: Any = None,
    *,
    reservoir: Reservoir | None = None,
    into: _M | None = None,
) -> _M | Moments:
    """Return the moments of rows of any kind, and keep a random sample of them on the way.

    Parameters
    ----------
    data : array-like, sparse matrix, memory map, any of `cpcapp.moments.sources.KINDS`, or an
        iterable of those
        Blocks of Dask are added up where they lie, tensors on a device there.
    sample_weight : array-like of shape (n_samples,), float, an iterable of those, optional
        For an iterable of chunks one for each chunk, or a number for all.
    reservoir : Reservoir, optional
        Gets the rows; of Dask blocks and of tensors on a device only those that it keeps come here.
    into : Moments, optional
        Empty ones to add to; by default new ones.

    Examples
    --------
    >>> import numpy as np
    >>> sample = Reservoir(10)
    >>> add_up((np.full((100, 2), i) for i in range(3)), reservoir=sample).n_samples
    300
    >>> sample.rows().shape, sample.n_seen
    ((10, 2), 300)
    """
    moments: Any = Moments() if into is None else into
    if isinstance(data, Moments):
        raise TypeError("data is Moments already; add moments with +")
    kind = kind_of(data)
    if kind == "dask":
        bound = None if reservoir is None else (reservoir.max_rows, reservoir.seed)
        total = sum_blocks(data, partial(_summarize, moments, bound), sample_weight)
        if reservoir is not None:
            reservoir += total[1]
        return total[0]  # type: ignore[no-any-return]
    if kind == "torch":
        torch = import_module("cpcapp.moments.torch")
        moments += torch.moments_of_tensor(data, sample_weight)
        if reservoir is not None:
            reservoir.update(data, _host_weights(sample_weight, len(data)))
        return moments  # type: ignore[no-any-return]
    for chunk, chunk_weights in weighted_row_chunks(data, sample_weight):
        rows = moments._check(chunk)
        weights = check_weights(chunk_weights, rows.shape[0])
        with quiet():
            moments._absorb(*drop_zero_weights(rows, weights))
        if reservoir is not None:
            reservoir.update(rows, weights)
    return moments  # type: ignore[no-any-return]


def _host_weights(sample_weight: Any, n_rows: int) -> Any:
    if hasattr(sample_weight, "detach"):
        sample_weight = sample_weight.detach().cpu().numpy()
    return check_weights(sample_weight, n_rows)


def _summarize(
    empty: Moments, bound: tuple[int, Any] | None, number: int, block: Any, weights: Any
) -> Sequence[Any]:
    """Return what a block of Dask adds to moments and reservoir."""
    sample = None
    if bound is not None:
        max_rows, seed = bound
        seeds = [seed] if isinstance(seed, int) else list(seed)
        sample = Reservoir(max_rows, [*seeds, number])
    moments = add_up(block, weights, reservoir=sample, into=empty.copy())
    return [moments] if sample is None else [moments, sample]
