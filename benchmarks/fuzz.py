"""Do damaged files of strangers crash, hang or fill the memory?

    python benchmarks/fuzz.py --seconds 600

Opens files that tests/fuzz/ damages, of every kind that is read, in child processes, and writes
benchmarks/results/fuzz.json. A finding is a crash, more than 10 seconds, more than 1.5 GB, or an
exception that is not documented. Files that are findings go to fuzz-findings/: make them small, put
them into tests/fuzz/regressions/, and mend the reader.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parent.parent / "tests" / "fuzz"))
from fuzz_runner import FINDINGS, MAX_BYTES, MAX_SECONDS, Counts, Opener, fuzz
from fuzz_targets import TARGETS

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "fuzz.json"
KEPT = ROOT / "fuzz-findings"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="in all (default: 600)")
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--start", type=int, default=0, help="number of the first file of each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    from _machine import describe_machine

    # This folder has a sparse.py, which would be taken for a package that others import.
    del sys.path[0]
    whole = sum(TARGETS[name].share for name in arguments.targets)

    def work(name: str) -> Counts:
        share = arguments.jobs * arguments.seconds * TARGETS[name].share / whole
        with Opener() as opener:
            found = fuzz(name, opener, seconds=share, start=arguments.start, keep=KEPT)
        told = {kind: n for kind, n in found.to_dict().items() if kind != "findings"}
        print(name, json.dumps(told), flush=True)
        return found

    begin = time.monotonic()
    # The longest first, so that none is left over at the end.
    order = sorted(arguments.targets, key=lambda name: -TARGETS[name].share)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        counts = dict(zip(order, pool.map(work, order), strict=True))
    n_files = sum(found.files for found in counts.values())
    n_findings = sum(found.outcomes[kind] for found in counts.values() for kind in FINDINGS)
    result = {
        "date": f"{date.today():%Y-%m-%d}",
        "machine": describe_machine(),
        "seconds": round(time.monotonic() - begin),
        "limits": {"seconds": MAX_SECONDS, "bytes": MAX_BYTES},
        "first_file": arguments.start,
        "files": n_files,
        "findings": n_findings,
        "targets": {name: counts[name].to_dict() for name in arguments.targets},
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{n_files} files, {n_findings} findings -> {RESULTS.relative_to(ROOT)}")
    return 1 if n_findings else 0


if __name__ == "__main__":
    sys.exit(main())
