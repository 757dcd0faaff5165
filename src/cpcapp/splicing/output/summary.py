"""The table of all results in a folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cpcapp._io.files import atomic_write
from cpcapp._io.text import natural_order, spreadsheet_text
from cpcapp.splicing.output.entries import read_entry
from cpcapp.splicing.output.files import SUMMARY_NAME
from cpcapp.splicing.output.photo_result import PhotoResult

_COLUMNS: Final = (
    *("file", "width", "height", "verdict", "verdict_code", "score", "p_value"),
    *("region_share", "hot_spots_share", "share_above_threshold", "row", "column", "strength"),
    *("box_top", "box_left", "box_height", "box_width", "seconds", "notes"),
    *("overlay", "boundary", "region", "hot_spots", "report", "report_pdf", "error"),
)


def read_results(folder: Path, results: Sequence[PhotoResult]) -> dict[str, dict[str, Any]]:
    """Return all results in a folder, those of earlier runs too, and the failures.

    What the JSON file says, or ``file`` and ``error``; by the name of the result, in natural order.
    """
    entries: dict[str, dict[str, Any]] = {}
    for path in folder.glob("*.json"):
        if entry := read_entry(path):
            # What others call an error is none of ours.
            entries[path.stem] = {**entry, "error": ""}
    for result in results:
        if result.error:
            name = result.photo.name if result.files is None else result.files.name
            entries[name] = result.to_dict()
    return {name: entries[name] for name in sorted(entries, key=natural_order)}


def write_summary(folder: Path, entries: Mapping[str, dict[str, Any]]) -> None:
    """Write the table of all results in a folder."""
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    table.writeheader()
    for entry in entries.values():
        row = _build_row(entry)
        table.writerow({column: spreadsheet_text(cell) for column, cell in row.items()})
    with atomic_write(folder / SUMMARY_NAME) as file:
        file.write(text.getvalue().encode(errors="backslashreplace"))


def is_summary(path: Path) -> bool:
    """Tell whether a file is a table that `write_summary` wrote."""
    with path.open("rb") as file:
        return file.readline(1000).startswith(",".join(_COLUMNS[:3]).encode())


def _build_row(entry: dict[str, Any]) -> dict[str, Any]:
    row = {name: entry[name] for name in _COLUMNS if entry.get(name) is not None}
    seam = entry.get("seam")
    if isinstance(seam, dict):
        row |= {name: seam.get(name) for name in ("row", "column", "strength")}
        sides = ("box_top", "box_left", "box_height", "box_width")
        row |= dict(zip(sides, seam.get("box", ()), strict=False))
    row["notes"] = "; ".join(map(str, entry.get("notes", ())))
    return row
