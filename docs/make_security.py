"""Write what the fuzzers and the fault tests counted into SECURITY.md.

    python docs/make_security.py

The text stands between two comments, and everything else of the page stays as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from marked_parts import replace_part

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "SECURITY.md"


def main() -> int:
    text = figures_text(read_results("fuzz"), read_results("faults"))
    PAGE.write_text(with_figures(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


def read_results(name: str) -> dict[str, Any] | None:
    """Return what a benchmark wrote; None if it has not run yet."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def with_figures(page: str, text: str) -> str:
    """Return a page with the text between its two comments."""
    return replace_part(page, "figures", text)


def figures_text(fuzz: dict[str, Any] | None, faults: dict[str, Any] | None) -> str:
    """Return two tables as Markdown, with what was measured."""
    return "\n\n".join([*_fuzz_lines(fuzz), *_fault_lines(faults)])


def _fuzz_lines(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["**Damaged files.** Not counted yet: run `make fuzz`."]
    head = (
        "| files | opened | read | refused | crashes | hangs | foreign errors | memory | slowest |"
    )
    rows = [
        f"| {name} | {row['files']:,} | {row['accepted']:,} | {row['refused']:,} | {row['crash']} "
        f"| {row['hang']} | {row['foreign']} | {row['memory']} | {row['slowest_seconds']} s |"
        for name, row in found["targets"].items()
    ]
    return [
        f"**Damaged files.** {found['files']:,} files on {found['date']}, {found['findings']} "
        f"findings, {_machine(found)} (`benchmarks/results/fuzz.json`):",
        "\n".join([head, "|---" * 9 + "|", *rows]),
    ]


def _fault_lines(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["**Faults while writing.** Not counted yet: run `make faults`."]
    head = (
        "| command | faults | old results left | new ones | some of each | without a photo | lost |"
    )
    rows = []
    for name, kinds in found["by_command"].items():
        sums = [
            sum(cell.get(left, 0) for cell in kinds.values())
            for left in ("old", "new", "some of each", "without a photo", "lost")
        ]
        rows.append(f"| `{name}` | {sum(sums)} | " + " | ".join(map(str, sums)) + " |")
    return [
        f"**Faults while writing.** {found['faults']:,} faults on {found['date']}, {found['lost']} "
        f'with something lost, {_machine(found)} (`benchmarks/results/faults.json`). "Some of '
        'each" is several photos of one run, each with its whole old result or its whole new one. '
        '"Without a photo": there was no memory for it, and the command said so and went on:',
        "\n".join([head, "|---" * 7 + "|", *rows]),
    ]


def _machine(found: dict[str, Any]) -> str:
    machine = found["machine"]
    return f"on {machine['processor']} with {machine['cores']} cores"


if __name__ == "__main__":
    sys.exit(main())
