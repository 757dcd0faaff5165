"""Write figures of benchmarks/results into README.md and docs.

    python docs/make_scores.py [--results FILE] [PAGE ...]

Without arguments all pages are written. The tables stand between two comments, and everything else
of a page stays as it is.
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

MFCN_RESULTS = ROOT / "benchmarks" / "results" / "mfcn.json"
MFCN_PAGE = ROOT / "docs" / "mfcn.md"

ALARM_RESULTS = ROOT / "benchmarks" / "results" / "comparison_photos.json"
ALARM_PAGE = ROOT / "docs" / "verdicts.md"

LOADING_RESULTS = ROOT / "benchmarks" / "results" / "loading_rules.json"
LOADING_PAGE = ROOT / "docs" / "method.md"

Results = dict[str, Any]

SETS = {
    "columbia": "Columbia, uncompressed",
    "columbia-jpeg85": "Columbia, saved as JPEG 85",
    "columbia-jpeg75": "Columbia, saved as JPEG 75",
    "columbia-jpeg70": "Columbia, saved as JPEG 70",
    "columbia-smaller": "Columbia, resized to 75 %",
    "casia2": "CASIA 2.0",
    "casia1": "CASIA 1.0",
    "imd2020": "IMD2020, from the web",
    "dst": "DST",
    "cameras": "Photos of 22 cameras",
    "bsds-test": "BSDS500, test photos",
}
MODELS = ("paper", "filters", "default")
MFCN_METHODS = {
    "paper": "`paper`",
    "filters": "`filters`",
    "default": "`default`",
    "mfcn": "MFCN",
    "mfcn, surface as it is": "MFCN, surface without its edges",
    "mfcn, fewer splices": "MFCN, fewer splices",
    "sfcn": "SFCN, fewer splices",
}
LOADING_RULES = {
    "the default: bounds 3, 12, 48 by kurtosis, else 12": '`loading="auto"`',
    "bound 12 alone": "bound 12 always",
    "OAS": '`loading="oas"`',
    'CPCA(alpha="auto")': '`CPCA(alpha="auto")`',
}
LOADING_KINDS = {
    "reporting": "reporting half",
    "reporting, p > n": "of these, p > n",
    "small class": "a small class",
    "signals": "signals, no classes",
}
HEAD = ("photos", "model", "region F1", "F1 at 0.5", "seam MCC", "signs", "alarms", "weak too")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the table of scores into pages.")
    parser.add_argument("pages", nargs="*", type=Path, default=list(PAGES), metavar="PAGE")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    arguments = parser.parse_args(argv)
    results = json.loads(arguments.results.read_text(encoding="utf-8"))
    for page in arguments.pages:
        # Who reads the first page wants to know of the model that is taken.
        table = scores_table(results, MODELS[-1:] if page == PAGES[0] else MODELS)
        text = page.read_text(encoding="utf-8")
        page.write_text(with_scores(text, table), encoding="utf-8")
    if list(arguments.pages) == list(PAGES):
        text = MFCN_PAGE.read_text(encoding="utf-8")
        found = json.loads(MFCN_RESULTS.read_text(encoding="utf-8"))
        MFCN_PAGE.write_text(with_mfcn(text, found), encoding="utf-8")
        text = ALARM_PAGE.read_text(encoding="utf-8")
        found = json.loads(ALARM_RESULTS.read_text(encoding="utf-8"))
        ALARM_PAGE.write_text(replace_part(text, "alarms", alarms_table(found)), encoding="utf-8")
        text = LOADING_PAGE.read_text(encoding="utf-8")
        found = json.loads(LOADING_RESULTS.read_text(encoding="utf-8"))
        LOADING_PAGE.write_text(with_loading(text, found), encoding="utf-8")
    return 0


def alarms_table(results: Results) -> str:
    """Return how many genuine photos raise an alarm when their collection is left out."""
    models = {name: results["models"][name] for name in reversed(MODELS)}
    head = ["collection", "photos", *(f"`{name}`, signs (weak too)" for name in models)]
    lines = [row(head), row(["---"] * len(head))]
    (first, *_) = models.values()
    for name, about in (*first["collections"].items(), ("mean", None)):
        cells = []
        for found in models.values():
            one = found["mean"] if about is None else found["collections"][name]
            cells.append(f"{percent(one['p 0.05'])} ({percent(one['p 0.15'])})")
        lines.append(row([name, str(about["photos"]) if about else "", *cells]))
    return "\n".join(lines)


def with_loading(page: str, results: Results) -> str:
    """Return the page about the method with the regret of rules for the loading."""
    by_rule = {found["rule"]: found for found in results["summary"]}
    judged = by_rule["OAS"]
    heads = [f"{title} ({judged[kind]['n_judged']})" for kind, title in LOADING_KINDS.items()]
    lines = [row(["rule", *heads]), row(["---"] * (1 + len(heads)))]
    for rule, title in LOADING_RULES.items():
        regrets = [figure(by_rule[rule][kind]["mean_regret"]) for kind in LOADING_KINDS]
        lines.append(row([title, *regrets]))
    return replace_part(page, "loading-scores", "\n".join(lines))


def with_mfcn(page: str, results: Results) -> str:
    """Return the page about MFCN with its tables between their comments."""
    for name, table in (
        ("mfcn-scores", mfcn_scores_table(results)),
        ("mfcn-costs", mfcn_costs_table(results)),
    ):
        page = replace_part(page, name, table)
    return page


def mfcn_scores_table(results: Results) -> str:
    """Return the scores of MFCN, SFCN and the models as Markdown."""
    head = ("photos", "method", "seam MCC", "seam F1", "seam MCC, r = 2", "part F1", "mask F1")
    lines = [row(head), row(["---"] * len(head))]
    wanted = (("edge", "mcc"), ("edge", "f1"), ("edge-r2", "mcc"))
    wanted += (("surface", "f1"), ("surface-fixed", "f1"))
    for name, methods in results["sets"].items():
        for number, (method, title) in enumerate(MFCN_METHODS.items()):
            found = methods[method]
            cells = [figure(found.get(protocol, {}).get(score)) for protocol, score in wanted]
            lines.append(row([SETS[name] if number == 0 else "", title, *cells]))
    for number, (method, found) in enumerate(results["paper"]["columbia"].items()):
        edge = found["edge"]
        cells = [figure(edge["mcc"]), figure(edge["f1"]), *["–"] * 3]
        photos = "Columbia, the paper's figures" if number == 0 else ""
        lines.append(row([photos, method, *cells]))
    return "\n".join(lines)


def mfcn_costs_table(results: Results) -> str:
    """Return what the methods cost as Markdown."""
    head = ("method", "parameters", "file", "CPU seconds", "memory")
    lines = [row(head), row(["---"] * len(head))]
    for method, found in results["costs"].items():
        size = found["bytes"] / 1e6
        lines.append(
            row(
                [
                    MFCN_METHODS[method],
                    f"{found['parameters']:,}",
                    f"{size:.1f} MB" if size < 10 else f"{size:.0f} MB",
                    f"{found['processor_seconds_a_photo']:.1f}",
                    f"{found['peak_mb']:,} MB",
                ]
            )
        )
    machine = results["costs_machine"]
    lines += [
        "",
        f"A photo of {found['megapixels']:.0f} megapixel on one core of {machine['processor']}: "
        "processor seconds, and the most memory of the process.",
    ]
    return "\n".join(lines)


def with_scores(page: str, table: str) -> str:
    """Return a page with the table between its two comments."""
    return replace_part(page, "scores", table)


def scores_table(results: Results, models: Sequence[str] = MODELS) -> str:
    """Return the table as Markdown; sets and models that were not measured are left out."""
    lines = [row(HEAD), row(["---"] * len(HEAD))]
    for name, title in SETS.items():
        measured = results["sets"].get(name, {})
        present = [model for model in models if model in measured]
        for model in present:
            found = measured[model]
            # The photos are the same for all models of a set.
            photos = described(title, found["verdict"]) if model == present[0] else ""
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
        percent(at_least_weak(verdict)),
    ]


def at_least_weak(verdict: Results) -> float | None:
    shares = verdict["alarms_on_authentic"], verdict.get("weak_on_authentic")
    return None if None in shares else sum(shares)


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
