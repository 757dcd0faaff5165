"""Working on several photos at a time, with few of them in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(
    pool: ThreadPoolExecutor, work: Callable[[_Item], _Result], items: Iterable[_Item], ahead: int
) -> Iterator[_Result]:
    """Yield results in the order of the items, of which at most ``ahead`` wait or are worked on.

    What waits is called off when the caller stops early.

    Examples
    --------
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order(pool, abs, [-1, 2, -3], ahead=4))
    [1, 2, 3]
    """
    waiting: deque[Future[_Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
