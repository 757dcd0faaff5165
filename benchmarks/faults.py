"""Is anything lost if a write, a sync, a rename or an allocation fails, or a run is killed?

    python benchmarks/faults.py

Makes every step of `cpcapp train`, `localize`, `reduce` and `evaluate` fail in turn, as
tests/faults/fault_harness.py describes, and writes benchmarks/results/faults.json. With
``--scenarios`` and ``--add`` it can be done in pieces.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from _machine import describe_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "faults"))
from fault_harness import FAULTS, SCENARIOS, count_outcomes, disturb, total_outcomes

RESULTS = Path(__file__).parent / "results" / "faults.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scenarios", nargs="*", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument("--kinds", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--most", type=int, help="steps of each kind for each fault (default: all)")
    parser.add_argument("--allocations", type=int, default=40, help="allocations that fail")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--add", action="store_true", help="to the figures that are there")
    arguments = parser.parse_args()
    start = time.monotonic()
    outcomes = []
    for outcome in disturb(
        arguments.scenarios,
        most=arguments.most,
        most_allocations=arguments.allocations,
        kinds=arguments.kinds,
        deadline=start + arguments.seconds,
    ):
        outcomes.append(outcome)
        if outcome["lost"]:
            print(f"{outcome['scenario']}, {outcome['kind']} {outcome['step']}: {outcome['lost']}")
    found = count_outcomes(outcomes)
    if arguments.add and RESULTS.exists():
        found = _add(json.loads(RESULTS.read_text()), found)
    whole = {"date": f"{date.today():%Y-%m-%d}", "machine": describe_machine(), **found}
    RESULTS.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"{found['faults']} faults, {found['lost']} lost -> {RESULTS}")
    return 1 if found["lost"] else 0


def _add(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    table = before["by_command"]
    for name, row in found["by_command"].items():
        # A kind that was done again counts once.
        table[name] = {**table.get(name, {}), **row}
    problems = before["problems"] + found["problems"]
    return {**total_outcomes(table), "by_command": table, "problems": problems}


if __name__ == "__main__":
    sys.exit(main())
