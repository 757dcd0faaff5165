"""Results as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from cpcapp import __version__
from cpcapp.experiments._results import Missing, Picture, Result, Settings, Table
from cpcapp.experiments._text import (
    HEADING,
    MISSING,
    SUMMARY_COLUMNS,
    SUMMARY_NOTE,
    cell_text,
    preamble,
    summary_rows,
)
from cpcapp.experiments.paper import CITATION


def markdown_page(
    outcomes: Sequence[Result | Missing], settings: Settings, made: str, figures: str
) -> str:
    """Return the report as Markdown, with pictures in the folder ``figures``."""
    blocks = [f"# {HEADING}", *preamble(outcomes, settings, __version__, made)]
    blocks.append(_summary(outcomes))
    for outcome in outcomes:
        if isinstance(outcome, Missing):
            blocks += [f"## {outcome.title}", f"**{MISSING}** {plain(outcome.reason)}"]
        else:
            blocks += [f"## {outcome.title}", *markdown_section(outcome, outcome.pictures, figures)]
    blocks.append(f"The paper: {CITATION}.")
    return "\n\n".join(blocks) + "\n"


def markdown_section(
    result: Result, pictures: Sequence[Picture], figures: str, level: int = 3
) -> list[str]:
    """Return a result as blocks of Markdown, with some or all of its pictures."""
    blocks = [result.shows, f"**What to look at.** {result.look_at}"]
    blocks += [f"![{plain(p.alt)}]({_path(figures, p)})\n\n*{plain(p.caption)}*" for p in pictures]
    blocks.append("\n".join(f"- {plain(finding)}" for finding in result.findings))
    if result.paper:
        said = [f"- {plain(s.text)} ({s.source})" for s in result.paper]
        blocks.append("\n".join(["**The paper says**", "", *said]))
    for table in result.tables:
        blocks.append(_table(table, level))
    blocks.append(f"Data: {plain(result.data)}")
    return blocks


def plain(text: str) -> str:
    r"""Keep what Markdown would read as marks: stars, brackets, bars, and lines.

    Examples
    --------
    >>> plain("best α *, |x|")
    'best α \\*, \\|x\\|'
    """
    for mark in "\\*|<>_[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def _summary(outcomes: Sequence[Result | Missing]) -> str:
    lines = [SUMMARY_COLUMNS, ("---",) * len(SUMMARY_COLUMNS)]
    lines += [tuple(map(plain, row)) for row in summary_rows(outcomes)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{plain(SUMMARY_NOTE)}"


def _path(figures: str, picture: Picture) -> str:
    return f"{figures}/{picture.name}.png" if figures else f"{picture.name}.png"


def _table(table: Table, level: int) -> str:
    head = " | ".join(plain(column) for column in table.columns)
    line = " | ".join(["---"] + ["--:"] * (len(table.columns) - 1))
    rows = [" | ".join(plain(cell_text(cell)) for cell in row) for row in table.rows]
    lines = [f"{'#' * level} {table.title}", "", *(f"| {row} |" for row in (head, line, *rows))]
    return "\n".join(lines + (["", plain(table.note)] if table.note else []))
