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
    parts = [head, *_moments(sections), *_patches(sections), *_photos(sections), *_many(sections)]
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


def _photos(sections: dict[str, Any]) -> list[str]:
    found, rows = sections["localize"], []
    for name in ("4K", "Columbia"):
        taken, (height, width, _) = found[name]["seconds"], found[name]["shape"]
        filters = sum(value for key, value in taken.items() if "filters" in key)
        rows.append(
            f"| {width} × {height} | {1e3 * taken['network on the card']:.0f} | "
            f"{1e3 * filters:.0f} | {1e3 * taken['everything with the card']:.0f} | "
            f"{1e3 * taken['everything on the CPU']:.0f} |"
        )
    examples = found["examples"]
    same = sum(one == other for one, other in examples["verdicts"])
    return [
        "**A photo**, in milliseconds from pixels in memory to the verdict, with the model "
        "`default`:",
        "\n".join(
            [
                "| photo | network on the card | filters on the card | everything with the card | "
                "everything on the CPU |",
                "|---" * 5 + "|",
                *rows,
            ]
        ),
        f"Of the {len(examples['verdicts'])} example photos {same} get the same verdict; p differs "
        f"by at most {examples['largest_difference_of_p']:.0e}.",
    ]


def _many(sections: dict[str, Any]) -> list[str]:
    found = sections.get("many")
    if found is None or "failed" in found:
        return []
    by_threads = ", ".join(
        f"{row['photos_a_second']:.1f} with {row['threads']} thread{'s' * (row['threads'] > 1)}"
        for row in found["threads"]
    )
    row, parts = found["processes"], found["parts"]
    slowest = sorted(CPU_PARTS, key=lambda name: -parts[name])
    named = ", ".join(f"`{name}` {1e3 * parts[name]:.0f} ms" for name in slowest)
    return [
        f"**Photos of this smaller size a second**: {by_threads}, and {row['photos_a_second']:.1f} "
        f"with {row['processes']} processes of one thread each, which share the card. A photo then "
        f"takes {row['processor_seconds_a_photo']:.2f} s of a core. Most of that is work the card "
        f"has no part in; the longest steps of a photo alone are {named}."
    ]


if __name__ == "__main__":
    sys.exit(main())
