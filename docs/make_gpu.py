"""Write what benchmarks/gpu.py measured into docs/gpu.md.

    python docs/make_gpu.py

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
RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
PAGE = ROOT / "docs" / "gpu.md"
# What stays on the CPU.
CPU_PARTS = ("detect_edges", "superpixels", "extract_borders", "best_cut", "grid_offset")


def main() -> int:
    text = figures_text(json.loads(RESULTS.read_text(encoding="utf-8")))
    PAGE.write_text(with_figures(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


def with_figures(page: str, text: str) -> str:
    """Return a page with the text between its two comments."""
    return replace_part(page, "figures", text)


def figures_text(found: dict[str, Any]) -> str:
    """Return tables as Markdown, with what was measured."""
    sections = found["sections"]
    head = (
        f"On one {found['card']} with {found['cores']} processor cores, torch {found['torch']}, "
        f"{found['date']} (`benchmarks/results/gpu.json`, from `python benchmarks/gpu.py`)."
    )
    kept = found.get("kept_from_an_earlier_run")
    if kept:
        names = ", ".join(f"`{name}`" for name in kept["sections"])
        head += f" The sections {names} are of an earlier run on such a card, {kept['date']}."
    parts = [head, *_moments(sections), *_patches(sections)]
    return "\n\n".join(parts)


def _moments(sections: dict[str, Any]) -> list[str]:
    own = sections["rates"]["teraflops"]
    rows = [
        f"| {row['features']:,} | {row['type']} | {row['rows_per_second'] / 1e6:.2f} | "
        f"{row['teraflops']:.0f} | {row['of_own_product_rate']:.0%} |"
        for row in sections["moments"]["moments"]
    ]
    solved = {row["features"]: row for row in sections["solve"]["solve"] if row["loading"] == "oas"}
    times = ", ".join(f"{row['seconds']:.2f} s of {m:,}" for m, row in solved.items())
    return [
        "**Moments.** The card multiplies large square matrices at "
        + ", ".join(f"{rate:.0f} TFLOP/s in {name}" for name, rate in own.items())
        + ". Moments of $n$ rows of $M$ features count as $2nM^2$ operations. The share of the "
        "card's rate can exceed 1, since only panels above the diagonal are computed.",
        "\n".join(
            [
                "| features | type | rows/s, in millions | TFLOP/s | of its rate |",
                "|---" * 5 + "|",
                *rows,
            ]
        ),
        f"**Solving** for 50 filters takes {times} features, in float64.",
    ]


def _patches(sections: dict[str, Any]) -> list[str]:
    found = sections["patches"]
    rows = [
        f"| {kind} | {row['seconds']:.1f} | {row['seconds_of_moments']:.1f} | "
        f"{row['seconds_of_solving']:.1f} | "
        f"{_off_by(row)} |"
        for kind in ("float64", "float32", "tf32")
        for row in (found[kind],)
    ]
    return [
        f"**Patches.** {found['patches']:,} patches of {found['size']} × {found['size']} × 3 "
        f"({found['features']:,} features), from bytes in memory to 150 filters, with the upload:",
        "\n".join(
            [
                "| products | seconds | of them moments | solving | eigenvalues off by |",
                "|---" * 5 + "|",
                *rows,
            ]
        ),
    ]


def _off_by(row: dict[str, Any]) -> str:
    difference = row.get("largest_relative_difference_to_float64")
    return "(compared with)" if difference is None else f"{difference:.0e}"


if __name__ == "__main__":
    sys.exit(main())
