"""The comparison with MFCN as tables."""

from __future__ import annotations

from typing import Any

Results = dict[str, Any]

METHODS = (
    "paper",
    "filters",
    "default",
    "mfcn",
    "mfcn, surface as it is",
    "mfcn, fewer splices",
    "sfcn",
)
TITLES = {
    "columbia": "Columbia (48)",
    "casia2": "CASIA 2.0 (34)",
    "casia1": "CASIA 1.0 (12)",
    "imd2020": "IMD2020 (15)",
    "dst": "DST (5)",
}
# Tables III and IV of the paper, and its section on training times.
PAPER = {
    "columbia": {
        "cPCA++": {"edge": {"mcc": 0.385, "f1": 0.359}, "training_hours": 1.5, "on": "CPU"},
        "MFCN": {"edge": {"mcc": 0.329, "f1": 0.312}, "training_hours": 11.5, "on": "GPU"},
    }
}


def as_markdown(results: Results) -> str:
    """Return tables of all figures."""
    lines = ["# MFCN and SFCN beside the package's models", ""]
    lines += ["Measured by `benchmarks/mfcn.py`.", ""]
    head = ("photos", "method", "edge MCC", "edge F1", "edge MCC, r = 2", "edge F1, r = 2")
    lines += _head((*head, "surface F1", "mask F1"))
    for name, methods in results.get("sets", {}).items():
        for method in METHODS:
            if method in methods:
                lines.append(_row([TITLES[name], method, *_figures(methods[method])]))
    paper = results["paper"]["columbia"]
    for method, found in paper.items():
        edge = found["edge"]
        cells = ["Columbia", f"{method}, the paper's figures", _figure(edge["mcc"])]
        lines.append(_row([*cells, _figure(edge["f1"]), "–", "–", "–", "–"]))
    if "costs" in results:
        lines += ["", "## What they cost", ""]
        lines += _head(("method", "parameters", "file", "CPU seconds a megapixel", "peak memory"))
        for method, found in results["costs"].items():
            seconds = found["processor_seconds_a_photo"] / found["megapixels"]
            lines.append(
                _row(
                    [
                        method,
                        f"{found['parameters']:,}",
                        f"{found['bytes'] / 1e6:.1f} MB",
                        f"{seconds:.1f}",
                        f"{found['peak_mb']} MB",
                    ]
                )
            )
    if "training" in results:
        lines += ["", "## Training", ""]
        lines += _head(("what", "seconds", "on", "steps", "splices"))
        shorter = results.get("shorter_training", {"runs": []})["runs"][:1]
        for one in [*results["training"]["runs"], *shorter]:
            counts = ("–" if one[key] is None else f"{one[key]:,}" for key in ("steps", "splices"))
            lines.append(_row([one["networks"], f"{one['seconds']:,.0f}", one["on"], *counts]))
    if "edges_first" in results:
        lines += ["", *_edges_first(results["edges_first"])]
    return "\n".join(lines) + "\n"


def _edges_first(found: Results) -> list[str]:
    lines = ["## Outlines of BSDS500 first", ""]
    lines.append(
        f"Networks of half the width; the second learned outlines for {found['outline_steps']:,} "
        f"steps, then both learned from the same splices for {found['steps']:,} steps. F1 on "
        "held-out photos."
    )
    names = ("from_scratch", "edges_first")
    kinds = ("surface", "edge")
    heads = (f"{name.replace('_', ' ')}, {kind}" for kind in kinds for name in names)
    lines += ["", *_head(("steps", *heads))]
    for entry in found["curve"]:
        cells = [_figure(entry[f"{name}_{kind}_f1"]) for kind in kinds for name in names]
        lines.append(_row([f"{entry['step']:,}", *cells]))
    return lines


def _figures(found: Results) -> list[str]:
    return [
        _figure(found.get(protocol, {}).get(score))
        for protocol, score in (
            ("edge", "mcc"),
            ("edge", "f1"),
            ("edge-r2", "mcc"),
            ("edge-r2", "f1"),
            ("surface", "f1"),
            ("surface-fixed", "f1"),
        )
    ]


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _head(cells: tuple[str, ...]) -> list[str]:
    return [_row(list(cells)), _row(["---"] * len(cells))]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
