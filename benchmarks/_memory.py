"""Peak memory of a fit, each measured in a process of its own."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from _data import correlated
from _sparse_cells import cells
from cpcapp import CPCAPlusPlus
from cpcapp.moments.moments import _DENSE_BLOCK

Figures = dict[str, float | int | str | None]

_FEATURES = 784
_WRITE_ROWS = 10_000


def memory_map_fit(n_rows: int, n_background: int) -> Figures:
    """Return the peak of a fit to memory maps, as multiples of one covariance matrix."""
    with TemporaryDirectory() as folder:
        target, background = Path(folder) / "target.npy", Path(folder) / "background.npy"
        _write(target, n_rows, signal=True)
        _write(background, n_background, signal=False)
        figures = _in_new_process(_fit_memory_maps, target, background)
    matrix, chunk = 8 * _FEATURES**2, 8 * _FEATURES * _DENSE_BLOCK
    return {
        "shape": f"{n_rows}+{n_background} x {_FEATURES}",
        **figures,
        "matrix_bytes": matrix,
        "chunk_bytes": chunk,
        "matrices_beyond_chunk": (int(figures["traced_peak_bytes"]) - chunk) / matrix,
    }


def wide_fit(n: int, n_background: int, n_features: int) -> Figures:
    """Return the peak of a dual fit, as a share of the covariance matrix it avoids."""
    figures = _in_new_process(_fit_wide, n, n_background, n_features)
    matrix, data = 8 * n_features**2, 8 * n_features * (n + n_background)
    peak = int(figures["traced_peak_bytes"])
    return {
        **figures,
        "matrix_bytes": matrix,
        "data_bytes": data,
        "share_of_matrix": peak / matrix,
        "times_data": peak / data,
    }


def sparse_fit(n_cells: int, n_genes: int, density: float) -> Figures:
    """Return the peak of a fit to sparse cells, beyond the data and of the whole process."""
    figures = _in_new_process(_fit_sparse, n_cells, n_genes, density)
    return {**figures, "matrix_bytes": 8 * n_genes**2}


def _write(path: Path, n_rows: int, *, signal: bool) -> None:
    rng = np.random.default_rng(int(signal))
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n_rows, _FEATURES))
    # Far enough from zero that the rows must be centred: otherwise no chunk is ever copied.
    offset = np.linspace(0.0, 100.0, _FEATURES)
    for start in range(0, n_rows, _WRITE_ROWS):
        stop = min(start + _WRITE_ROWS, n_rows)
        out[start:stop] = correlated(stop - start, _FEATURES, rng, signal=signal) + offset
    out.flush()


def _in_new_process(function: Callable[..., Figures], *arguments: object) -> Figures:
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _fit_memory_maps(target: Path, background: Path) -> Figures:
    X, B = (np.load(path, mmap_mode="r") for path in (target, background))
    return _peak(lambda: CPCAPlusPlus(2).fit(X, background=B))


def _fit_wide(n: int, n_background: int, n_features: int) -> Figures:
    rng = np.random.default_rng(0)
    X = correlated(n, n_features, rng, signal=True)
    B = correlated(n_background, n_features, rng)
    return _peak(lambda: CPCAPlusPlus(2, solver="dual").fit(X, background=B))


def _fit_sparse(n_cells: int, n_genes: int, density: float) -> Figures:
    X, B = (cells(n_cells, n_genes, density, target=t) for t in (True, False))
    stored = sum(a.nbytes for m in (X, B) for a in (m.data, m.indices, m.indptr))
    # Without tracemalloc, and before the peak that it has to remember.
    CPCAPlusPlus(2).fit(X, background=B)
    resident = _resident_high_water()
    figures = _peak(lambda: CPCAPlusPlus(2).fit(X, background=B))
    return {**figures, "data_bytes": stored, "resident_peak_bytes": resident}


def _peak(fit: Callable[[], CPCAPlusPlus]) -> Figures:
    # What a first fit imports is not part of any fit's memory.
    rng = np.random.default_rng(0)
    CPCAPlusPlus(2).fit(rng.standard_normal((20, 3)), background=rng.standard_normal((20, 3)))
    gc.collect()
    before = _resident_high_water()
    tracemalloc.start()
    fitted = fit()
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    after = _resident_high_water()
    growth = None if before is None or after is None else after - before
    return {
        "solver": fitted.solver_,
        "traced_peak_bytes": traced,
        "resident_growth_bytes": growth,
    }


def _resident_high_water() -> int | None:
    """Return VmHWM, which counts the pages of a memory map that happen to be in memory."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return 1024 * int(sizes[0]) if sizes else None
