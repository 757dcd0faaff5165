"""Workbooks of Excel: real files, written by openpyxl and pandas."""

from __future__ import annotations

import datetime
import re
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

from cpcapp.tables import TableError, open_table, reduce_tables
from cpcapp.tables.read import excel
from table_reading import read_all

HERE = Path(__file__).parent


def save(path, *rows, merge=(), title="Data"):
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    for cells in merge:
        book.active.merge_cells(cells)
    book.save(path)
    return path


def rewrite(path, pattern, replacement, part="xl/worksheets/sheet1.xml"):
    """Change the XML of a workbook as another program would have written it."""
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    parts[part], n_changes = re.subn(pattern, replacement, parts[part])
    assert n_changes
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in parts.items():
            archive.writestr(name, body)
    return path


def test_rows_of_pandas_come_back_by_name(tmp_path, rng):
    frame = pd.DataFrame(rng.normal(size=(50, 2)) * [1e-5, 1e9], columns=["a b", "c,d"])
    frame.index = [f"Zoë {i}\nline two" for i in range(50)]
    frame.iloc[3, 1] = np.nan
    frame.to_excel(tmp_path / "t.xlsx")
    table = open_table(tmp_path / "t.xlsx")
    assert (table.row_names, table.columns) == ("row_name", ["row_name", "a b", "c,d"])
    values, kept, rows = read_all(tmp_path / "t.xlsx", kept=["row_name"])
    # Excel keeps about 16 digits.
    np.testing.assert_allclose(values, frame[["c,d", "a b"]], rtol=1e-14)
    assert kept["row_name"] == [f"Zoë {i} line two" for i in range(50)]
    assert rows.tolist() == list(range(1, 51))


def test_cells_of_all_kinds(tmp_path):
    path = save(
        tmp_path / "t.xlsx",
        ["number", "typed", "yes", "when", "code"],
        [1.5, " 2.5 ", True, datetime.date(2024, 5, 1), 7],
        [None, "1e3", False, datetime.datetime(2024, 5, 1, 13, 30), "A7"],
        [],
        ["#N/A", "NA", None, None, None],
        [-3, 4, True, datetime.time(8, 15), 8.0],
    )
    table = open_table(path)
    assert table.text_columns(table.columns) == ["when"]
    values, kept, rows = read_all(path, ["number", "typed", "yes"], ["when", "code"])
    nan = np.nan
    expected = [[1.5, 2.5, 1], [nan, 1000, 0], [nan, nan, nan], [-3, 4, 1]]
    np.testing.assert_array_equal(values, expected)
    assert kept["when"] == ["2024-05-01", "2024-05-01T13:30:00", "", "08:15:00"]
    assert kept["code"] == ["7", "A7", "", "8"]
    assert rows.tolist() == [1, 2, 3, 4]  # the blank row is not one
    # As people see them in Excel.
    assert next(iter(table.chunks(["number"], []))).positions.tolist() == [2, 3, 5, 6]


def test_stored_values_of_formulas(tmp_path):
    """What no program has computed is missing, as is an empty text."""
    path = save(tmp_path / "t.xlsx", ["a", "b"], [1, "=A2*2"], [3, "=A3*2"])
    with pytest.raises(TableError, match="2 missing values in 2 rows: row 2: column 'b'; row 3"):
        reduce_tables(path, None, 1, method="pca")
    rewrite(path, rb"(<f>A(\d)\*2</f>)<v\s*/>", rb"\1<v>\g<2>0.5</v>")
    np.testing.assert_array_equal(read_all(path, ["a", "b"], [])[0], [[1, 20.5], [3, 30.5]])
    rewrite(path, rb'<c r="B2"[^>]*>.*?</c>', b'<c r="B2" t="str"><f>IF(1,"","")</f><v></v></c>')
    np.testing.assert_array_equal(read_all(path, ["a", "b"], [])[0], [[1, np.nan], [3, 30.5]])


def test_a_header_of_merged_groups(tmp_path):
    path = save(
        tmp_path / "t.xlsx",
        ["Trial 7 of 2024"],
        ["mouse", "blood", None, "weight", None],
        [None, "iron", "salt", "kg", None],
        ["m1", 1.0, 2.0, 3.0],
        ["m2", 4.0, 5.0, 6.0],
        merge=["A1:D1", "A2:A3", "B2:C2"],
    )
    table = open_table(path)
    assert table.columns == ["mouse", "blood / iron", "blood / salt", "weight / kg"]
    values, kept, _ = read_all(path, ["blood / salt"], ["mouse"])
    assert values.ravel().tolist() == [2.0, 5.0]
    assert kept["mouse"] == ["m1", "m2"]


