"""Workbooks of Excel and LibreOffice: one sheet, read once and kept as numbers and texts.

The parser ends its process where a damaged file needs more memory than there is: it has its own.
"""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.worker import Answer, Arrays, Worker, answer_requests, limit_memory
from cpcapp.tables.messages import TableError, one_line, quote_names, require_package
from cpcapp.tables.read.numbers import MISSING, describe_non_number, guess_number
from cpcapp.tables.read.table import Chunk, Progress, Table, number_rows, row_slices

EXCEL_ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
# Set by hand: what is read in a few minutes. Excel's own limits would allow a thousand times as
# many cells, and a small file can unpack to them.
_MAX_BYTES, _MAX_CELLS = 512 << 20, 20_000_000
_SECONDS, _SECONDS_PER_MEGABYTE = 30.0, 1.0
_MEMORY = 4 << 30
_MAX_HEADER_ROWS = 8


class ExcelTable(Table):
    """A sheet of a workbook.

    The column names are in the first row that is not blank. A title above them that is merged over
    several columns is left out. Names of merged groups stand before those below them:
    ``"blood / iron"``. Formulas have the values that the spreadsheet program stored, and are
    missing if it stored none, as are errors such as #DIV/0!. Dates are text. Hidden rows are read.
    By default it is the first sheet that is not hidden.
    """

    def __init__(self, path: Path, name: str, sheet: str | None) -> None:
        require_package("python_calamine", "tables")
        facts, (self._positions, self._numbers) = _ask_for_sheet(
            path, name.partition("::")[0], sheet
        )
        self.name, self.columns = facts["name"], facts["columns"]
        self._texts = {
            int(column): np.array(texts, dtype=object) for column, texts in facts["texts"].items()
        }
        unnamed = self.name_columns()
        if unnamed is not None:
            raise TableError(
                f"{self.name}: column {_letters(unnamed)} has no name in row "
                f"{facts['header_row']}; give it one"
            )

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns that have texts or dates, and no number."""
        numeric = np.asarray(np.isfinite(self._numbers).any(axis=0))
        indices = ((name, self.column_index[name]) for name in names)
        return [name for name, i in indices if i in self._texts and not numeric[i]]

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows; see `Table.chunks`."""
        import pyarrow as pa

        chosen = [self.column_index[name] for name in features]
        columns = {name: self._kept_column(name) for name in kept}
        n_rows = len(self._positions)
        for part in row_slices(n_rows, len(chosen)):
            bad: dict[int, str] = {}
            for name, index in zip(features, chosen, strict=True):
                for row, text in enumerate(self._texts.get(index, ())[part]):
                    if text is not None:
                        bad.setdefault(row, describe_non_number(name, text))
            yield Chunk(
                number_rows(part),
                self._positions[part],
                self._numbers[part][:, chosen],
                {name: pa.array(column[part]) for name, column in columns.items()},
                bad,
            )
            if progress is not None:
                progress(part.stop / n_rows)

    def _kept_column(self, name: str) -> NDArray[Any]:
        """Return numbers if there are only numbers, and texts otherwise; None is missing."""
        index = self.column_index[name]
        numbers, texts = self._numbers[:, index], self._texts.get(index)
        present = ~np.isnan(numbers)
        values = np.full(len(numbers), None, dtype=object)
        if texts is not None:
            values[present] = [_as_text(number) for number in numbers[present].tolist()]
            return np.where(present, values, texts)
        whole = (numbers[present] == np.rint(numbers[present])).all()
        small = (np.abs(numbers[present]) < 2.0**53).all()
        values[present] = numbers[present].astype(np.int64) if whole and small else numbers[present]
        return values


def _ask_for_sheet(path: Path, name: str, sheet: str | None) -> Answer:
    """Let a process of its own read a sheet, or raise `TableError`."""
    seconds = _SECONDS + _SECONDS_PER_MEGABYTE * _unpacked_bytes(path, name) / 1e6
    worker = Worker("cpcapp.tables.read.excel")
    if not worker.is_ready:
        raise TableError(f"{name} can't be read: the process for it did not start")
    answer = worker.ask({"path": str(path.absolute()), "name": name, "sheet": sheet}, seconds)
    if answer is None:
        raise TableError(
            f"{name} is damaged or too large: reading it was stopped, because it crashed, or took "
            f"too much memory or more than {seconds:.0f} seconds; save it as CSV or Parquet"
        )
    if "error" not in answer[0]:
        return answer
    reason = answer[0]["error"]
    is_known = answer[0].get("kind") == "sheet"
    raise TableError(reason if is_known else f"{name} is not a readable workbook: {reason}")


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
    """Return names of columns, row numbers as people see them, numbers (or NaN), and texts."""
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
    positions = np.array([number + 1 for number, _ in rows], dtype=np.int64)
    numbers = np.full((len(rows), len(header)), np.nan)
    texts: dict[int, list[str | None]] = {}
    for row, (number, cells) in enumerate(rows):
        if len(cells) > len(header):
            raise _SheetError(
                f"{name}: row {number + 1} has a value in column {_letters(len(cells) - 1)}, which "
                f"has no name in row {first_row}; give it one, or clear the cell"
            )
        for column, cell in enumerate(cells):
            value = _as_number(cell)
            if value is None:
                texts.setdefault(column, [None] * len(rows))[row] = _as_text(cell)
            else:
                numbers[row, column] = value
    facts = {"name": name, "columns": header, "header_row": first_row, "texts": texts}
    return facts, [positions, numbers]


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
    """Take the header and a title above it from the rows; return the names and their first row.

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
            if cell is not None and _as_text(cell).strip():
                part.append(_as_text(cell).strip())
    return [" / ".join(part) for part in parts], first + 1


def _is_title(number: int, cells: Sequence[Any], merged: Sequence[Any]) -> bool:
    """Return whether all that a row has is one cell that is merged over several columns."""
    (column, *others) = [column for column, cell in enumerate(cells) if cell is not None]
    return not others and any(
        start == (number, column) and right > column for start, (_, right) in merged
    )


def _as_number(value: Any) -> float | None:
    """Return the number of a cell, NaN for a missing value, None for anything else."""
    if isinstance(value, int | float):  # and bool, which is an int
        return float(value)
    if value is not None and not isinstance(value, str):
        return None
    text = (value or "").strip()
    if text in MISSING:
        return float("nan")
    # A number that was typed or pasted as text.
    return guess_number(text, ".") if text.isascii() else None


def _as_text(value: Any) -> str:
    """Return a cell as text: dates by ISO 8601, whole numbers without a point."""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53:
        return str(int(value))
    return str(value)


def _letters(index: int) -> str:
    """Return the letters of a column by its index: A for 0, AB for 27."""
    return (_letters(index // 26 - 1) if index >= 26 else "") + chr(65 + index % 26)
