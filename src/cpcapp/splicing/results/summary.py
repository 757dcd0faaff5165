"""The table of all results in a folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cpcapp._files import atomic_write
from cpcapp._text import natural_order, spreadsheet_text
from cpcapp.splicing.results.entries import read_entry
from cpcapp.splicing.results.files import SUMMARY_NAME
from cpcapp.splicing.results.photo_result import PhotoResult

_COLUMNS: Final = (
    *("file", "width", "height", "verdict", "verdict_code", "score", "p_value"),
    *("region_share", "hot_spots_share", "share_above_threshold", "row", "column", "strength"),
    *("box_top", "box_left", "box_height", "box_width", "seconds", "notes"),
    *("overlay", "boundary", "region", "hot_spots", "error"),
)


def write_summary(folder: Path, results: Sequence[PhotoResult]) -> None:
    """Write the table of all results in a folder, those of earlier runs too, and the failures.

    Parameters
    ----------
    folder : Path
    results : sequence of PhotoResult
        Of this run; only failures are taken from it.
    """
    rows: dict[str, dict[str, Any]] = {}
    for path in folder.glob("*.json"):
        if entry := read_entry(path):
            rows[path.stem] = _build_row(entry)
    for result in results:
        if result.error:
            name = result.photo.name if result.files is None else result.files.name
            rows[name] = _build_row(result.to_dict())
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    table.writeheader()
    for name in sorted(rows, key=natural_order):
        table.writerow({column: spreadsheet_text(cell) for column, cell in rows[name].items()})
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
