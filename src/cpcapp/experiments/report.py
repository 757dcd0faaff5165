"""The report: what experiments found, as a page, as Markdown and as JSON.

Nothing is computed here. The page needs no other file and nothing from a network.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cpcapp
from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp.experiments._html import html_page
from cpcapp.experiments._markdown import markdown_page
from cpcapp.experiments._results import Missing, Result, Settings

FORMAT = 1
FIGURES = "figures"


def write_report(
    outcomes: Sequence[Result | Missing], folder: Path, settings: Settings
) -> list[Path]:
    """Write ``report.html``, ``report.md`` with ``figures/``, and ``report.json``.

    Files of an earlier report are replaced, each as a whole.

    Parameters
    ----------
    outcomes : sequence of Result or Missing
    folder : Path
        Made if it is not there.
    settings : Settings

    Returns
    -------
    list of Path
        What was written, the pictures left out.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from cpcapp.experiments import Settings, run_experiment
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> found = [run_experiment("needle", Settings())]
    >>> [path.name for path in write_report(found, folder, Settings())]
    ['report.md', 'report.json', 'report.html']
    """
    made = datetime.now(UTC).isoformat(timespec="seconds")
    figures = folder / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    remove_leftovers(figures)
    for outcome in outcomes:
        for picture in outcome.pictures if isinstance(outcome, Result) else ():
            _write(figures / f"{picture.name}.png", picture.png)
    pages = {
        "report.md": markdown_page(outcomes, settings, made, FIGURES),
        "report.json": json_text(outcomes, settings, made),
        "report.html": html_page(outcomes, settings, made),
    }
    for name, text in pages.items():
        _write(folder / name, text.encode())
    return [folder / name for name in pages]


def json_text(outcomes: Sequence[Result | Missing], settings: Settings, made: str) -> str:
    """Return all numbers. But for ``made`` and ``timings`` they depend on data and seed only.

    Parameters
    ----------
    outcomes : sequence of Result or Missing
    settings : Settings
    made : str
        When.

    Returns
    -------
    str

    Examples
    --------
    >>> import json
    >>> from cpcapp.experiments import Missing, Settings
    >>> text = json_text([Missing("mhealth", "MHealth", "no files")], Settings(), "")
    >>> json.loads(text)["missing"]
    {'mhealth': 'no files'}
    """
    whole = {
        "format": FORMAT,
        "cpcapp": cpcapp.__version__,
        "made": made,
        "seed": settings.seed,
        "quick": settings.quick,
        "missing": {o.name: o.reason for o in outcomes if isinstance(o, Missing)},
        "experiments": {o.name: _entry(o) for o in outcomes if isinstance(o, Result)},
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _entry(result: Result) -> dict[str, Any]:
    return {
        "title": result.title,
        "data": result.data,
        "paper": [{"says": said.text, "source": said.source} for said in result.paper],
        "numbers": _round_numbers(result.numbers),
        "timings": _round_numbers(result.timings),
    }


def _round_numbers(value: Any) -> Any:
    """Keep six digits: those beyond depend on the order in which a machine adds up."""
    if isinstance(value, dict):
        return {key: _round_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_round_numbers(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)
