"""A real Dask cluster of processes on this machine."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import dask
import distributed

TESTS = Path(__file__).parent


@contextmanager
def start_cluster(settings=None):
    """Give a cluster of two workers, each a process of one thread."""
    # Workers import the test modules whose functions they are sent.
    paths = [str(TESTS), *(p for p in sys.path if p)]
    known = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "default"}
    settings = {"distributed.nanny.environ": known, **(settings or {})}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            host="127.0.0.1",
            silence_logs=50,
            memory_limit="2GB",
        ) as cluster,
    ):
        yield cluster
