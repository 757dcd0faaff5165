"""Memory and speed of ``cpcapp reduce`` and ``cpcapp apply`` on large CSV files.

    python benchmarks/tables.py [--quick] [--output results.json] [--before earlier.json]

Writes tables of two sizes into a temporary folder and runs the commands on them, each in a process
of its own. What is to be seen: the peak memory does not grow with the file, and clean files are
read at 100 MB/s. Where other programs use the machine, the seconds of the processor tell more than
those of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from _machine import describe_machine, load_average
from _report import machine_line, number, table
from _targets import at_least, at_most

Results = dict[str, Any]

COLUMNS = 100
_ROWS_AT_ONCE = 20_000
_FULL = {"small": 250_000_000, "large": 1_000_000_000}
_QUICK = {"small": 25_000_000, "large": 100_000_000}
_CAREFUL_BYTES = 10_000_000
_READ_REPEATS = 3
# Run in a process of its own, with the package that is to be measured.
_READ = """
import json, os, sys, time
from cpcapp.tables import open_table
from cpcapp.tables.read.csv import CsvTable
path, careful = sys.argv[1], sys.argv[2] == "careful"
if careful:
    CsvTable._parse_fast = lambda *arguments: None
table = open_table(path)
features = [name for name in table.columns if name.startswith("feature_")]
for _ in range(int(sys.argv[3])):
    start, before = time.perf_counter(), os.times()
    for chunk in table.chunks(features, ["id", "group"]):
        pass
    after = os.times()
    used = after.user + after.system - before.user - before.system
    print(json.dumps([time.perf_counter() - start, used]))
