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
