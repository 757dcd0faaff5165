"""How the jobs of a command share the processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def shared_cores(jobs: int) -> Iterator[None]:
    """Divide the cores: as many threads of OpenCV and of BLAS in every job would be too many.

    Examples
    --------
    >>> import cv2
    >>> with shared_cores(10_000):
    ...     cv2.getNumThreads()
    1
    """
    if jobs == 1:
        yield
        return
    import cv2
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before, share = cv2.getNumThreads(), max(1, (os.cpu_count() or 1) // jobs)
    cv2.setNumThreads(share)
    try:
        with threadpool_limits(share):
            yield
    finally:
        cv2.setNumThreads(before)
