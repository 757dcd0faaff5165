"""Workbooks of Excel and LibreOffice: a sheet becomes CSV in memory.

The parser ends its process where a damaged file needs more memory than there is: it has its own.
"""

from __future__ import annotations

import csv
import datetime
import io
import zipfile
from collections.abc import Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cpcapp._io.packages import require_packages
from cpcapp._io.worker import Arrays, Worker, WorkerError, answer_requests, limit_memory
from cpcapp.tables.messages import TableError, one_line, quote_names
from cpcapp.tables.read.csv import CsvTable

EXCEL_ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
# Set by hand: what is read in a few minutes. Excel's own limits would allow a thousand times as
# many cells, and a small file can unpack to them.
_MAX_BYTES, _MAX_CELLS = 512 << 20, 20_000_000
_SECONDS, _SECONDS_PER_MEGABYTE = 30.0, 1.0
_MEMORY = 4 << 30
_MAX_HEADER_ROWS = 8


def excel_table(path: Path, name: str, sheet: str | None) -> CsvTable:
    """Open a sheet of a workbook, by default the first that is not hidden.

    The column names are in the first row that is not blank. A title above them that is merged over
    several columns is left out. Names of merged groups stand before those below them:
    ``"blood / iron"``. Formulas have the values that the spreadsheet program stored, and are
    missing if it stored none, as are errors such as #DIV/0!. Dates are text. Hidden rows are read.
    """
    require_packages("tables", "python_calamine")
    name = name.partition("::")[0]
    seconds = _SECONDS + _SECONDS_PER_MEGABYTE * _unpacked_bytes(path, name) / 1e6
    request = {"path": str(path.absolute()), "name": name, "sheet": sheet}
    try:
        facts, arrays = Worker(__name__).ask(request, seconds)
    except WorkerError as error:
        texts = {
            "sheet": str(error),
            "start": f"{name} can't be read: {error}",
            "stopped": f"{name} is damaged or too large: reading it was stopped, because it "
            f"crashed, or took too much memory or more than {seconds:.0f} seconds; save it as CSV "
            "or Parquet",
        }
        text = texts.get(error.kind, f"{name} is not a readable workbook: {error}")
        raise TableError(text) from error
    return CsvTable(arrays[0].tobytes(), facts["name"])


def _unpacked_bytes(path: Path, name: str) -> int:
    """Return the size of the parts of a workbook; raise `TableError` if it is too large."""
    total = path.stat().st_size
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                total = sum(member.file_size for member in archive.infolist())
        except Exception as error:  # zipfile answers damaged bytes with errors of many kinds
            raise TableError(f"{name} is not a readable workbook: {one_line(error)}") from error
    if total > _MAX_BYTES:
        raise TableError(
            f"{name} unpacks to {total / 1e6:,.0f} MB; at most {_MAX_BYTES / 1e6:,.0f} MB are "
            "read; save it as CSV or Parquet"
        )
    return total


class _SheetError(ValueError):
    """Why a sheet is no table, in words for the user."""

    kind = "sheet"


def main() -> None:
    """Within the process: read the sheet that each request names."""
    answer_requests(_read_sheet, lambda: import_module("python_calamine"))


