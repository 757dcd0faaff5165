"""Rows of any kind, added up in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from cpcapp.moments.dask import sum_blocks
from cpcapp.moments.moments import Moments
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import as_rows, check_weights, drop_zero_weights
from cpcapp.moments.sources import kind_of, weighted_row_chunks


def add_up(
    data: Any,
    sample_weight: Any = None,
    *,
    reservoir: Reservoir | None = None,
    into: Moments | None = None,
) -> Moments:
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
        Which these rows are added to; by default new ones.

    Examples
    --------
    >>> import numpy as np
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
    elif kind == "torch":
        torch = import_module("cpcapp.moments.torch")  # by name, as it takes long to import
        moments += torch.moments_of_tensor(data, sample_weight)
        if reservoir is not None:
            reservoir.update(data, torch.host_weights(sample_weight, len(data)))
    else:
        pairs = [(data, sample_weight)] if in_memory else weighted_row_chunks(data, sample_weight)
        for chunk, weights in pairs:
            rows = as_rows(chunk)
            if weights is None:
                checked = None
                moments._absorb(rows, None)
            else:
                checked = check_weights(weights, rows.shape[0])
                moments._absorb(*drop_zero_weights(rows, checked))
            if reservoir is not None:
                reservoir.update(rows, checked)
    return moments


def _summarize(
    bound: tuple[int, Any] | None, number: int, block: Any, weights: Any
) -> Sequence[Any]:
    """Return what a block of Dask adds to moments and reservoir."""
    if bound is None:
        return [add_up(block, weights)]
    sample = Reservoir(bound[0], [*np.atleast_1d(bound[1]), number])
    return [add_up(block, weights, reservoir=sample), sample]
