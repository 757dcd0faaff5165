"""One measurement of benchmarks/scale.py, in a process of its own.

Usage: python benchmarks/_scale_cases.py CASE-AS-JSON; prints the figures as JSON. Times are
processor time of one thread, unless they are called wall. Memory is the largest anonymous memory
that was seen (every 20 ms): pages of a memory map belong to the file, and the system takes them
back at will.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

_PAUSE = 0.02


class PeakMemory:
    """The largest anonymous memory of this process while it lasts, in MB (Linux only)."""

    def __enter__(self) -> PeakMemory:
        self.before = self.peak = _anonymous_mb()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(_PAUSE):
            self.peak = max(self.peak, _anonymous_mb())

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def _anonymous_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise OSError("this system does not say how much anonymous memory a process has")


def run_rows(case: dict[str, Any]) -> dict[str, Any]:
    rows = np.load(case["file"], mmap_mode="r")[: case["n"]]
    half = len(rows) // 2
    fits = {"cpcapp": _fit_cpcapp, "IncrementalPCA": _fit_incremental, "dask-ml": _fit_dask}
    fit = fits[case["method"]]
    fit(np.random.default_rng(0).standard_normal((2000, 30)), 1000)  # imports are not measured
    return measure(fit, rows, half)


def _fit_cpcapp(rows: Any, half: int) -> None:
    from cpcapp import CPCAPlusPlus

    CPCAPlusPlus(2, calibrate=False).fit(rows[:half], background=rows[half:])


def _fit_incremental(rows: Any, half: int) -> None:
    from sklearn.decomposition import IncrementalPCA

    IncrementalPCA(2).fit(rows)


def _fit_dask(rows: Any, half: int) -> None:
    import dask
    import dask.array as da
    from dask_ml.decomposition import PCA

    with dask.config.set(scheduler="synchronous"):
        PCA(2, svd_solver="tsqr").fit(da.from_array(rows, chunks=(10_000, rows.shape[1])))


def run_features(case: dict[str, Any]) -> dict[str, Any]:
    from cpcapp import CPCAPlusPlus

    rng = np.random.default_rng(0)
    sides = [rng.standard_normal((case["n"], case["m"]), dtype=np.float32) for _ in range(2)]
    fitted = CPCAPlusPlus(2, calibrate=False)
    found = measure(lambda: fitted.fit(sides[0], background=sides[1]))
    return found | {"solver": fitted.solver_}


def measure(work: Callable[..., object], *arguments: Any) -> dict[str, Any]:
    with warnings.catch_warnings(), PeakMemory() as memory:
        warnings.simplefilter("ignore")
        start, wall = time.process_time(), time.perf_counter()
        work(*arguments)
        seconds, wall = time.process_time() - start, time.perf_counter() - wall
    return {
        "seconds": round(seconds, 3),
        "wall_seconds": round(wall, 3),
        "memory_mb": round(memory.peak - memory.before, 1),
    }


def run_workers(case: dict[str, Any]) -> dict[str, Any]:
    """Return wall times on one and on two workers, in turns, and their processor time."""
    import dask.array as da
    import distributed

    from cpcapp import Moments

    rows = np.load(case["file"], mmap_mode="r")[: case["n"]]
    found: dict[str, Any] = {}
    with _clusters() as clients:
        for _ in range(case["rounds"]):
            for count, client in clients.items():
                blocks = da.map_blocks(
                    partial(_read_block, case["file"]),
                    chunks=((case["block"],) * (len(rows) // case["block"]), (rows.shape[1],)),
                    dtype=rows.dtype,
                    meta=np.empty((0, 0), rows.dtype),
                )
                with client.as_current():
                    before, start = _worker_seconds(client), time.perf_counter()
                    Moments.of(blocks)
                    wall = time.perf_counter() - start
                _note(found, count, wall, _worker_seconds(client) - before)
    assert distributed  # its workers did it
    return found


def _read_block(file: str, block_info: Any = None) -> Any:
    (start, stop), _ = block_info[None]["array-location"]
    return np.load(file, mmap_mode="r")[start:stop]


def run_photos(case: dict[str, Any]) -> dict[str, Any]:
    """Return photos a second on one and on two workers, in turns."""
    from PIL import Image

    from cpcapp.splicing import load_model, localize_files
    from cpcapp.splicing.examples import example_photos

    folder = Path(tempfile.mkdtemp())
    try:
        for number in range(case["n"]):
            photo = example_photos()[number % 4].image
            Image.fromarray(photo).save(folder / f"{number}.png", compress_level=1)
        found: dict[str, Any] = {}
        localizer = load_model(case["model"])
        with _clusters() as clients:
            for turn in range(1 + case["rounds"]):
                for count, client in clients.items():
                    before, start = _worker_seconds(client), time.perf_counter()
                    localize_files(folder, folder / f"out-{turn}-{count}", localizer, client=client)
                    wall = time.perf_counter() - start
                    if turn:  # the first one warms up
                        _note(found, count, wall, _worker_seconds(client) - before)
        return found
    finally:
        shutil.rmtree(folder)


class _clusters:  # noqa: N801
    """Clients of two clusters, with one and with two workers of one thread each."""

    def __enter__(self) -> dict[int, Any]:
        import distributed

        self.clusters = [
            distributed.LocalCluster(
                n_workers=count, threads_per_worker=1, dashboard_address=":0", memory_limit="4GB"
            )
            for count in (1, 2)
        ]
        self.clients = [distributed.Client(cluster) for cluster in self.clusters]
        for client in self.clients:
            client.run(_warm_up)
        return dict(zip((1, 2), self.clients, strict=True))

    def __exit__(self, *error: object) -> None:
        for opened in (*self.clients, *self.clusters):
            opened.close()


def _warm_up() -> None:
    import cpcapp.splicing  # noqa: F401
    from cpcapp import Moments

    Moments.of(np.eye(4))


def _worker_seconds(client: Any) -> Any:
    """Return the processor time of each worker."""
    spent = client.run(time.process_time)
    return np.array([spent[worker] for worker in sorted(spent)])


def _note(found: dict[str, Any], count: int, wall: float, spent: Any) -> None:
    """Note wall time, processor time of all workers, and that of the busiest one."""
    figures = {"wall": wall, "seconds": spent.sum(), "busiest": spent.max()}
    for name, value in figures.items():
        found.setdefault(f"{name}_{count}", []).append(round(float(value), 2))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    runs = {"rows": run_rows, "features": run_features}
    runs |= {"workers": run_workers, "photos": run_photos}
    print(json.dumps(runs[given["kind"]](given)))