def _read_sheet(request: dict[str, Any], _: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return a sheet as CSV, each row in the line of its number."""
    from python_calamine import CalamineWorkbook

    limit_memory(_MEMORY)
    # By its content: an ending may be wrong.
    with (
        Path(request["path"]).open("rb") as file,
        closing(CalamineWorkbook.from_filelike(file)) as book,
    ):
        title = _choose_sheet(book, request["name"], request["sheet"])
        name = f"{request['name']}::{title}"
        sheet = book.get_sheet_by_name(title)
        if sheet.total_height * max(sheet.total_width, 1) > _MAX_CELLS:
            raise _SheetError(
                f"{name} has more than {_MAX_CELLS:,} cells; save it as CSV or Parquet"
            )
        rows = _filled_rows(sheet)
        header, first_row = _take_header(rows, list(sheet.merged_cell_ranges or ()), name)
    text = io.StringIO()
    writer, line = csv.writer(text, lineterminator="\n"), 0
    for number, cells in [(first_row, header), *rows]:
        if len(cells) > len(header):
            raise _SheetError(
                f"{name}: row {number + 1} has a value in column {_letters(len(cells) - 1)}, which "
                f"has no name in row {first_row + 1}; give it one, or clear the cell"
            )
        text.write("\n" * (number - line))
        writer.writerow([*map(_as_text, cells), *[""] * (len(header) - len(cells))])
        line = number + 1
    return {"name": name}, [np.frombuffer(text.getvalue().encode(), np.uint8)]


def _choose_sheet(book: Any, name: str, sheet: str | None) -> str:
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    sheets = [found for found in book.sheets_metadata if found.typ == SheetTypeEnum.WorkSheet]
    if not sheets:
        raise _SheetError(f"{name} has no sheet with cells")
    visible = [found for found in sheets if found.visible == SheetVisibleEnum.Visible]
    names = [str(found.name) for found in sheets]
    if sheet is not None and sheet not in names:
        raise _SheetError(f"{name}: there is no sheet {sheet!r}; there are {quote_names(names)}")
    return sheet or str((visible or sheets)[0].name)


def _filled_rows(sheet: Any) -> list[tuple[int, list[Any]]]:
    """Return the number of each row that is not blank, from 0, and its cells, None if empty."""
    left, rows = [None] * (sheet.start[1] if sheet.start else 0), []
    for number, cells in enumerate(sheet.iter_rows()):
        row = left + [None if cell == "" else cell for cell in cells]
        while row and row[-1] is None:
            row.pop()
        if row:
            rows.append((number, row))
    return rows


def _take_header(
    rows: list[tuple[int, list[Any]]], merged: Sequence[Any], name: str
) -> tuple[list[str], int]:
    """Take the header and a title above it from the rows; return the names, and their row number.

    A merged range is ((first row, first column), (last row, last column)), from 0.
    """
    while rows and _is_title(*rows[0], merged):
        del rows[0]
    if not rows:
        raise _SheetError(f"{name} is empty")
    first, cells = rows[0]
    last = first
    for (top, left), (bottom, right) in merged:
        if top == first and left < len(cells) and cells[left] is not None:
            # A name over several columns has names below it.
            last = max(last, bottom + (right > left))
    last = min(last, first + _MAX_HEADER_ROWS - 1)
    header = [row for row in rows if row[0] <= last]
    del rows[: len(header)]
    parts: list[list[str]] = [[] for _ in range(max(len(cells) for _, cells in header))]
    for number, cells in header:
        cells += [None] * (len(parts) - len(cells))
        for (top, left), (_, right) in merged:
            if top == number and left < len(cells):
                cells[left : right + 1] = [cells[left]] * len(cells[left : right + 1])
        for part, cell in zip(parts, cells, strict=True):
            part += [text] if (text := _as_text(cell).strip()) else []
    names = [" / ".join(part) for part in parts]
    if "" in names[1:]:  # the first may be that of row names
        column = _letters(names.index("", 1))
        raise _SheetError(f"{name}: column {column} has no name in row {first + 1}; give it one")
    return names, first


def _is_title(number: int, cells: Sequence[Any], merged: Sequence[Any]) -> bool:
    """Return whether all that a row has is one cell that is merged over several columns."""
    (column, *others) = [column for column, cell in enumerate(cells) if cell is not None]
    return not others and any(
        start == (number, column) and right > column for start, (_, right) in merged
    )


def _as_text(value: Any) -> str:
    """Return a cell as text of one line: dates by ISO 8601, whole numbers without a point."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bool) or (
        isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53
    ):
        return str(int(value))
    return " ".join(str(value).splitlines())


def _letters(index: int) -> str:
    """Return the letters of a column by its index: A for 0, AB for 27."""
    return (_letters(index // 26 - 1) if index >= 26 else "") + chr(65 + index % 26)
