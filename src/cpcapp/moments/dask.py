"""Dask: rows in its collections, block by block, and work on many items of any kind on a cluster.

`cpcapp.Moments.of` and the estimators take Dask arrays and dataframes themselves. What has no rows
yet, such as photos, is sent to the workers of a `distributed` cluster, and its results come back in
their order or added up by a tree.
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from importlib import metadata
from operator import add, call
from typing import Any, TypeVar

import numpy as np

from cpcapp import __version__
from cpcapp.moments.rows import TextColumnsError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Seconds to wait for a scheduler that does not answer, and for its first worker.
_PATIENCE = 10.0
# Results that one task adds up. Each is up to 8 * n_features² bytes; chosen by hand.
_FAN_IN = 8
# What is the same for all items is sent once, so that distributed need not warn of its size.
_LARGE = {"distributed.admin.large-graph-warning-threshold": "1 GiB"}


class SchedulerError(ValueError):
    """A cluster can't be used. The message is one line that names it and says what to do."""


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """Give a client of the scheduler at an address such as ``"tcp://10.0.0.7:8786"``.

    Whoever can reach a scheduler can run code on its workers. So clusters belong into a network of
    their own, or behind TLS.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise ImportError("needs dask; install it with: pip install 'cpcapp[dask]'") from error
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise SchedulerError(
            f"no scheduler answers at {address}; start one with 'dask scheduler', and give the "
            "address that it prints, such as tcp://10.0.0.7:8786"
        ) from error
    with client:
        _check_workers(client, address)
        yield client


def _check_workers(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError as error:
        raise SchedulerError(
            f"the scheduler at {address} has no workers; start some with 'dask worker {address}'"
        ) from error
    try:
        # By a function of the standard library: one of ours would not arrive where there is none.
        versions = set(client.run(metadata.version, "cpcapp").values())
    except metadata.PackageNotFoundError as error:
        raise SchedulerError(
            f"the workers of {address} have no cpcapp; install cpcapp {__version__} where they run"
        ) from error
    if versions - {__version__}:
        raise SchedulerError(
            f"workers of {address} have cpcapp {', '.join(sorted(versions))}, but here it is "
            f"{__version__}; install the same version"
        )


def map_in_order(
    client: Any,
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    progress: Callable[[float], None] | None = None,
    on_lost: Callable[[_Item], _Result] | None = None,
) -> Generator[_Result]:
    """Yield the results for some items in their order, computed on a cluster.

    A task whose worker is lost is done again elsewhere. If its workers die again and again (by
    default four times, see ``distributed.scheduler.allowed-failures``) it is done once more when
    nothing else is, and then ``on_lost`` makes the result; without it that is an error. Only a few
    items for each thread are under way at a time, so that there may be millions of them.
    """
    import distributed

    submit = _submitter(client, work)
    total = len(items) if isinstance(items, Sequence) else 0
    waiting: deque[tuple[_Item, Any]] = deque()
    submitted = ((item, submit(item)) for item in items)
    for done, (item, task) in enumerate(_in_order(client, submitted, waiting), 1):
        try:
            result = task.result()
        except distributed.KilledWorker:
            if on_lost is None:
                raise
            # Dask blames all tasks of a worker that dies. So it is done once more, alone.
            distributed.wait([other for _, other in waiting])
            try:
                result = submit(item).result()
            except distributed.KilledWorker:
                result = on_lost(item)
        if progress is not None and total:
            progress(done / total)
        yield result


def sum_in_order(
    client: Any,
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    per_sum: int = _FAN_IN**2,
) -> Generator[tuple[int, _Result]]:
    """Yield how many items are done, and the sum of the results of those since the last one.

    Each sum is of ``per_sum`` consecutive items, added up by a tree on the cluster. Results must
    add up without a change of their parts, as `cpcapp.Moments` do.
    """
    submit = _submitter(client, work)
    add_group = partial(client.submit, reduce, add, pure=False)
    parts = [items[start : start + per_sum] for start in range(0, len(items), per_sum)]
    submitted = ((part, _tree([submit(item) for item in part], add_group)) for part in parts)
    done = 0
    for part, task in _in_order(client, submitted, deque(), per_sum):
        done += len(part)
        yield done, task.result()


def _in_order(
    client: Any, submitted: Iterable[Any], waiting: deque[Any], size: int = 1
) -> Generator[Any]:
    """Yield pairs of items and their task in order, with a few tasks a thread under way."""
    try:
        for pair in submitted:
            waiting.append(pair)
            threads = max(1, sum(int(count) for count in client.nthreads().values()))
            if len(waiting) > math.ceil(3 * threads / size):
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:
        client.cancel([task for _, task in waiting])


def _tree(level: Sequence[Any], add_group: Callable[[Sequence[Any]], Any]) -> Any:
    """Return the sum of tasks, added up in groups."""
    while len(level) > 1:
        level = [add_group(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
    return level[0]


def _submitter(client: Any, work: Any) -> Callable[[Any], Any]:
    """Send the work, which is the same for all items, once; return what submits an item."""
    import dask

    with dask.config.set(_LARGE):
        shared = client.submit(_same, work, pure=False)
    return lambda item: client.submit(call, shared, item, pure=False)


def _same(work: Any) -> Any:
    return work


# -- collections of rows -------------------------------------------------------------------


def as_dask_array(data: Any) -> Any:
    """Return a Dask array or dataframe as an array with all features in each block."""
    if hasattr(data, "dtypes") and hasattr(data, "to_dask_array"):
        kinds = ((name, getattr(dtype, "kind", "O")) for name, dtype in data.dtypes.items())
        text = [name for name, kind in kinds if kind not in "biuf"]
        if text:
            raise TextColumnsError(text, "input")
        data = data.to_dask_array()
    if getattr(data, "ndim", None) != 2:
        raise ValueError(
            f"a Dask {type(data).__name__} is no table of rows; give an array of shape (n_samples, "
            "n_features) or a dataframe"
        )
    return data if data.numblocks[1] == 1 else data.rechunk({1: -1})


def sum_blocks(data: Any, summarize: Callable[[int, Any, Any], Any], weights: Any = None) -> Any:
    """Return the sums of what ``summarize`` lists for each block: its number, rows and weights.

    Blocks are summarized where they lie, and added up by a tree, by whichever scheduler Dask is
    set to; by default threads.
    """
    import dask
    import dask.array as da

    rows = as_dask_array(data)
    blocks = rows.to_delayed().ravel().tolist()
    shares = [weights] * len(blocks)
    if np.ndim(weights) > 0:
        if np.isnan(rows.shape[0]):
            rows.compute_chunk_sizes()
        if np.shape(weights) != (rows.shape[0],):
            raise ValueError(
                f"sample_weight has shape {np.shape(weights)}; it must be ({rows.shape[0]},), one "
                "a row"
            )
        shares = da.asarray(weights).rechunk((rows.chunks[0],)).to_delayed().ravel().tolist()
    # Names that depend on the graph only would not do: a summary may be a closure.
    part, group = dask.delayed(summarize, pure=False), dask.delayed(_add, pure=False)
    pairs = enumerate(zip(blocks, shares, strict=True))
    # A delayed value runs in threads, or on a cluster.
    return _tree([part(number, *pair) for number, pair in pairs], group).compute()


def _add(parts: Sequence[Any]) -> Any:
    """Add up without a change of any part: a worker that is lost may need one of them again."""
    return reduce(lambda total, part: [a + b for a, b in zip(total, part, strict=True)], parts)


def map_blocks(data: Any, work: Callable[[Any], Any], n_columns: int | None) -> Any:
    """Return the results of ``work`` for all blocks as a Dask array that is not computed yet.

    It has as many rows and ``n_columns`` columns; None stands for one number a row.
    """
    rows = as_dask_array(data)
    if n_columns is None:
        return rows.map_blocks(work, drop_axis=1, dtype=np.float64, meta=np.empty((0,)))
    meta = np.empty((0, 0), np.float32 if rows.dtype == np.float32 else np.float64)
    chunks = (rows.chunks[0], (n_columns,))
    return rows.map_blocks(work, chunks=chunks, dtype=meta.dtype, meta=meta)
