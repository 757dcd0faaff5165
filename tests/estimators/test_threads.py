"""One estimator in many threads: read-only use gives the same bytes, and a copy can be refitted."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp import CPCA, CPCAPlusPlus

N_THREADS = 8


@pytest.fixture
def data(rng):
    X, B = rng.normal(size=(300, 20)), rng.normal(size=(250, 20))
    X[:, 3] *= 4.0
    return X, B


def run_together(work, count=N_THREADS):
    """Start all threads at one moment; return what each of them gives."""
    barrier = threading.Barrier(count)

    def start(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def use(estimator, X):
    """All that only reads, as bytes."""
    scores = estimator.transform(X)
    found = [scores, estimator.inverse_transform(scores), estimator.transform(sp.csr_array(X))]
    if isinstance(estimator, CPCAPlusPlus):
        found += [estimator.power(X), estimator.p_value(X), estimator.denoise(X)]
    return b"".join(np.asarray(part).tobytes() for part in found)


@pytest.mark.parametrize(
    "make", [lambda: CPCAPlusPlus(2, calibrate=True), lambda: CPCA(2, alpha=1.0)]
)
def test_eight_threads_read_the_same_bytes(data, make):
    X, B = data
    estimator = make().fit(X, background=B)
    alone = use(estimator, X)
    found = run_together(lambda _: {use(estimator, X) for _ in range(20)})
    assert found == [{alone}] * N_THREADS


def test_a_copy_is_refitted_while_others_transform(data):
    X, B = data
    shared = CPCAPlusPlus(2, calibrate=True).partial_fit(X, background=B)
    before = use(shared, X)

    def work(number):
        if number:
            return {use(shared, X) for _ in range(20)}
        for _ in range(10):
            copy = deepcopy(shared).partial_fit(X[:50] * 3.0, background=B[:50] - 1.0)
            assert use(copy, X) != before
        return {before}

    assert run_together(work) == [{before}] * N_THREADS
