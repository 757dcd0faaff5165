"""The report: what experiments found, as a page, as Markdown and as JSON.

Nothing is computed here. The page needs no other file and nothing from a network.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cpcapp
from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp._io.text import number
from cpcapp.experiments.results import Cell, Missing, Picture, Result, Settings
from cpcapp.reports import CITATION, data_uri, render

_HEADING = "cPCA++: the paper's experiments, made again"
_MISSING = "Not made: the data are not here."
_SUMMARY_COLUMNS = ("experiment", "found")
_SUMMARY_NOTE = (
    "ARI: agreement of clusters with the classes, 1 is perfect and 0 is chance. * chosen with what "
    "is to be found at hand."
)
_LARGE = 1000  # pixels: on a phone such a picture is scrolled, and not shrunk


def write_report(
    outcomes: Sequence[Result | Missing], folder: Path, settings: Settings
) -> list[Path]:
    """Write ``report.html``, ``report.md`` with ``figures/``, and ``report.json``; return these."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    pictures = [p for each in outcomes if isinstance(each, Result) for p in each.pictures]
    files = {folder / "figures" / f"{picture.name}.png": picture.png for picture in pictures}
    pages = {
        folder / "report.md": _markdown_page(outcomes, settings, made),
        folder / "report.json": json_text(outcomes, settings, made),
        folder / "report.html": _html_page(outcomes, settings, made),
    }
    write_files(files | {path: text.encode() for path, text in pages.items()})
    return list(pages)


def write_files(files: dict[Path, bytes]) -> None:
    """Write files, each whole or not at all, and remove what an earlier run left half written."""
    for folder in {path.parent for path in files}:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
    for path, content in files.items():
        with atomic_write(path) as file:
            file.write(content)


def json_text(outcomes: Sequence[Result | Missing], settings: Settings, made: str) -> str:
    """Return all numbers. But for ``made`` and ``timings`` they depend on data and seed only."""
    whole = {
        "format": 1,
        "cpcapp": cpcapp.__version__,
        "made": made,
        "seed": settings.seed,
        "quick": settings.quick,
        "missing": {o.name: o.reason for o in outcomes if isinstance(o, Missing)},
        "experiments": {
            outcome.name: {
                "title": outcome.title,
                "data": outcome.data,
                "paper": [{"says": s, "source": source} for source, s in outcome.paper.items()],
                "numbers": _round_numbers(outcome.numbers),
                "timings": _round_numbers(outcome.timings),
            }
            for outcome in outcomes
            if isinstance(outcome, Result)
        },
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _round_numbers(value: Any) -> Any:
    """Keep six digits: those beyond depend on the order in which a machine adds up."""
    if isinstance(value, dict):
        return {key: _round_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_round_numbers(entry) for entry in value]
    if isinstance(value, float):
        return number(value)
    return value


def cell_text(value: Cell) -> str:
    """Return a cell as text: three digits, no more than a reader needs."""
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    if 0.0 < abs(value) < 0.01:
        return f"{value:.3g}".replace("e-0", "e-") if abs(value) >= 1e-6 else "0.000"
    digits = 3 if abs(value) < 10.0 else 1 if abs(value) < 100.0 else 0
    return f"{value:,.{digits}f}".removesuffix(".0")


def _preamble(outcomes: Sequence[Result | Missing], settings: Settings, made: str) -> list[str]:
    """Say what the report is, in a few sentences."""
    quick = ", as a quick run: fewer rows, fewer α, a short t-SNE." if settings.quick else "."
    lines = [
        "PCA looks for what varies most in a data set. cPCA and cPCA++ look for what varies more "
        "in a target than in a background. cPCA has a setting, α, that is usually chosen by "
        "looking; cPCA++ has none. The paper shows this on the examples below. Here each of them "
        "was made again, with default settings, and measured.",
        f"Made with cpcapp {cpcapp.__version__} on {made}, seed {settings.seed}{quick}",
    ]
    missing = sum(isinstance(outcome, Missing) for outcome in outcomes)
    if missing:
        lines.append(
            f"{missing} of {len(outcomes)} experiments could not be made; their sections say what "
            "is missing."
        )
    return lines


def _headline(outcome: Result | Missing) -> str:
    return _MISSING if isinstance(outcome, Missing) else outcome.findings[0]


def _html_page(outcomes: Sequence[Result | Missing], settings: Settings, made: str) -> str:
    """Return the report as one page: pictures and style are inside."""
    return render(
        "experiments.html",
        title=_HEADING,
        generator="cpcapp reproduce",
        preamble=_preamble(outcomes, settings, made),
        summary_columns=_SUMMARY_COLUMNS,
        summary_note=_SUMMARY_NOTE,
        outcomes=outcomes,
        headline=_headline,
        missing=_MISSING,
        cell_text=cell_text,
        data_uri=data_uri,
        # A PNG has its width there.
        is_large=lambda picture: int.from_bytes(picture.png[16:20]) >= _LARGE,
        citation=CITATION,
    )


def _markdown_page(outcomes: Sequence[Result | Missing], settings: Settings, made: str) -> str:
    """Return the report as Markdown, with pictures in the folder of figures."""
    rows = [(outcome.title, _headline(outcome)) for outcome in outcomes]
    blocks = [f"# {_HEADING}", *_preamble(outcomes, settings, made)]
    blocks += [_markdown_table(_SUMMARY_COLUMNS, rows, "---"), plain(_SUMMARY_NOTE)]
    for outcome in outcomes:
        blocks.append(f"## {outcome.title}")
        if isinstance(outcome, Missing):
            blocks.append(f"**{_MISSING}** {plain(outcome.reason)}")
        else:
            blocks += markdown_section(outcome, outcome.pictures, "figures/")
    return "\n\n".join([*blocks, f"The paper: {CITATION}."]) + "\n"


def markdown_section(
    result: Result, pictures: Sequence[Picture], folder: str, level: int = 3
) -> list[str]:
    """Return a result as blocks of Markdown, with some or all of its pictures."""
    blocks = [result.shows, f"**What to look at.** {result.look_at}"]
    blocks += [f"![{plain(p.alt)}]({folder}{p.name}.png)\n\n*{plain(p.caption)}*" for p in pictures]
    blocks.append("\n".join(f"- {plain(finding)}" for finding in result.findings))
    if result.paper:
        said = [f"- {plain(says)} ({source})" for source, says in result.paper.items()]
        blocks.append("\n".join(["**The paper says**", "", *said]))
    for table in result.tables:
        blocks += [
            f"{'#' * level} {table.title}",
            _markdown_table(table.columns, table.rows, "--:"),
        ]
        blocks += [plain(table.note)] if table.note else []
    return [*blocks, f"Data: {plain(result.data)}"]


def _markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], align: str) -> str:
    named = [plain(column) for column in columns]
    line = ["---"] + [align] * (len(columns) - 1)
    body = ([plain(cell_text(cell)) for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (named, line, *body))


def plain(text: str) -> str:
    """Keep what Markdown would read as marks: stars, brackets, bars, and lines."""
    for mark in "\\*|<>_[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
