"""Work by several threads."""

from __future__ import annotations

import os
import platform
import threading
from pathlib import Path

import numpy as np
import pytest

from cpcapp._io.threads import give_back_memory, map_threads, shared_cores, spare_threads


def test_who_stops_early_is_told_before_the_items_under_way_are_done():
    order, release = [], threading.Event()

    def work(item):
        if item:
            release.wait(timeout=60)
            order.append(f"done {item}")
        return item

    def stop():
        order.append("stopped")
        release.set()

    results = map_threads(work, range(100), on_stop=stop)
    assert next(results) == 0
    results.close()
    assert order[0] == "stopped"
    assert len(order) < 5


def test_an_error_stops_the_rest():
    stopped, begun = [], []

    def work(item):
        begun.append(item)
        return 1 / item

    with pytest.raises(ZeroDivisionError):
        list(map_threads(work, range(100), on_stop=lambda: stopped.append(True)))
    assert stopped == [True]
    assert len(begun) < 10


def test_nothing_is_stopped_when_all_is_done():
    assert list(map_threads(abs, [-1, 2], on_stop=pytest.fail)) == [1, 2]


def test_jobs_must_be_positive():
    with pytest.raises(ValueError, match="jobs=0 must be at least 1"):
        list(map_threads(abs, [1], jobs=0))


@pytest.mark.parametrize("divided", [True, False])
def test_cores_are_divided_while_threads_work_if_that_is_wanted(divided):
    cv2 = pytest.importorskip("cv2")
    before = cv2.getNumThreads()
    found = list(
        map_threads(lambda _: cv2.getNumThreads(), range(3), jobs=1000, divide_cores=divided)
    )
    assert found == [1 if divided else before] * 3
    assert cv2.getNumThreads() == before


def test_work_on_one_item_of_several_has_few_threads():
    cv2 = pytest.importorskip("cv2")
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(3)
        assert (spare_threads(), spare_threads(2)) == (3, 2)
        with shared_cores(1000):
            assert spare_threads() == 1
    finally:
        cv2.setNumThreads(before)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps it")
def test_freed_memory_is_given_back():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    # Small ones among which some stay: the C library keeps what lies between.
    arrays = [np.ones(2000) for _ in range(8000)]
    del arrays[1::2]
    full = resident()
    kept = arrays[::40]
    del arrays
    give_back_memory()
    assert resident() < full - 3e7
    assert all(array.all() for array in kept)


def test_cores_that_two_threads_share_are_given_back_by_the_last():
    """One that began while the cores were divided must not leave them so."""
    cv2 = pytest.importorskip("cv2")
    before = cv2.getNumThreads()
    cv2.setNumThreads(3)
    try:
        first, second = shared_cores(10_000), shared_cores(10_000)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert cv2.getNumThreads() == 1
        second.__exit__(None, None, None)
        assert cv2.getNumThreads() == 3
    finally:
        cv2.setNumThreads(before)
