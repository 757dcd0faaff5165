"""A fit of 400 and 400 samples of 30 features against the least that LAPACK needs for it.

    python benchmarks/small_fit.py [--rounds 2000] [--before earlier.json] [--output results.json]

Times are those of the processor. All calls take turns in one process, many times, so that the
machine is the same for all of them. The floor is two means, two centred copies, two `dsyrk` and
LAPACK's `dsygvx` for two pairs.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import blas, eigh

from _machine import describe_machine, load_average
from cpcapp import CPCAPlusPlus
from cpcapp.datasets import synthetic

FLOOR = "floor"
K = 2


def floor(X: Any, B: Any) -> object:
    m = X.shape[1]
    r_f, r_b = (
        blas.dsyrk(1.0 / len(rows), (rows - rows.mean(axis=0)).T, lower=1) for rows in (X, B)
    )
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


def measure(rounds: int) -> dict[str, Any]:
    data = synthetic(random_state=0)
    X, B = data.target, data.background
    calls = {FLOOR: lambda: floor(X, B)}
    for loading in ("auto", "oas", "none"):
        calls[loading] = lambda loading=loading: CPCAPlusPlus(
            K, loading=loading, calibrate=False
        ).fit(X, background=B)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "shape": f"{len(X)}+{len(B)} x {X.shape[1]}",
        "rounds": rounds,
    }
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)
    results["machine"]["load_average_at_end"] = load_average()
    # Where other processes share the cores, the fastest tenth is what a quiet machine gives.
    for name, q in (("median", 50), ("fastest_tenth", 10)):
        found = {call: float(np.percentile(values, q)) for call, values in seconds.items()}
        results[f"seconds_{name}"] = found
        results[f"over_floor_{name}"] = {
            call: value / found[FLOOR] for call, value in found.items() if call != FLOOR
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000)
    default = Path(__file__).parent / "results" / "small_fit.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    parser.add_argument("--before", type=Path, help="JSON file of an earlier version, to include")
    arguments = parser.parse_args()
    results = measure(arguments.rounds)
    if arguments.before is not None:
        earlier = json.loads(arguments.before.read_text())
        results["before"] = {k: v for k, v in earlier.items() if k != "machine"}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    for name in ("median", "fastest_tenth"):
        print(name, results[f"seconds_{name}"], results[f"over_floor_{name}"])


if __name__ == "__main__":
    main()
