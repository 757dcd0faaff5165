"""Workbooks of Excel and LibreOffice: one sheet, read once and kept as numbers and texts."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.worker import Worker
from cpcapp.tables.messages import TableError, one_line, require_package
from cpcapp.tables.read.excel_worker import as_text, letters
from cpcapp.tables.read.numbers import describe_non_number
from cpcapp.tables.read.table import Chunk, Progress, Table, number_rows, row_slices

EXCEL_ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
# Set by hand: what is read in a few minutes.
_MAX_BYTES = 512 << 20
_MAX_MEMBERS = 10_000
_SECONDS, _SECONDS_PER_MEGABYTE = 30.0, 1.0


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
        facts, (self._positions, self._numbers) = _read_sheet(path, name.partition("::")[0], sheet)
        self.name, self.columns = facts["name"], facts["columns"]
        self._texts = {
            int(column): np.array(texts, dtype=object) for column, texts in facts["texts"].items()
        }
        unnamed = self.name_columns()
        if unnamed is not None:
            raise TableError(
                f"{self.name}: column {letters(unnamed)} has no name in row "
                f"{facts['header_row']}; give it one"
            )

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns that have texts or dates, and no number."""
        numeric = np.isfinite(self._numbers).any(axis=0)
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
        for part in row_slices(n_rows, max(len(chosen), 1)):
            yield Chunk(
                number_rows(part),
                self._positions[part],
                self._numbers[part][:, chosen],
                {name: pa.array(column[part]) for name, column in columns.items()},
                self._find_bad(part, features),
            )
            if progress is not None:
                progress(part.stop / n_rows)

    def _find_bad(self, part: slice, features: Sequence[str]) -> dict[int, str]:
        bad: dict[int, str] = {}
        for name in features:
            for row, text in enumerate(self._texts.get(self.column_index[name], ())[part]):
                if text is not None:
                    bad.setdefault(row, describe_non_number(name, text))
        return bad

    def _kept_column(self, name: str) -> NDArray[Any]:
        """Return numbers if there are only numbers, and texts otherwise; None is missing."""
        index = self.column_index[name]
        numbers, texts = self._numbers[:, index], self._texts.get(index)
        present = ~np.isnan(numbers)
        values = np.full(len(numbers), None, dtype=object)
        if texts is not None:
            values[present] = [as_text(number) for number in numbers[present].tolist()]
            return np.where(present, values, texts)
        whole = (numbers[present] == np.rint(numbers[present])).all()
        small = (np.abs(numbers[present]) < 2.0**53).all()
        values[present] = numbers[present].astype(np.int64) if whole and small else numbers[present]
        return values


def _read_sheet(
    path: Path, name: str, sheet: str | None
) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Let a process of its own read a sheet; see `cpcapp.tables.read.excel_worker`."""
    seconds = _SECONDS + _SECONDS_PER_MEGABYTE * _unpacked_bytes(path, name) / 1e6
    worker = Worker("cpcapp.tables.read.excel_worker")
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
    if answer[0].get("kind") == "sheet":
        raise TableError(reason)
    raise TableError(f"{name} is not a readable workbook: {reason}")


def _unpacked_bytes(path: Path, name: str) -> int:
    """Return the size of the parts of a workbook; raise `TableError` if it is too large."""
    total = path.stat().st_size
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except Exception as error:  # zipfile answers damaged bytes with errors of many kinds
            raise TableError(f"{name} is not a readable workbook: {one_line(error)}") from error
        if len(members) > _MAX_MEMBERS:
            raise TableError(f"{name} is not a readable workbook: it has too many parts")
        total = sum(member.file_size for member in members)
    if total > _MAX_BYTES:
        raise TableError(
            f"{name} unpacks to {total / 1e6:,.0f} MB; at most {_MAX_BYTES / 1e6:,.0f} MB are "
            "read; save it as CSV or Parquet"
        )
    return total
