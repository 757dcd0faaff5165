"""Sparse data of many cells and many genes: time against two SVDs, and memory.

    python benchmarks/sparse.py [--quick] [--output results.json]

Writes a JSON file and, beside it, the same figures as Markdown. Times are those of the processor,
for one thread, with all calls taking turns in one process. The cells are made: counts of a
few kinds of cells, two of them in the target alone, and a set of noise without any structure, which
is the worst case for an iteration.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD

from _machine import describe_machine, load_average
from _memory import sparse_fit
from _report import machine_line, number, table, targets_table
from _sparse_cells import cells, noise
from _targets import at_most
from cpcapp import CPCAPlusPlus, Moments, solve_contrast

Results = dict[str, Any]

SVDS = "two TruncatedSVD"
K = 2


@dataclass(frozen=True)
class Plan:
    """Sizes, and how often to repeat."""

    n_cells: int
    n_genes: int
    rounds: int
    noise_rounds: int
    exact: tuple[int, int]


FULL = Plan(20_000, 10_000, 3, 1, (2500, 2000))
QUICK = Plan(3000, 2500, 2, 1, (2500, 2000))
DENSITY = 0.03


def measure_time(
    make: Any, name: str, loadings: tuple[str, ...], plan: Plan, rounds: int
) -> list[Results]:
    """Return one row for each loading: processor time, and the ratio to two SVDs of the rank."""
    X, B = (make(plan.n_cells, plan.n_genes, DENSITY, target=t) for t in (True, False))
    calls: dict[str, Callable[[], Any]] = {
        SVDS: lambda: [TruncatedSVD(K, random_state=0).fit(rows) for rows in (X, B)]
    }
    for loading in loadings:
        calls[loading] = lambda loading=loading: _fit(X, B, loading)
    seconds: dict[str, list[float]] = {call: [] for call in calls}
    solvers = {}
    for _ in range(rounds):
        for call, function in calls.items():
            start = time.process_time()
            made = function()
            seconds[call].append(time.process_time() - start)
            solvers[call] = getattr(made, "solver_", None)
    return [
        {
            "data": name,
            "shape": f"{X.shape[0]:,}+{B.shape[0]:,} x {X.shape[1]:,}",
            "density": X.nnz / (X.shape[0] * X.shape[1]),
            "loading": loading,
            "solver": solvers[loading],
            "processor_seconds": {call: seconds[call] for call in (loading, SVDS)},
            "over_svds": _ratio(seconds[loading], seconds[SVDS]),
        }
        for loading in loadings
    ]


def _ratio(slow: list[float], fast: list[float]) -> float:
    return float(np.median(np.array(slow) / np.array(fast)))


def _fit(X: Any, B: Any, loading: str) -> CPCAPlusPlus:
    return CPCAPlusPlus(K, loading=loading).fit(X, background=B)


def measure_error(plan: Plan) -> Results:
    """Compare with the dense solver, for the same loading and for the one that each chooses."""
    n, m = plan.exact
    X, B = (cells(n, m, DENSITY, target=t) for t in (True, False))
    target, background = Moments.of(X), Moments.of(B)
    errors = {}
    for loading in ("auto", "oas"):
        free, dense = (
            solve_contrast(target, background, K, loading=loading, solver=solver)
            for solver in ("matrix-free", "dense")
        )
        errors[loading] = {
            "eigenvalues": _relative(free.eigenvalues, dense.eigenvalues),
            "filters": _angle(free.filters, dense.filters),
            "contrast": _relative(free.contrast, dense.contrast),
            "loading": _relative(free.loading.diagonal, dense.loading.diagonal),
        }
    return {"shape": f"{n:,}+{n:,} x {m:,}", "errors": errors}


def _relative(value: Any, exact: Any) -> float:
    return float(np.abs(np.asarray(value) - exact).max() / np.abs(exact).max())


def _angle(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    a, b = (np.linalg.qr(v)[0] for v in (a, b))
    return float(np.linalg.norm(b - a @ (a.T @ b), 2))


def measure(plan: Plan) -> Results:
    results: Results = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": plan is QUICK,
        "machine": describe_machine(),
    }
    print("cells ...", flush=True)
    results["times"] = measure_time(cells, "cells", ("auto", "oas"), plan, plan.rounds)
    print("noise ...", flush=True)
    results["times"] += measure_time(noise, "noise", ("auto",), plan, plan.noise_rounds)
    print("memory ...", flush=True)
    results["memory"] = sparse_fit(plan.n_cells, plan.n_genes, DENSITY)
    print("error ...", flush=True)
    results["error"] = measure_error(plan)
    results["machine"]["load_average_at_end"] = load_average()
    results["targets"] = [
        at_most(f"over two SVDs, {row['data']}, {row['loading']}", row["over_svds"], 3.0)
        for row in results["times"]
    ]
    peak = results["memory"]["resident_peak_bytes"]
    results["targets"].append(
        at_most("peak memory of the process, GB", None if peak is None else peak / 1e9, 1.0)
    )
    return results


def as_markdown(results: Results) -> str:
    times = [
        [
            row["data"],
            row["loading"],
            row["solver"],
            *(number(np.median(values)) for values in row["processor_seconds"].values()),
            f"{row['over_svds']:.2f}",
            str(len(row["processor_seconds"][SVDS])),
        ]
        for row in results["times"]
    ]
    first, memory, error = results["times"][0], results["memory"], results["error"]
    resident = memory["resident_peak_bytes"]
    errors = [
        [loading, *(f"{value:.1e}" for value in found.values())]
        for loading, found in error["errors"].items()
    ]
    parts = [
        "# Sparse data of many cells and genes",
        machine_line(results),
        "## Seconds of the processor to fit two components",
        f"{first['shape']}, {100 * first['density']:.1f} % of values stored. `TruncatedSVD` takes "
        "five power iterations, converged or not.",
        table(["data", "loading", "solver", "fit, s", f"{SVDS}, s", "ratio", "rounds"], times),
        "## Memory",
        f"A fit of the cells holds {memory['traced_peak_bytes'] / 1e6:,.0f} MB at most beyond the "
        f"data ({memory['data_bytes'] / 1e6:,.0f} MB). The whole process, with Python, libraries "
        f"and data, held {'-' if resident is None else f'{resident / 1e6:,.0f}'} MB. One matrix of "
        f"genes by genes would take {memory['matrix_bytes'] / 1e6:,.0f} MB.",
        "## Differences from the dense solver",
        f"Cells, {error['shape']}. Relative, filters by the sine of the largest angle.",
        table(["loading", *next(iter(error["errors"].values()))], errors),
        "## Targets",
        targets_table(results["targets"]),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sets, fewer repeats")
    default = Path(__file__).parent / "results" / "sparse.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    arguments = parser.parse_args()
    results = measure(QUICK if arguments.quick else FULL)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    arguments.output.with_suffix(".md").write_text(as_markdown(results))
    print(as_markdown(results))


if __name__ == "__main__":
    main()