def test_sheets_by_name(tmp_path):
    path = tmp_path / "t.xlsx"
    book = openpyxl.Workbook()
    book.active.title = "cover"
    book.active.sheet_state = "hidden"
    for name, value in (("mice", 1.0), ("R & D", 2.0)):
        sheet = book.create_sheet(name)
        sheet.append(["a"])
        sheet.append([value])
    book.active = 1
    book.save(path)
    assert open_table(path).name == f"{path}::mice"
    assert read_all(f"{path}::R & D", ["a"], [])[0].tolist() == [[2.0]]
    with pytest.raises(TableError, match="no sheet 'rats'; there are 'cover', 'mice', 'R & D'"):
        open_table(f"{path}::rats")
    with pytest.raises(TableError, match="cover is empty"):
        open_table(f"{path}::cover")


def test_bad_cells_are_named_by_sheet_and_row(tmp_path):
    rows = [["a", "b"], [1, 2], [3, "n.d."], [4, "#DIV/0!"], [5, 6], [7, 9]]
    path = save(tmp_path / "t.xlsx", *rows, title="May")
    rule = {"method": "pca", "missing": "drop"}
    with pytest.raises(TableError) as caught:
        reduce_tables(path, None, 1, **rule)
    text = str(caught.value)
    assert text.startswith(f"{path}::May: 1 bad row: row 3: column 'b' is 'n.d.', not a number")
    assert len(text.splitlines()) == 1
    counts = reduce_tables(path, None, 1, **rule, skip_bad_rows=True).target.counts
    # An error of a formula is a missing value.
    assert (counts.n_used, counts.n_bad, counts.incomplete) == (3, 1, [(4, "column 'b'")])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "Data is empty"),
        ([["a", "b", "a"], [1, 2, 3]], "two columns are called 'a'"),
        ([["a", None, "b"], [1, 2, 3]], "column B has no name in row 1"),
        ([["a"], [1], [2, 5]], "row 3 has a value in column B, which has no name in row 1"),
    ],
)
def test_sheets_that_are_no_table(tmp_path, rows, message):
    with pytest.raises(TableError, match=re.escape(message)):
        open_table(save(tmp_path / "t.xlsx", *rows))


def test_sizes_are_bounded_before_anything_is_unpacked(tmp_path, monkeypatch):
    path = save(tmp_path / "t.xlsx", ["a"], *([i] for i in range(300)))
    monkeypatch.setattr(excel, "_MAX_BYTES", 5000)
    with pytest.raises(TableError, match=r"unpacks to .* MB; at most 0 MB are read"):
        open_table(path)


def test_a_far_cell_does_not_take_all_memory(tmp_path):
    """The parser makes room for 17 billion cells, and ends its process if there is none."""
    path = save(tmp_path / "t.xlsx", ["a"], [1.0], [2.0])
    far = b'<c r="XFD1048576"><v>1</v></c>'
    rewrite(path, rb'<row r="3"[^>]*>.*?</row>', b'<row r="1048576">' + far + b"</row>")
    with pytest.raises(TableError, match=r"t\.xlsx is damaged or too large: reading"):
        open_table(path)
    rewrite(path, rb"XFD1048576", b"Z1000000")
    with pytest.raises(TableError, match=r"Data has more than 20,000,000 cells; save it as CSV"):
        open_table(path)


@pytest.mark.parametrize("ending", ["xls", "ods"])
def test_old_workbooks_and_those_of_libreoffice(ending):
    """The same sheet: text, numbers, a date, a formula, an empty cell."""
    path = HERE / f"mice.{ending}"
    values, kept, _ = read_all(path, ["iron", "double"], ["mouse", "born", "iron"])
    np.testing.assert_array_equal(values, [[1.5, 3.0], [2.0, 4.0], [np.nan, 0.0]])
    assert kept["mouse"] == ["m1", "m2", "Zoë"]
    assert kept["born"] == ["2024-05-01", "2024-05-02", ""]
    assert kept["iron"] == [1.5, 2.0, None]
    assert open_table(path).name == f"{path}::May"


def test_entities_of_a_document_type_are_not_blown_up(tmp_path):
    path = save(tmp_path / "t.xlsx", ["a"], [1.0])
    names = "abcdefghij"
    chain = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise(names))
    bomb = f'<!DOCTYPE x [<!ENTITY a "{"x" * 100}">{chain}]>'.encode()
    rewrite(path, rb"<worksheet", bomb + b"<worksheet")
    rewrite(path, rb"<c [^>]*><v>1</v></c>", b'<c r="A2" t="str"><v>&j;</v></c>')
    with pytest.raises(TableError, match=r"is not a readable workbook|is damaged or too large"):
        open_table(path)
