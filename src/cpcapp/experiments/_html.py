"""Results as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from cpcapp.reports import data_uri, render

_LARGE = 1000  # pixels: on a phone such a picture is scrolled, and not shrunk


def html_page(outcomes: Sequence[Result | Missing], settings: Settings, made: str) -> str:
    """Return the report as one page: pictures and style are inside."""
    rows = zip(outcomes, summary_rows(outcomes), strict=True)
    return render(
        "experiments.html",
        title=HEADING,
        generator="cpcapp reproduce",
        preamble=preamble(outcomes, settings, __version__, made),
        summary_columns=SUMMARY_COLUMNS,
        summary_note=SUMMARY_NOTE,
        summary=[
            {"name": outcome.name, "title": title, "paper": paper, "found": found}
            for outcome, (title, paper, found) in rows
        ],
        sections=[_section(outcome) for outcome in outcomes],
        citation=CITATION,
    )


def _section(outcome: Result | Missing) -> dict[str, Any]:
    if isinstance(outcome, Missing):
        return {**vars(outcome), "missing": MISSING}
    return {
        **vars(outcome),
        "missing": "",
        "pictures": [_picture(picture) for picture in outcome.pictures],
        "tables": [_table(table) for table in outcome.tables],
    }


def _picture(picture: Picture) -> dict[str, Any]:
    # The header of a PNG has its width in these bytes.
    large = int.from_bytes(picture.png[16:20]) >= _LARGE
    return {**vars(picture), "address": data_uri(picture.png), "large": large}


def _table(table: Table) -> dict[str, Any]:
    rows = [
        {"labelled": str(row[0]).endswith("*"), "cells": [cell_text(cell) for cell in row]}
        for row in table.rows
    ]
    return {**vars(table), "rows": rows}
