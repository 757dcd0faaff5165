"""Work on a Dask cluster: any work on many items, in their order or added up by a tree.

`cpcapp.Moments.of` and the estimators take Dask arrays and dataframes themselves. This module is
for what has no rows yet, such as photos: it sends them to the workers of a `distributed` cluster.
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any, TypeVar

from cpcapp import __version__

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Seconds to wait for a scheduler that does not answer, and for its first worker.
_PATIENCE = 10.0
# Results of one task that are added up in one place. Chosen by hand.
_FAN_IN = 8
# What is the same for all items is sent once, so that distributed need not warn of its size.
_LARGE = {"distributed.admin.large-graph-warning-threshold": "1 GiB"}


class SchedulerError(ValueError):
    """A cluster can't be used. The message is one line that names it and says what to do."""


def require_distributed() -> Any:
    """Return the package distributed, or raise ImportError with the command that installs it."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise ImportError("needs dask; install it with: pip install 'cpcapp[dask]'") from error


@contextmanager
def connect(address: str, *, patience: float | None = None) -> Iterator[Any]:
    """Connect to the scheduler of a cluster, and disconnect at the end.

    Whoever can reach a scheduler can run code on its workers. So clusters belong into a network of
    their own, or behind TLS.

    Parameters
    ----------
    address : str
        Such as ``"tcp://10.0.0.7:8786"``; ``dask scheduler`` prints it.
    patience : float, optional
        Seconds to wait for the scheduler, and for a first worker; 10 by default.

    Yields
    ------
    distributed.Client

    Raises
    ------
    SchedulerError
        If nothing answers there, there is no worker, or workers have another version of cpcapp.
    ImportError
        If dask is not installed.
    """
    distributed = require_distributed()
    patience = _PATIENCE if patience is None else patience
    try:
        client = distributed.Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise SchedulerError(
            f"no scheduler answers at {address}; start one with 'dask scheduler', and give the "
            "address that it prints, such as tcp://10.0.0.7:8786"
        ) from error
    try:
        _check_workers(client, address, patience)
        yield client
    finally:
        client.close()


def _check_workers(client: Any, address: str, patience: float) -> None:
    try:
        client.wait_for_workers(1, timeout=patience)
    except TimeoutError as error:
        raise SchedulerError(
            f"the scheduler at {address} has no workers; start some with 'dask worker {address}'"
        ) from error
    own = __version__
    try:
        # By a function of the standard library: one of ours would not arrive where there is none.
        found = set(client.run(metadata.version, "cpcapp").values())
    except metadata.PackageNotFoundError as error:
        raise SchedulerError(
            f"the workers of {address} have no cpcapp; install cpcapp {own} where they run"
        ) from error
    if found - {own}:
        raise SchedulerError(
            f"workers of {address} have cpcapp {', '.join(sorted(found))}, but here it is {own}; "
            "install the same version"
        )


def count_threads(client: Any) -> int:
    """Return how many tasks a cluster runs at once."""
    return max(1, sum(int(count) for count in client.nthreads().values()))


def map_in_order(
    client: Any,
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    progress: Callable[[float], None] | None = None,
    on_lost: Callable[[_Item], _Result] | None = None,
) -> Generator[_Result]:
    """Yield the results for some items in their order, computed on a cluster.

    A task whose worker is lost is done again elsewhere. Only a few items for each thread of the
    cluster are under way at a time, so that there may be millions of them.

    Parameters
    ----------
    client : distributed.Client
    work : callable
        Sent once, however large.
    items : iterable
    progress : callable, optional
        Called with the share done, from 0 to 1; ``items`` must have a length then.
    on_lost : callable, optional
        Makes the result of an item whose workers die again and again (by default four times, see
        ``distributed.scheduler.allowed-failures``), and then again when nothing else is done.
        Without it that is an error.

    Yields
    ------
    result
    """
    import dask
    import distributed

    with dask.config.set(_LARGE):
        shared = client.submit(_same, work, pure=False)
    total = len(items) if isinstance(items, Sequence) else 0
    waiting: deque[tuple[Any, Any]] = deque()
    left, done = iter(items), 0
    try:
        while True:
            for item in left:
                task = client.submit(_call, shared, item, pure=False)
                waiting.append((item, task))
                if len(waiting) > 3 * count_threads(client):
                    break
            if not waiting:
                return
            item, task = waiting.popleft()
            try:
                result = task.result()
            except distributed.KilledWorker:
                if on_lost is None:
                    raise
                # Dask blames all tasks of a worker that dies. So it is done once more, alone.
                distributed.wait([other for _, other in waiting])
                try:
                    result = client.submit(_call, shared, item, pure=False).result()
                except distributed.KilledWorker:
                    result = on_lost(item)
            done += 1
            if progress is not None and total:
                progress(done / total)
            yield result
    finally:
        client.cancel([task for _, task in waiting])


def sum_in_order(
    client: Any,
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    per_sum: int = _FAN_IN**2,
) -> Generator[tuple[int, _Result]]:
    """Yield sums of the results for consecutive items, each added up by a tree on the cluster.

    Parameters
    ----------
    client : distributed.Client
    work : callable
        Returns something that adds up without a change of its parts, such as `cpcapp.Moments`.
    items : sequence
    per_sum : int, default=64
        Items of each sum.

    Yields
    ------
    done : int
        Items so far.
    result
        The sum of those since the last one.
    """
    import dask

    with dask.config.set(_LARGE):
        shared = client.submit(_same, work, pure=False)
    starts = iter(range(0, len(items), per_sum))
    waiting: deque[tuple[int, Any]] = deque()
    try:
        while True:
            for start in starts:
                part = items[start : start + per_sum]
                waiting.append((start + len(part), _submit_tree(client, shared, part)))
                if len(waiting) > math.ceil(3 * count_threads(client) / per_sum):
                    break
            if not waiting:
                return
            done, task = waiting.popleft()
            yield done, task.result()
    finally:
        client.cancel([task for _, task in waiting])


def _submit_tree(client: Any, shared: Any, items: Sequence[Any]) -> Any:
    level = [client.submit(_call, shared, item, pure=False) for item in items]
    while len(level) > 1:
        groups = [level[i : i + _FAN_IN] for i in range(0, len(level), _FAN_IN)]
        level = [client.submit(_sum, group, pure=False) for group in groups]
    return level[0]


def _same(work: Any) -> Any:
    return work


def _call(work: Callable[[Any], Any], item: Any) -> Any:
    return work(item)


def _sum(parts: Sequence[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
