"""Is anything lost if a write, a sync, a rename or an allocation fails, or a run is killed?

    python benchmarks/faults.py

Makes every step of `cpcapp train`, `localize`, `reduce` and `evaluate` fail in turn, as
tests/faults/fault_harness.py describes, and writes benchmarks/results/faults.json. With ``--scenarios``
and ``--add`` it can be done in pieces.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

from _machine import describe_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "faults"))
from fault_harness import SCENARIOS, count_outcomes, disturb

RESULTS = Path(__file__).parent / "results" / "faults.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scenarios", nargs="*", default=list(SCENARIOS), choices=list(SCENARIOS))
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
    return {
        "faults": before["faults"] + found["faults"],
        "lost": before["lost"] + found["lost"],
        # A command that was disturbed again counts once.
        "by_command": before["by_command"] | found["by_command"],
        "left": dict(Counter(before["left"]) + Counter(found["left"])),
        "problems": before["problems"] + found["problems"],
    }


if __name__ == "__main__":
    sys.exit(main())
