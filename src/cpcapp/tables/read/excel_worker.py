"""The process that reads a sheet of a workbook: names of columns, numbers and texts.

The parser ends its process where a damaged file needs more memory than there is.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cpcapp._io.worker import Arrays, answer_requests, limit_memory
from cpcapp.tables.messages import quote_names
from cpcapp.tables.read.numbers import MISSING, guess_number

# Set by hand: what is read in a few minutes. Excel's own limits would allow a thousand times as
# much, and a small file can unpack to it.
MAX_CELLS = 20_000_000
_MEMORY = 4 << 30
_MAX_HEADER_ROWS = 8

Row = tuple[int, list[Any]]
# First row and column, and the last ones, from 0.
Merged = tuple[tuple[int, int], tuple[int, int]]


class SheetError(ValueError):
    """Why a sheet is no table, in words for the user."""

    kind = "sheet"


def main() -> None:
    """Read the sheet that each request names."""
    answer_requests(_answer, lambda: import_module("python_calamine"))


def _answer(request: dict[str, Any], _: Arrays) -> tuple[dict[str, Any], Arrays]:
    from python_calamine import CalamineWorkbook

    limit_memory(_MEMORY)
    plain = request["name"]
    # By its content: an ending may be wrong.
    with (
        Path(request["path"]).open("rb") as file,
        closing(CalamineWorkbook.from_filelike(file)) as book,
    ):
        title = _choose_sheet(book, plain, request["sheet"])
        name = f"{plain}::{title}"
        sheet = book.get_sheet_by_name(title)
        if sheet.total_height * max(sheet.total_width, 1) > MAX_CELLS:
            raise SheetError(f"{name} has more than {MAX_CELLS:,} cells; save it as CSV or Parquet")
        rows = _filled_rows(sheet)
        names, header_row, first = _read_header(rows, list(sheet.merged_cell_ranges or ()), name)
        positions, numbers, texts = _read_values(rows, first, names, header_row, name)
    facts = {"name": name, "columns": names, "header_row": header_row, "texts": texts}
    return facts, [positions, numbers]


def _choose_sheet(book: Any, name: str, sheet: str | None) -> str:
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    sheets = [found for found in book.sheets_metadata if found.typ == SheetTypeEnum.WorkSheet]
    if not sheets:
        raise SheetError(f"{name} has no sheet with cells")
    visible = [found for found in sheets if found.visible == SheetVisibleEnum.Visible]
    names = [str(found.name) for found in sheets]
    if sheet is not None and sheet not in names:
        raise SheetError(f"{name}: there is no sheet {sheet!r}; there are {quote_names(names)}")
    return sheet or str((visible or sheets)[0].name)


def _filled_rows(sheet: Any) -> Iterator[Row]:
    """Yield the number of each row that is not blank, from 0, and its cells, None if empty."""
    left = [None] * (sheet.start[1] if sheet.start else 0)
    for number, cells in enumerate(sheet.iter_rows()):
        row = left + [None if cell == "" else cell for cell in cells]
        while row and row[-1] is None:
            row.pop()
        if row:
            yield number, row


def _read_header(
    rows: Iterator[Row], merged: Sequence[Merged], name: str
) -> tuple[list[str], int, Row | None]:
    """Return the names of the columns, the row of the first, and the first row of values.

    A title over several columns is left out. Names of merged groups stand before those below them.
    """
    row = next(rows, None)
    while row is not None and _is_title(row, merged):
        row = next(rows, None)
    if row is None:
        raise SheetError(f"{name} is empty")
    header_row = last = row[0]
    for (top, left), (bottom, right) in merged:
        if top == header_row and left < len(row[1]) and row[1][left] is not None:
            # A name over several columns has names below it.
            last = max(last, bottom + (right > left))
    header: list[Row] = []
    while row is not None and row[0] <= min(last, header_row + _MAX_HEADER_ROWS - 1):
        header.append(row)
        row = next(rows, None)
    parts: list[list[str]] = [[] for _ in range(max(len(cells) for _, cells in header))]
    for number, cells in header:
        cells = cells + [None] * (len(parts) - len(cells))
        for (top, left), (_, right) in merged:
            if top == number and left < len(cells):
                cells[left : right + 1] = [cells[left]] * len(cells[left : right + 1])
        for column, cell in enumerate(cells):
            if cell is not None and as_text(cell).strip():
                parts[column].append(as_text(cell).strip())
    return [" / ".join(part) for part in parts], header_row + 1, row


def _is_title(row: Row, merged: Sequence[Merged]) -> bool:
    number, cells = row
    filled = [column for column, cell in enumerate(cells) if cell is not None]
    return len(filled) == 1 and any(
        start == (number, filled[0]) and right > filled[0] for start, (_, right) in merged
    )


def _read_values(
    rows: Iterator[Row], first: Row | None, names: list[str], header_row: int, name: str
) -> tuple[Any, Any, dict[str, list[str | None]]]:
    """Return row numbers as people see them, numbers (NaN for all else), and texts by column."""
    positions: list[int] = []
    blocks: list[Any] = []
    texts: dict[int, dict[int, str]] = {}
    while first is not None:
        number, cells = first
        if len(cells) > len(names):
            raise SheetError(
                f"{name}: row {number + 1} has a value in column {letters(len(cells) - 1)}, which "
                f"has no name in row {header_row}; give it one, or clear the cell"
            )
        values = np.full(len(names), np.nan)
        for column, cell in enumerate(cells):
            value = as_number(cell)
            if value is not None:
                values[column] = value
            else:
                texts.setdefault(column, {})[len(positions)] = as_text(cell)
        positions.append(number + 1)
        blocks.append(values)
        first = next(rows, None)
    numbers = np.array(blocks).reshape(len(positions), len(names))
    listed = {
        str(column): [column_texts.get(row) for row in range(len(positions))]
        for column, column_texts in texts.items()
    }
    return np.array(positions, dtype=np.int64), numbers, listed


def as_number(value: Any) -> float | None:
    """Return the number of a cell, NaN for a missing value, None for anything else."""
    if value is None:
        return float("nan")
    if isinstance(value, int | float):  # and bool, which is an int
        return float(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text in MISSING:
        return float("nan")
    # A number that was typed or pasted as text.
    return guess_number(text, ".") if text.isascii() else None


def as_text(value: Any) -> str:
    """Return a cell as text: dates by ISO 8601, whole numbers without a point."""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53:
        return str(int(value))
    return str(value)


def letters(index: int) -> str:
    """Return the letters of a column by its index: A for 0, AB for 27."""
    text, number = "", index + 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(65 + rest) + text
    return text
