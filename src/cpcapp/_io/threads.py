"""Working on several items at a time, with few of them in memory."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_threads(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
    on_stop: Callable[[], None] | None = None,
    divide_cores: bool = True,
) -> Generator[_Result]:
    """Yield the results for some items in their order, computed by several threads.

    At most ``2 * jobs + 1`` items are under way at a time. If the caller stops early, or a result
    is an exception, items that were not begun are cancelled. ``progress`` is called with the share
    done, and ``on_stop`` if work ends early, before items under way are waited for. Work that uses
    neither OpenCV nor BLAS need not divide the cores.
    """
    if jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1")
    total = len(items) if isinstance(items, Sized) else 0
    waiting: deque[Future[_Result]] = deque()
    done = 0
    with shared_cores(jobs if divide_cores else 1), ThreadPoolExecutor(jobs) as pool:
        try:
            left = iter(items)
            while True:
                for item in left:
                    waiting.append(pool.submit(work, item))
                    if len(waiting) > 2 * jobs:
                        break
                if not waiting:
                    return
                result = waiting.popleft().result()
                done += 1
                if progress is not None and total:
                    progress(done / total)
                yield result
        except BaseException:
            if on_stop is not None:
                on_stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def spare_threads(most: int = 4) -> int:
    """Return how many threads the work on one item may use: those that OpenCV may.

    So it is one while several items are worked on; see `shared_cores`.
    """
    import cv2

    return int(min(most, max(1, cv2.getNumThreads())))


def give_back_memory() -> None:
    """Hand freed memory back to the system where the C library keeps it; glibc does.

    It keeps much of what threads have freed, some hundred megabytes after a large photo.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


@contextmanager
def shared_cores(jobs: int) -> Iterator[None]:
    """Divide the cores: as many threads of OpenCV and of BLAS in every job would be too many.

    Several threads may do so at a time: the smallest share counts, and the last one to end gives
    all cores back.
    """
    if jobs == 1:
        yield
        return
    share = max(1, (os.cpu_count() or 1) // jobs)
    _set_shares(_shares.append, share)
    try:
        yield
    finally:
        _set_shares(_shares.remove, share)


_lock = threading.Lock()
_shares: list[int] = []  # that are asked for now
_before: list[Any] = []  # the threads of OpenCV, and what restores those of BLAS


def _set_shares(change: Callable[[int], None], share: int) -> None:
    """Add or remove a share, and have OpenCV and BLAS use the smallest of those left."""
    import cv2
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with _lock:
        if not _shares:
            _before[:] = cv2.getNumThreads(), threadpool_limits(None)
        change(share)
        cv2.setNumThreads(min(_shares, default=_before[0]))
        if _shares:
            threadpool_limits(min(_shares))
        else:
            _before[1].restore_original_limits()
