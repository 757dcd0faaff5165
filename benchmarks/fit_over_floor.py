"""A fit against the least that LAPACK needs for it, on one core.

    python benchmarks/fit_over_floor.py [--rounds 15] [--output results.json]

Times are those of the processor, with one thread. All calls take turns in one process, so that the
machine is the same for all of them. The floor is two means, two centred copies, two `dsyrk` and
LAPACK's `dsygvx` for two pairs. Where the background is singular, a thousandth of its mean variance
is added, for the floor and in place of ``loading="none"``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import blas, eigh
from threadpoolctl import threadpool_limits

from _data import MNIST_OVER_GRASS, table_one
from _machine import describe_machine, load_average
from _targets import at_most
from cpcapp import CPCAPlusPlus
from cpcapp.contrast.solution import SingularBackgroundError
from cpcapp.datasets import synthetic

FLOOR = "floor"
K = 2
# Of the floor, for the small and the large shape.
LIMITS = {"small": {"auto": 8.0}, "large": {"auto": 1.3, "none": 1.0, "0.001": 1.0}}


def floor(X: Any, B: Any, load: float) -> object:
    m = X.shape[1]
    r_f, r_b = (
        blas.dsyrk(1.0 / len(rows), (rows - rows.mean(axis=0)).T, lower=1) for rows in (X, B)
    )
    r_b[np.diag_indices(m)] += load * r_b.trace() / m
    return eigh(
        r_f,
        r_b,
        lower=True,
        subset_by_index=(m - K, m - 1),
        driver="gvx",
        overwrite_a=True,
        overwrite_b=True,
        check_finite=False,
    )


def shapes() -> Iterator[tuple[str, str, Any, Any, int]]:
    """Yield size, name, both sets and how many times as many rounds as the large one takes."""
    data = synthetic(random_state=0)
    yield "small", "synthetic", data.target, data.background, 40
    for pair in table_one():
        if pair.name == MNIST_OVER_GRASS:
            yield "large", f"{pair.name} ({pair.source})", pair.target, pair.background, 1


def race(X: Any, B: Any, rounds: int) -> dict[str, Any]:
    """Return what each loading takes, and the floor."""
    calls: dict[str, Callable[[], object]] = {}
    for loading in ("auto", "oas", "none", 1e-3):
        calls[str(loading)] = lambda loading=loading: CPCAPlusPlus(K, loading=loading).fit(
            X, background=B
        )
    load = 0.0
    try:
        calls["none"]()
    except SingularBackgroundError:
        load = 1e-3
        del calls["none"]
    calls[FLOOR] = lambda: floor(X, B, load)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)
    # Of ratios within a round the median: both saw the same machine.
    ratios = {name: np.array(its) / np.array(seconds[FLOOR]) for name, its in seconds.items()}
    return {
        "shape": f"{len(X)}+{len(B)} x {X.shape[1]}",
        "rounds": rounds,
        "background_loaded": load > 0.0,
        "seconds": {name: float(np.median(its)) for name, its in seconds.items()},
        "over_floor": {n: float(np.median(r)) for n, r in ratios.items() if n != FLOOR},
        "quartiles": {n: np.percentile(r, (25, 75)).tolist() for n, r in ratios.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="of the large shape")
    default = Path(__file__).parent / "results" / "fit_over_floor.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "targets": [],
    }
    with threadpool_limits(1):
        for size, name, X, B, times in shapes():
            results[size] = {"name": name} | race(X, B, times * arguments.rounds)
            found = results[size]["over_floor"]
            print(name, {key: round(value, 2) for key, value in found.items()}, flush=True)
            results["targets"] += [
                at_most(f"{size}, loading={loading}, over floor", found[loading], limit)
                for loading, limit in LIMITS[size].items()
                if loading in found
            ]
    results["machine"]["load_average_at_end"] = load_average()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
