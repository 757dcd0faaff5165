"""How exact the moments of dense and sparse data are, and what that costs.

The reference is a covariance in extended precision, two passes. Errors are relative to the
deviations of the features. Times are processor time of one thread, the best of several.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from _machine import describe_machine
from cpcapp import Moments

OFFSETS = (0.0, 1e6, 1e9, 1e12)
SHAPES = ((50, 80), (3000, 30), (10_000, 30))
TIMED = ((10_000, 300), (50_000, 60))
REPEATS = 5


def exact_covariance(X: Any) -> Any:
    wide = np.asarray(X, dtype=np.longdouble)
    centred = wide - wide.mean(axis=0)
    return (centred.T @ centred / len(wide)).astype(np.float64)


def error(moments: Moments, expected: Any) -> float:
    deviations = np.sqrt(expected.diagonal())
    off = (moments.covariance() - expected) / np.multiply.outer(deviations, deviations)
    return float(np.abs(off).max())


def measure_errors() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    found = []
    for n, m in SHAPES:
        for offset in OFFSETS:
            for dtype in (np.float64, np.float32):
                if dtype is np.float32 and offset > 1e6:
                    continue  # float32 has no digits left of a variance of 1
                X = rng.normal(loc=offset, size=(n, m)).astype(dtype)
                expected = exact_covariance(X)
                parts = (Moments.of(part) for part in np.array_split(X, 3))
                found.append(
                    {
                        "n": n,
                        "m": m,
                        "offset": offset,
                        "dtype": np.dtype(dtype).name,
                        "dense": error(Moments.of(X), expected),
                        "sparse": error(Moments.of(sp.csr_array(X)), expected),
                        "added": error(sum(parts, start=Moments()), expected),
                    }
                )
    return found


def measure_times() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    found = []
    for n, m in TIMED:
        for offset in (0.0, 50.0, 1e6):
            for dtype in (np.float64, np.float32):
                X = (rng.normal(size=(n, m)) + offset).astype(dtype)
                weights = rng.random(n)
                row: dict[str, Any] = {"n": n, "m": m, "offset": offset}
                row["dtype"] = np.dtype(dtype).name
                row["ms"] = best_ms(lambda X=X: Moments.of(X))
                row["weighted_ms"] = best_ms(lambda X=X, w=weights: Moments.of(X, sample_weight=w))
                found.append(row)
    return found


def best_ms(call: Any) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return round(1e3 * min(times), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("benchmarks/results/moments.json")
    )
    arguments = parser.parse_args()
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "errors": measure_errors(),
        "times": measure_times(),
    }
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    for row in (*result["errors"], *result["times"]):
        print(
            *(
                f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}"
                for key, value in row.items()
            )
        )


if __name__ == "__main__":
    main()
