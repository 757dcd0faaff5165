"""Work that tests send to the workers of a cluster, which import it by this name."""

from __future__ import annotations

import os
import signal
import time

import dask
import dask.array as da
import numpy as np

from cpcapp import Moments

N_BLOCKS, ROWS, FEATURES = 24, 400, 20


def slow_rows(block_info=None):
    """A block whose rows follow from its place, after some time."""
    place = block_info[None]["chunk-location"][0]
    time.sleep(0.05)
    return rows_of(place)


def rows_of(place):
    return np.random.default_rng(place).normal(size=(ROWS, FEATURES)) + 1e5


def slow_array():
    chunks = ((ROWS,) * N_BLOCKS, (FEATURES,))
    return da.map_blocks(slow_rows, chunks=chunks, dtype=float, meta=np.empty((0, 0)))


def twice(number):
    return 2 * number


def whose_process(number):
    time.sleep(0.02)
    return number, os.getpid()


def kill_worker(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def moments_of_place(place):
    return Moments.of(rows_of(place))


def delayed_parts():
    return [dask.delayed(rows_of)(place) for place in range(N_BLOCKS)]
