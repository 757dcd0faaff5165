"""Excel workbooks: one sheet, read once and kept as numbers and texts."""

from __future__ import annotations

import datetime
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.tables.messages import TableError, quote_names, require_package
from cpcapp.tables.reading.csv import unused_name
from cpcapp.tables.reading.numbers import MISSING, guess_number
from cpcapp.tables.reading.table import Chunk, Progress, Table, require_unique, row_slices

# A sheet of Excel has no more.
_MAX_ROWS, _MAX_COLUMNS = 1 << 20, 1 << 14
# Set by hand: what is read in a few minutes. Excel's own limits would allow a thousand times as
# much, and a small file can unpack to it.
_MAX_BYTES = 512 << 20
_MAX_CELLS = 20_000_000
_MAX_MEMBERS = 10_000
_BLOCK_ROWS = 4096
_MAX_HEADER_ROWS = 8
_MAX_MERGED = 1000
_SCANNED = 1 << 20
_OLE_MARK = b"\xd0\xcf\x11\xe0"  # the container of .xls, and of workbooks with a password
_ENCRYPTED = 0x1

_MERGE = re.compile(rb'mergeCell\s+ref="([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})"')
# A formula is followed by its value. Excel leaves the value of an empty text empty (t="str");
# programs that do not calculate leave it out, or empty without a type.
_NO_VALUE = re.compile(
    rb'<c r="([A-Z]{1,3}\d{1,7})"((?:\s+(?!t="str")\w+="[^"]{0,20}"){0,9})\s*>\s*'
    rb"<f[^>]{0,300}(?:/>|>[^<]{0,9000}</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>"
)
# Longer than any match of the two.
_OVERLAP = 10_000