"""


def write_csv(path: Path, n_bytes: int, *, signal: bool) -> None:
    """Write about so many bytes: an id, a label and numbers with all their digits."""
    rng = np.random.default_rng(int(signal))
    names = [f"feature_{i}" for i in range(COLUMNS)]
    done = 0
    with path.open("wb") as file:
        while file.tell() < n_bytes:
            values = rng.standard_normal((_ROWS_AT_ONCE, COLUMNS))
            values[:, :10] *= 10.0
            group = rng.integers(0, 2, _ROWS_AT_ONCE)
            if signal:
                values[:, 20:25] += 2.0 * group[:, None]
            rows = pa.table(
                {
                    "id": pa.array([f"row {done + i}" for i in range(_ROWS_AT_ONCE)]),
                    "group": pa.array(np.array(["a", "b"])[group]),
                    **dict(zip(names, values.T, strict=True)),
                }
            )
            options = pa.csv.WriteOptions(include_header=done == 0)
            pa.csv.write_csv(rows, file, options)
            done += _ROWS_AT_ONCE


def run_command(*arguments: object) -> tuple[float, float, int]:
    """Return seconds, seconds of processors and peak memory of a command."""
    command = [sys.executable, "-m", "cpcapp", *map(str, arguments)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    unit = 1 if sys.platform == "darwin" else 1024
    return seconds, usage.ru_utime + usage.ru_stime, unit * usage.ru_maxrss


def measure_reading(path: Path, *, careful: bool = False) -> Results:
    """Return how fast a file is read into numbers: by Arrow, or by the parser in Python alone."""
    command = [sys.executable, "-c", _READ, str(path), "careful" if careful else "fast"]
    command.append("1" if careful else str(_READ_REPEATS))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    size = path.stat().st_size
    # The fastest run: others were held up by other programs.
    return {
        "bytes": size,
        "bytes_per_second": size / min(seconds for seconds, _ in runs),
        "bytes_per_processor_second": size / min(used for _, used in runs),
    }


def measure(sizes: dict[str, int], quick: bool) -> Results:
    found: Results = {}
    machine = describe_machine()
    with TemporaryDirectory() as folder:
        target, background = Path(folder) / "target.csv", Path(folder) / "background.csv"
        write_csv(background, min(sizes.values()) // 5, signal=False)
        for name, size in sizes.items():
            write_csv(target, size, signal=True)
            out = Path(folder) / f"out-{name}"
            read = 2 * target.stat().st_size + background.stat().st_size
            kept = ("--id", "id", "--label", "group")
            seconds, cpu, peak = run_command("reduce", target, background, "-o", out, *kept)
            applied, _, apply_peak = run_command(
                *("apply", out / "model.safetensors", target, "-o", out / "new.csv", "--id", "id")
            )
            found[name] = {
                "target_bytes": target.stat().st_size,
                "background_bytes": background.stat().st_size,
                "columns": COLUMNS,
                "rows": json.loads((out / "summary.json").read_bytes())["target"]["rows"],
                "reduce_seconds": seconds,
                "reduce_processor_seconds": cpu,
                "reduce_peak_bytes": peak,
                "reduce_bytes_read_per_second": read / seconds,
                "apply_seconds": applied,
                "apply_peak_bytes": apply_peak,
            }
            found[name]["reading"] = measure_reading(target)
            print(name, found[name], flush=True)
        write_csv(target, _CAREFUL_BYTES, signal=True)
        careful = measure_reading(target, careful=True)
    growth = found["large"]["reduce_peak_bytes"] / found["small"]["reduce_peak_bytes"]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "quick": quick,
        "machine": {**machine, "load_average_at_end": load_average()},
        "sizes": found,
        "careful_reading": careful,
        "targets": [
            at_most("reduce: peak memory of the large file over the small one's", growth, 1.25),
            at_most("reduce: peak memory in MB", found["large"]["reduce_peak_bytes"] / 1e6, 1000.0),
            at_least(
                "reading a clean file, MB for each second of a processor",
                found["large"]["reading"]["bytes_per_processor_second"] / 1e6,
                100.0,
            ),
        ],
    }


def as_markdown(results: Results) -> str:
    rows = [
        [
            f"{size['target_bytes'] / 1e6:,.0f} MB, {size['rows']:,} rows",
            f"{size['reduce_seconds']:.1f} s",
            f"{size['reduce_processor_seconds']:.1f} s",
            f"{size['reduce_bytes_read_per_second'] / 1e6:.0f} MB/s",
            f"{size['reduce_peak_bytes'] / 1e6:,.0f} MB",
            f"{size['apply_seconds']:.1f} s",
            f"{size['apply_peak_bytes'] / 1e6:,.0f} MB",
        ]
        for size in results["sizes"].values()
    ]
    header = ["target", "reduce", "of the processor", "read at", "peak memory"]
    header += ["apply", "peak memory"]
    targets = [f"{t['name']}: {number(t['value'])}" for t in results["targets"]]
    parts = ["# Tables", machine_line(results), table(header, rows), reading_table(results)]
    parts.append("  \n".join(targets))
    return "\n\n".join(parts) + "\n"


def reading_table(results: Results) -> str:
    """Return the speed of the reader alone, with that of an earlier version where it is known."""

    def row(name: str, found: Results) -> list[str]:
        speeds = [found["bytes_per_second"], found["bytes_per_processor_second"]]
        return [name, f"{found['bytes'] / 1e6:,.0f} MB", *(f"{s / 1e6:.0f} MB/s" for s in speeds)]

    rows = [row("clean", results["sizes"]["large"]["reading"])]
    if "before" in results:
        earlier = f"clean, before ({results['before']['date']})"
        rows.append(row(earlier, results["before"]["sizes"]["large"]["reading"]))
    rows.append(row("parsed in Python", results["careful_reading"]))
    return table(["reading alone", "file", "by the clock", "by the processor's time"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="files of a tenth of the size")
    default = Path(__file__).parent / "results" / "tables.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    earlier = "results of an earlier version on this machine, to compare with"
    parser.add_argument("--before", type=Path, help=earlier)
    arguments = parser.parse_args()
    results = measure(_QUICK if arguments.quick else _FULL, arguments.quick)
    if arguments.before is not None:
        before = json.loads(arguments.before.read_bytes())
        results["before"] = {name: before[name] for name in ("date", "machine", "sizes")}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    arguments.output.with_suffix(".md").write_text(as_markdown(results))
    print(as_markdown(results))


if __name__ == "__main__":
    main()
