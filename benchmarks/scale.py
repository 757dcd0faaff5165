"""Time and memory against rows, features and workers, beside IncrementalPCA and dask-ml's PCA.

Each case runs in a process of its own, with one thread of BLAS. Results are kept after each case:
``--go-on`` measures what is missing. The rows are a memory map of float32 with 784 features, whose
file is written to a temporary folder and removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from _machine import describe_machine, load_average

RESULTS = Path(__file__).parent / "results" / "scale.json"
FEATURES = 784
BLOCK = 10_000
ROWS = (10_000, 100_000, 1_000_000, 3_000_000, 10_000_000)
# Others take about ten times as long a row; so they get fewer.
ROWS_OF_OTHERS = (10_000, 30_000, 100_000)
# Rows of each side: twice the features, and for the last few rows of very many features.
SHAPES = ((1000, 500), (2000, 1000), (4000, 2000), (8000, 4000), (1000, 20_000))
METHODS = ("cpcapp", "IncrementalPCA", "dask-ml")


def list_cases(most_rows: int) -> list[dict[str, Any]]:
    own = [n for n in {*ROWS, *ROWS_OF_OTHERS} if n <= most_rows]
    cases: list[dict[str, Any]] = [{"kind": "rows", "method": "cpcapp", "n": n} for n in own]
    cases += [
        {"kind": "rows", "method": m, "n": n}
        for n in ROWS_OF_OTHERS
        for m in METHODS[1:]
        if n <= most_rows
    ]
    cases += [{"kind": "features", "n": n, "m": m} for n, m in SHAPES]
    cases.append({"kind": "workers", "n": 200_000, "block": BLOCK, "rounds": 3})
    cases.append({"kind": "photos", "n": 8, "model": "filters", "rounds": 1})
    # What takes long comes last.
    return sorted(
        cases, key=lambda case: (case["n"] >= 1_000_000, case.get("m") == 4000, case["n"])
    )


def write_rows(folder: Path, n: int) -> Path:
    """Write as many rows as are needed: a block of noise with structure, again and again."""
    rng = np.random.default_rng(0)
    mixing = np.linspace(3.0, 0.5, FEATURES).astype(np.float32)
    path = folder / "rows.npy"
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, FEATURES))
    block = rng.standard_normal((BLOCK, FEATURES), dtype=np.float32) * mixing + 5.0
    for start in range(0, n, BLOCK):
        rows[start : start + BLOCK] = block[: n - start]
    rows.flush()
    return path


def run_case(case: dict[str, Any], file: Path, timeout: float) -> dict[str, Any] | None:
    """Return the figures of a case; None if it takes too long."""
    given = {**case, "file": str(file)}
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    script = str(Path(__file__).with_name("_scale_cases.py"))
    # Without this folder on the path: dask-ml would import the benchmark called sparse.
    command = [sys.executable, "-P", script, json.dumps(given)]
    try:
        done = subprocess.run(
            command, env={**os.environ, **threads}, capture_output=True, timeout=timeout, text=True
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"{case}: {done.stderr.strip().splitlines()[-1]}")
    return {**case, **json.loads(done.stdout.splitlines()[-1]), "load": load_average()}


def slope(points: list[tuple[float, float]]) -> float | None:
    """Return the exponent of a power law through some points."""
    if len(points) < 2:
        return None
    x, y = np.log(np.array(points)).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)


def summarize(found: list[dict[str, Any]]) -> dict[str, Any]:
    rows = {m: [c for c in found if c["kind"] == "rows" and c["method"] == m] for m in METHODS}
    rate = {m: {c["n"]: c["n"] / c["seconds"] for c in cases} for m, cases in rows.items()}
    summary: dict[str, Any] = {
        "rows_per_second": {m: {n: round(v) for n, v in r.items()} for m, r in rate.items()},
        "slope_of_seconds_in_rows": {
            m: slope([(c["n"], c["seconds"]) for c in cases]) for m, cases in rows.items()
        },
        "memory_mb": {m: {c["n"]: c["memory_mb"] for c in cases} for m, cases in rows.items()},
    }
    for other in METHODS[1:]:
        same = sorted(rate["cpcapp"].keys() & rate[other].keys())
        summary[f"times_faster_than_{other}"] = {
            n: round(rate["cpcapp"][n] / rate[other][n], 1) for n in same
        }
    dense = [c for c in found if c["kind"] == "features" and c["m"] < c["n"]]
    summary["slope_of_seconds_in_features"] = slope([(c["m"], c["seconds"]) for c in dense])
    summary["slope_of_memory_in_features"] = slope([(c["m"], c["memory_mb"]) for c in dense])
    for case in found:
        if case["kind"] in ("workers", "photos") and "busiest_1" in case:
            one, two = np.median(case["wall_1"]), np.median(case["wall_2"])
            summary[case["kind"]] = {
                "two_workers_times_one_wall": round(float(one / two), 2),
                # What is left of it on a busy machine: how evenly the work was divided, and
                # what it cost more.
                "two_workers_times_one_by_processor_time_of_the_busiest": round(
                    float(np.median(case["busiest_1"]) / np.median(case["busiest_2"])), 2
                ),
                "per_second_wall": {1: round(case["n"] / one, 2), 2: round(case["n"] / two, 2)},
                "per_second_of_processor": round(case["n"] / np.median(case["seconds_1"]), 2),
                "load": case["load"],
            }
    return summary


def write_report(result: dict[str, Any], path: Path) -> None:
    summary = result["summary"]
    lines = [
        "# Scale",
        "",
        f"{result['date']}, {result['machine']['processor']}, one thread of BLAS. Seconds are",
        "processor time. Half of the rows are target and half background for cpcapp; the others",
        "are fitted to all of them. Memory is what the fit adds, without pages of the memory map.",
        "",
        "| rows of 784 features | method | seconds | rows a second | memory, MB | load |",
        "|---|---|---|---|---|---|",
    ]
    by_rows = sorted(result["cases"], key=lambda c: (c.get("n", 0), c.get("method", "")))
    lines += [
        f"| {case['n']:,} | {case['method']} | {case['seconds']:.2f} | "
        f"{case['n'] / case['seconds']:,.0f} | {case['memory_mb']:.0f} | {case['load'][0]} |"
        for case in by_rows
        if case["kind"] == "rows"
    ]
    lines += ["", "| features | rows of each side | solver | seconds | memory, MB |"]
    lines += ["|---|---|---|---|---|"]
    lines += [
        f"| {case['m']:,} | {case['n']:,} | {case['solver']} | {case['seconds']:.2f} | "
        f"{case['memory_mb']:.0f} |"
        for case in sorted(result["cases"], key=lambda c: c.get("m", 0))
        if case["kind"] == "features"
    ]
    lines += ["", "```json", json.dumps(summary, indent=1), "```", ""]
    lines += [f"Not measured: {case}" for case in result["left_out"]]
    path.write_text("\n".join(lines).rstrip() + "\n")


def draw(result: dict[str, Any], path: Path) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for method in METHODS:
        cases = [c for c in result["cases"] if c["kind"] == "rows" and c["method"] == method]
        cases.sort(key=lambda c: c["n"])
        n = [c["n"] for c in cases]
        power = result["summary"]["slope_of_seconds_in_rows"][method]
        axes[0].loglog(n, [c["seconds"] for c in cases], "o-", label=f"{method}, slope {power}")
        axes[1].loglog(n, [max(c["memory_mb"], 1.0) for c in cases], "o-", label=method)
    axes[0].set(xlabel="rows of 784 features", ylabel="processor time, s", title="Time")
    axes[1].set(xlabel="rows of 784 features", ylabel="memory of the fit, MB", title="Memory")
    cases = [c for c in result["cases"] if c["kind"] == "features" and c["m"] < c["n"]]
    cases.sort(key=lambda c: c["m"])
    power = result["summary"]["slope_of_seconds_in_features"]
    axes[2].loglog(
        [c["m"] for c in cases], [c["seconds"] for c in cases], "o-", label=f"cpcapp, slope {power}"
    )
    axes[2].set(xlabel="features, with twice as many rows", title="Time against features")
    for axis in axes:
        axis.legend()
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--most-rows", type=int, default=ROWS[-1])
    parser.add_argument("--minutes", type=float, default=60.0, help="start no case after these")
    parser.add_argument("--go-on", action="store_true", help="keep what the output has already")
    arguments = parser.parse_args()
    output, end = arguments.output, time.monotonic() + 60.0 * arguments.minutes
    found: list[dict[str, Any]] = []
    if arguments.go_on and output.exists():
        found = json.loads(output.read_text())["cases"]
    cases = list_cases(arguments.most_rows)
    with tempfile.TemporaryDirectory() as folder:
        left = [c for c in cases if not any(c.items() <= f.items() for f in found)]
        needed = [c["n"] for c in left if c["kind"] in ("rows", "workers")]
        file = write_rows(Path(folder), max(needed, default=BLOCK))
        late = []
        for case in left:
            seconds = end - time.monotonic()
            figures = run_case(case, file, seconds) if seconds > 1.0 else None
            print(figures or f"left out: {case}", flush=True)
            if figures is None:
                late.append(case)
                continue
            found.append(figures)
            save(found, late, output)
    save(found, late, output)


def save(found: list[dict[str, Any]], left_out: list[dict[str, Any]], output: Path) -> None:
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "summary": summarize(found),
        "cases": found,
        "left_out": left_out,
    }
    output.write_text(json.dumps(result, indent=1) + "\n")
    write_report(result, output.with_suffix(".md"))
    draw(result, output.with_suffix(".png"))


if __name__ == "__main__":
    main()