class ExcelTable(Table):
    """A sheet of an ``.xlsx`` workbook.

    The column names are in the first row that is not blank. A title above them that is merged over
    several columns is left out. Names of merged groups stand before those below them:
    ``"blood / iron"``. Formulas have the values that Excel stored. Dates are text.

    Parameters
    ----------
    path : Path
    name : str
        For messages; the sheet is added to it.
    sheet : str, optional
        Name of the sheet; by default the first that is not hidden.
    """

    def __init__(self, path: Path, name: str, sheet: str | None) -> None:
        require_package("openpyxl", "tables")
        self.path = path
        plain = name.partition("::")[0]
        _check_archive(path, plain)
        try:
            with warnings.catch_warnings():
                # Of styles and extensions that are of no interest here.
                warnings.simplefilter("ignore")
                self._read(plain, sheet)
        except (TableError, MemoryError):
            raise
        except Exception as error:  # openpyxl raises errors of all kinds on damaged files
            if isinstance(error, OSError) and error.errno is not None:
                raise
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            where = getattr(self, "name", plain)
            raise TableError(f"{where} is not a readable Excel workbook: {reason}") from error

    def _read(self, plain: str, sheet: str | None) -> None:
        import openpyxl

        with self.path.open("rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            found = _choose_sheet(book, plain, sheet)
            self.name = f"{plain}::{found.title}"
            with book._archive.open(found._worksheet_path) as part:
                merged = _scan(part, self.name)
            # What a file says of its own size is often wrong.
            found.reset_dimensions()
            cells = _CellReader(self.name, merged)
            # Rows that a damaged file numbers higher are not made up.
            for number, row in enumerate(found.iter_rows(max_row=_MAX_ROWS, values_only=True), 1):
                cells.add(number, row)
        cells.finish()
        self.columns = cells.names
        require_unique(self.columns, self.name)
        self._blocks = cells.blocks
        self._n_rows = sum(len(block.positions) for block in self._blocks)
        if self.columns[0] == "":
            self.row_names = self.columns[0] = unused_name("row_name", self.columns)
        if "" in self.columns:
            number = self.columns.index("")
            raise TableError(
                f"{self.name}: column {_letters(number)} has no name in row {cells.header_row}; "
                "give it one"
            )

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns that have texts or dates, and no number."""
        found = []
        for name in names:
            index = self.column_index[name]
            has_text = any(index in block.texts for block in self._blocks)
            if has_text and not any(
                np.isfinite(block.numbers[:, index]).any() for block in self._blocks
            ):
                found.append(name)
        return found

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows; see `Table.chunks`."""
        import pyarrow as pa

        chosen = [self.column_index[name] for name in features]
        columns = {name: self._kept_column(name) for name in kept}
        done = 0
        for block in self._blocks:
            for part in row_slices(len(block.positions), max(len(chosen), 1)):
                rows = np.arange(done + 1, done + 1 + part.stop - part.start)
                yield Chunk(
                    rows,
                    block.positions[part],
                    block.numbers[part][:, chosen],
                    {name: pa.array(columns[name][rows - 1]) for name in kept},
                    self._find_bad(block, part, features),
                )
                done += len(rows)
                if progress is not None:
                    progress(done / max(self._n_rows, 1))

    def _find_bad(self, block: _Block, part: slice, features: Sequence[str]) -> dict[int, str]:
        bad: dict[int, str] = {}
        for name in features:
            texts = block.texts.get(self.column_index[name])
            if texts is None:
                continue
            for row, text in enumerate(texts[part]):
                if text is not None:
                    shown = text if len(text) <= 30 else text[:27] + "..."
                    bad.setdefault(row, f"column {name!r} is {shown!r}, not a number")
        return bad

    def _kept_column(self, name: str) -> NDArray[Any]:
        """Return numbers if there are only numbers, and texts otherwise; None is missing."""
        index = self.column_index[name]
        parts = [block.numbers[:, index] for block in self._blocks]
        numbers = np.concatenate([np.empty(0), *parts])
        values = numbers.astype(object)
        whole = np.isfinite(numbers) & (np.abs(numbers) < 2.0**53) & (numbers == np.rint(numbers))
        if whole[~np.isnan(numbers)].all():
            values[whole] = numbers[whole].astype(np.int64)
        values[np.isnan(numbers)] = None
        if any(index in block.texts for block in self._blocks):
            values = np.array([None if v is None else _as_text(v) for v in values], dtype=object)
            start = 0
            for block in self._blocks:
                texts = block.texts.get(index)
                if texts is not None:
                    is_text = np.array([text is not None for text in texts])
                    values[start : start + len(texts)][is_text] = texts[is_text]
                start += len(block.positions)
        return values


@dataclass(frozen=True)
class _Block:
    """Rows of a sheet: their numbers, NaN for all else, and the columns that have texts."""

    positions: NDArray[np.int64]
    numbers: NDArray[np.float64]
    texts: dict[int, NDArray[Any]]


@dataclass
class _Merged:
    """Merged cells near the top: the first row and column, and the last ones, from 1."""

    cells: dict[tuple[int, int, int, int], None] = field(default_factory=dict)

    def find(self, row: int, column: int) -> tuple[int, int, int, int] | None:
        for cell in self.cells:
            if cell[0] <= row <= cell[2] and cell[1] <= column <= cell[3]:
                return cell
        return None


class _CellReader:
    """Takes the rows of a sheet one by one: first the names of the columns, then the values."""

    def __init__(self, name: str, merged: _Merged) -> None:
        self.name, self.merged = name, merged
        self.names: list[str] = []
        self.blocks: list[_Block] = []
        self.header_row = 0
        self._header: list[tuple[int, tuple[Any, ...]]] = []
        self._last_header_row = 0
        self._rows: list[tuple[int, tuple[Any, ...]]] = []
        self._n_cells = 0

    def add(self, number: int, row: tuple[Any, ...]) -> None:
        """Add a row."""
        self._n_cells += len(row)
        if self._n_cells > _MAX_CELLS:
            raise TableError(
                f"{self.name} has more than {_MAX_CELLS:,} cells; save it as CSV or Parquet"
            )
        end = len(row)
        while end and row[end - 1] in (None, ""):
            end -= 1
        if not end:
            return
        row = row[:end]
        if len(row) > _MAX_COLUMNS:
            raise TableError(f"{self.name}: row {number} has more than {_MAX_COLUMNS:,} columns")
        if not self.names and self._add_header(number, row):
            return
        if len(row) > len(self.names):
            raise TableError(
                f"{self.name}: row {number} has a value in column {_letters(len(row) - 1)}, which "
                f"has no name in row {self.header_row}; give it one, or clear the cell"
            )
        self._rows.append((number, row))
        if len(self._rows) >= _BLOCK_ROWS:
            self._pack()

    def finish(self) -> None:
        """End the last block."""
        if not self.names and self._header:
            self._join_header()
        if not self.names:
            raise TableError(f"{self.name} is empty")
        self._pack()

    # -- names ---------------------------------------------------------------------------------

    def _add_header(self, number: int, row: tuple[Any, ...]) -> bool:
        """Add a row of names; return False if it is the first row of values."""
        if not self._header:
            if self._is_title(number, row):
                return True
            self.header_row = number
            self._last_header_row = self._find_last_header_row(number, row)
        if number > self._last_header_row:
            self._join_header()
            return False
        self._header.append((number, row))
        if number == self._last_header_row:
            self._join_header()
        return True

    def _is_title(self, number: int, row: tuple[Any, ...]) -> bool:
        filled = [column for column, value in enumerate(row, 1) if value is not None]
        cell = self.merged.find(number, filled[0])
        return len(filled) == 1 and cell is not None and cell[3] > cell[1]

    def _find_last_header_row(self, number: int, row: tuple[Any, ...]) -> int:
        last = number
        for column, value in enumerate(row, 1):
            cell = self.merged.find(number, column)
            if value is None or cell is None or cell[0] != number:
                continue
            # A name over several columns has names below it.
            below = 1 if cell[3] > cell[1] else 0
            last = max(last, cell[2] + below)
        return min(last, number + _MAX_HEADER_ROWS - 1)

    def _join_header(self) -> None:
        width = max(len(row) for _, row in self._header)
        for column in range(1, width + 1):
            parts: list[str] = []
            for number, row in self._header:
                value = row[column - 1] if column <= len(row) else None
                cell = self.merged.find(number, column)
                if value is None and cell is not None and cell[0] == number:
                    first = cell[1] - 1
                    value = row[first] if first < len(row) else None
                text = "" if value is None else _as_text(value).strip()
                if text:
                    parts.append(text)
            self.names.append(" / ".join(parts))

    # -- values --------------------------------------------------------------------------------

    def _pack(self) -> None:
        if not self._rows:
            return
        shape = len(self._rows), len(self.names)
        numbers, texts = np.full(shape, np.nan), dict[int, NDArray[Any]]()
        for i, (_, row) in enumerate(self._rows):
            for column, value in enumerate(row):
                if value is None:
                    continue
                found = _as_number(value)
                if found is not None:
                    numbers[i, column] = found
                else:
                    if column not in texts:
                        texts[column] = np.full(shape[0], None, dtype=object)
                    texts[column][i] = _as_text(value)
        positions = np.array([number for number, _ in self._rows], dtype=np.int64)
        self.blocks.append(_Block(positions, numbers, texts))
        self._rows = []


def _as_number(value: Any) -> float | None:
    """Return the number of a cell, NaN for a missing value, None for anything else."""
    if isinstance(value, int | float):  # and bool, which is an int
        try:
            return float(value)
        except OverflowError:
            return float("inf")
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text in MISSING:
        return float("nan")
    # A number that was typed or pasted as text.
    return guess_number(text, ".") if text.isascii() else None


def _as_text(value: Any) -> str:
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53:
        return str(int(value))
    return str(value)


def _check_archive(path: Path, name: str) -> None:
    """Raise `TableError` for what is no workbook, and for what unpacks to too much."""
    with path.open("rb") as file:
        start = file.read(4)
    if start == _OLE_MARK:
        raise TableError(
            f"{name} is an old Excel file (.xls) or has a password; save it as .xlsx without one"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, OverflowError) as error:
        raise TableError(f"{name} is not an Excel workbook (.xlsx): {error}") from error
    if len(members) > _MAX_MEMBERS or any(info.flag_bits & _ENCRYPTED for info in members):
        raise TableError(f"{name} is not an Excel workbook: it has a password, or too many parts")
    size = sum(info.file_size for info in members)
    if size > _MAX_BYTES:
        raise TableError(
            f"{name} unpacks to {size / 1e6:,.0f} MB; at most {_MAX_BYTES / 1e6:,.0f} MB are read; "
            "save it as CSV or Parquet"
        )


def _choose_sheet(book: Any, name: str, sheet: str | None) -> Any:
    sheets = {found.title: found for found in book.worksheets}
    if not sheets:
        raise TableError(f"{name} has no sheet with cells")
    if sheet is None:
        visible = [found for found in sheets.values() if found.sheet_state == "visible"]
        return (visible or list(sheets.values()))[0]
    if sheet not in sheets:
        raise TableError(
            f"{name}: there is no sheet {sheet!r}; there are {quote_names(list(sheets))}"
        )
    return sheets[sheet]


def _scan(part: IO[bytes], name: str) -> _Merged:
    """Return the merged cells near the top; raise `TableError` if a formula has no value.

    Openpyxl passes over both if it reads a sheet row by row.
    """
    merged, rest = _Merged(), b""
    while True:
        more = part.read(_SCANNED)
        text = rest + more
        found = _NO_VALUE.search(text)
        if found is not None:
            raise TableError(
                f"{name}: cell {found.group(1).decode()} is a formula without a stored value; open "
                "the file in a spreadsheet program and save it there"
            )
        for first, top, last, bottom in _MERGE.findall(text):
            # Names of columns are looked for near the top only.
            if int(top) <= 2 * _MAX_HEADER_ROWS and len(merged.cells) < _MAX_MERGED:
                merged.cells[int(top), _number(first), int(bottom), _number(last)] = None
        if not more:
            return merged
        rest = text[-_OVERLAP:]


def _number(letters: bytes) -> int:
    """Return the number of a column, from 1."""
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number


def _letters(index: int) -> str:
    """Return the letters of a column by its index, from 0.

    Examples
    --------
    >>> _letters(0), _letters(27)
    ('A', 'AB')
    """
    text, number = "", index + 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(65 + rest) + text
    return text
