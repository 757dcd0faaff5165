from __future__ import annotations

import os
import signal
import threading
import time

import dask.array as da
import distributed
import numpy as np
import pytest

from cluster_work import (
    FEATURES,
    N_BLOCKS,
    ROWS,
    delayed_parts,
    kill_worker,
    moments_of_place,
    rows_of,
    slow_array,
    twice,
    whose_process,
)
from clusters import start_cluster
from cpcapp import CPCAPlusPlus, Moments
from cpcapp.moments.dask import SchedulerError, connect, map_in_order, sum_in_order
from cpcapp.moments.rows import NonFiniteError


@pytest.fixture(scope="module")
def cluster():
    # Five megabytes in a worker are enough to make it spill; two dead workers are enough to
    # suspect their task.
    settings = {
        "distributed.worker.memory.target": 0.0025,
        "distributed.scheduler.allowed-failures": 1,
    }
    with start_cluster(settings) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def expected():
    return Moments.of(np.concatenate([rows_of(place) for place in range(N_BLOCKS)]))


def assert_same(found, expected):
    assert found.n_samples == expected.n_samples
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), atol=1e-8, rtol=1e-8)


def test_moments_on_two_workers(client, expected):
    assert_same(Moments.of(slow_array()), expected)
    rows = np.concatenate([rows_of(place) for place in range(N_BLOCKS)])
    fitted = CPCAPlusPlus(1).fit(slow_array(), background=da.from_array(rows[:999]))
    same = CPCAPlusPlus(1).fit(rows, background=rows[:999])
    np.testing.assert_allclose(fitted.components_, same.components_, rtol=1e-6, atol=1e-8)
    scores = fitted.transform(slow_array()).compute()
    np.testing.assert_allclose(scores, same.transform(rows), rtol=1e-6, atol=1e-6)


def test_blocks_that_were_spilled_to_disk(client, expected):
    blocks = [da.from_delayed(part, (ROWS, FEATURES), float) for part in delayed_parts()]
    # Each block ten times: 15 MB on two workers that keep 5 MB each.
    wide = da.concatenate([da.tile(block, (10, 1)) for block in blocks]).persist()
    distributed.wait(wide)
    spilled = client.run(lambda dask_worker: len(dask_worker.data.disk))
    assert sum(spilled.values()) > 0
    found = Moments.of(wide)
    assert found.n_samples == 10 * expected.n_samples
    np.testing.assert_allclose(found.covariance(), expected.covariance(), atol=1e-8, rtol=1e-8)


def test_errors_of_workers_are_those_of_numpy(client):
    bad = da.ones((100, 3), chunks=(10, 3)) * np.array([1.0, np.nan, 1.0])
    with pytest.raises(NonFiniteError, match="X contains NaN or infinity in column 1"):
        CPCAPlusPlus(1).fit(bad)


def test_results_come_in_order_from_all_workers(client):
    shares = []
    results = list(map_in_order(client, whose_process, range(40), progress=shares.append))
    assert [number for number, _ in results] == list(range(40))
    assert len({pid for _, pid in results}) == 2
    assert shares == [n / 40 for n in range(1, 41)]
    assert list(map_in_order(client, twice, [])) == []


def test_sums_by_a_tree(client, expected):
    sums = list(sum_in_order(client, moments_of_place, range(N_BLOCKS), per_sum=10))
    assert [done for done, _ in sums] == [10, 20, 24]
    assert_same(sum(part for _, part in sums), expected)


def test_a_large_work_is_sent_without_a_warning(client):
    table = np.arange(3_000_000.0)  # 24 MB
    assert list(map_in_order(client, table.__getitem__, [5, 7])) == [5.0, 7.0]


def test_connect(cluster):
    with connect(cluster.scheduler_address) as client:
        assert client.submit(twice, 4).result() == 8


def test_no_scheduler_or_no_workers(monkeypatch):
    monkeypatch.setattr("cpcapp.moments.dask._PATIENCE", 0.5)
    for address in ("tcp://127.0.0.1:1", "nonsense", "ftp://127.0.0.1:8786"):
        with pytest.raises(SchedulerError, match=f"no scheduler answers at {address}; start one"):
            connect(address).__enter__()
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1") as empty,
        pytest.raises(SchedulerError, match="has no workers; start some with 'dask worker"),
    ):
        connect(empty.scheduler_address).__enter__()


def test_a_worker_that_is_killed_changes_nothing(client, expected):
    found = []
    running = threading.Thread(target=lambda: found.append(Moments.of(slow_array())))
    pids = list(client.run(os.getpid).values())
    running.start()
    time.sleep(0.3)
    assert running.is_alive()
    os.kill(pids[0], signal.SIGKILL)
    running.join(timeout=60)
    assert_same(found[0], expected)
    # It was a worker of this cluster that died, and another one has taken its place.
    client.wait_for_workers(2, timeout=60)
    assert pids[0] not in client.run(os.getpid).values()


def test_an_item_that_kills_its_workers_is_given_up(client):
    found = list(map_in_order(client, kill_worker, range(6), on_lost=lambda number: -number))
    assert found == [0, 1, 2, -3, 4, 5]
