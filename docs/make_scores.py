"""Write the scores of benchmarks/results/models.json into README.md and docs/splicing.md.

    python docs/make_scores.py [--results FILE] [PAGE ...]

The table stands between two comments, and everything else of a page stays as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from marked_parts import replace_part

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "models.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "splicing.md")

Results = dict[str, Any]

SETS = {
    "columbia": "Columbia, uncompressed",
    "columbia-jpeg85": "Columbia, saved as JPEG 85",
    "columbia-jpeg75": "Columbia, saved as JPEG 75",
    "columbia-smaller": "Columbia, resized to 75 %",
    "casia2": "CASIA 2.0",
    "casia1": "CASIA 1.0",
    "imd2020": "IMD2020, from the web",
    "dst": "DST",
}
MODELS = ("paper", "filters", "default")
HEAD = ("photos", "model", "region F1", "mask F1", "seam MCC", "signs", "alarms")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the table of scores into pages.")
    parser.add_argument("pages", nargs="*", type=Path, default=list(PAGES), metavar="PAGE")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    arguments = parser.parse_args(argv)
    table = scores_table(json.loads(arguments.results.read_text(encoding="utf-8")))
    for page in arguments.pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(with_scores(text, table), encoding="utf-8")
    return 0


def with_scores(page: str, table: str) -> str:
    """Return a page with the table between its two comments."""
    return replace_part(page, "scores", table)


def scores_table(results: Results) -> str:
    """Return the table as Markdown; sets and models that were not measured are left out."""
    lines = [row(HEAD), row(["---"] * len(HEAD))]
    for name, title in SETS.items():
        measured = results["sets"].get(name, {})
        models = [model for model in MODELS if model in measured]
        for model in models:
            found = measured[model]
            # The photos are the same for all models of a set.
            photos = described(title, found["verdict"]) if model == models[0] else ""
            lines.append(row([photos, f"`{model}`", *figures(found)]))
    machine = results["machine"]
    lines += [
        "",
        f"Measured on {results['date']} on {machine['processor']} with {machine['cores']} cores. "
        f"`benchmarks/results/models.md` has all figures. Looks at these photos so far: "
        f"{results['looks']}.",
    ]
    return "\n".join(lines)


def described(title: str, verdict: Results) -> str:
    return f"{title} ({verdict['n_spliced']} spliced, {verdict['n_authentic']} genuine)"


def figures(found: Results) -> list[str]:
    verdict = found["verdict"]
    return [
        figure(found.get("surface", {}).get("f1")),
        figure(found.get("surface-fixed", {}).get("f1")),
        figure(found.get("edge", {}).get("mcc")),
        percent(verdict["found_of_spliced"]),
        percent(verdict["alarms_on_authentic"]),
    ]


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
