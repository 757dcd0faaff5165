"""Is anything lost if a write, a sync, a rename or an allocation fails, or a run is killed?

    python benchmarks/faults.py

Makes every step of `cpcapp train`, `localize`, `reduce` and `evaluate` fail in turn, as
tests/faults/fault_harness.py describes, and writes benchmarks/results/faults.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path

from _machine import describe_machine

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "faults")]
from fault_harness import SCENARIOS, count_outcomes, disturb  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "faults.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--allocations", type=int, default=40, help="allocations that fail")
    parser.add_argument("--sample", type=int, help="faults of each command (default: all)")
    arguments = parser.parse_args()
    outcomes = []
    for outcome in disturb(
        list(SCENARIOS), most_allocations=arguments.allocations, sample=arguments.sample
    ):
        outcomes.append(outcome)
        if outcome["lost"]:
            print(f"{outcome['scenario']}, {outcome['kind']} {outcome['step']}: {outcome['lost']}")
    found = count_outcomes(outcomes)
    about = {"date": f"{date.today():%Y-%m-%d}", "machine": describe_machine()}
    whole = {**about, "sample_of_each": arguments.sample, **found}
    RESULTS.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"{found['faults']} faults, {found['lost']} lost -> {RESULTS}")
    return 1 if found["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
