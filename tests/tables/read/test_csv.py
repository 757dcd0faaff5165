"""Delimited text: names, lines, values, and what is wrong with rows."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.tables import TableError, open_table
from cpcapp.tables.columns import choose_columns
from cpcapp.tables.read.csv import CsvTable
from table_reading import read_all


@pytest.mark.parametrize("compress", [lambda data: data, gzip.compress])
def test_a_mark_of_spreadsheets_is_not_part_of_a_name(tmp_path, compress):
    path = tmp_path / "t.csv"
    path.write_bytes(compress(b"\xef\xbb\xbfa,b\r\n1,2\r\n"))
    table = open_table(str(path))
    assert table.columns == ["a", "b"]
    (chunk,) = table.chunks(["b"], ["a"])
    assert (chunk.values.tolist(), chunk.kept["a"].to_pylist()) == ([[2.0]], ["1"])


@pytest.mark.parametrize(
    "text", [",x,y\n0,1,2\n1,3,4\n", 'x\ty\n"0"\t1\t2\n"1"\t3\t4\n'], ids=["pandas", "R"]
)
def test_names_of_rows_are_no_feature(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    table = open_table(str(path))
    columns = choose_columns(table)
    assert (columns.features, columns.ids) == (["x", "y"], ["row_name"])
    (chunk,) = table.chunks(columns.features, columns.kept)
    assert chunk.values.tolist() == [[1, 2], [3, 4]]
    assert chunk.kept["row_name"].to_pylist() == ["0", "1"]


@pytest.mark.parametrize(
    ("name", "text", "who", "values"),
    [
        ("t.csv", 'who;a\n"x\ny";1\nz;NA\n', ["x\ny", "z"], [1, np.nan]),
        ("t.csv", 'who|a\n"x\ry"|1\n"z"|\n', ["x\ry", "z"], [1, np.nan]),
        ("t.csv", "who\ta\n007\t 1\nNA\t#N/A\n", ["007", "NA"], [1, np.nan]),
        ("t.TSV.GZ", "who\ta\n1e3\tnull\n,\tNone\n", ["1e3", ","], [np.nan, np.nan]),
        ("t.Tab", "who\ta\n1.5\tnan\n,\t2\n", ["1.5", ","], [np.nan, 2]),
    ],
)
def test_delimiters_endings_missing_values_and_ids_as_they_are_written(
    tmp_path, name, text, who, values
):
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("GZ") else data)
    found, kept, _ = read_all(tmp_path / name, ["a"], ["who"])
    np.testing.assert_array_equal(found.ravel(), values)
    assert kept["who"] == who
    assert open_table(tmp_path / name).reading_notes() == []


def test_what_is_wrong_with_rows(tmp_path):
    lines = ["a,b", "1,2", "3,x", '"4\n",5', "6", "7,8,9", "1_0,1", "", '10,"1,5"', "+11,12"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (chunk,) = open_table(str(tmp_path / "t.csv")).chunks(["a", "b"], [])
    assert chunk.rows.tolist() == [1, 2, 3, 6, 7, 8]
    assert chunk.positions.tolist() == [2, 3, 4, 8, 10, 11]
    assert chunk.bad == {
        1: "column 'b' is 'x', not a number",
        3: "column 'a' is '1_0', not a number",
        4: "column 'b' is '1,5', not a number (a decimal comma? write 1.5)",
    }
    assert chunk.unreadable == [
        (6, "1 field where the header has 2"),
        (7, "3 fields where the header has 2"),
    ]
    np.testing.assert_array_equal(chunk.values[[0, 2, 5]], [[1, 2], [4, 5], [11, 12]])


def test_bytes_that_are_no_text_further_on_are_named_by_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("ä,b\n".encode() + b"x,1\n" * 300_000 + b"\xe4,2\n")
    with pytest.raises(TableError, match="line 300002 is not UTF-8"):
        list(open_table(path).chunks(["b"], ["ä"]))


@pytest.mark.parametrize("n_before", [0, 300_000], ids=["first line", "far on"])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_latin_1_is_recognised_wherever_it_begins(tmp_path, name, n_before):
    data = ("a,b\n" + "x,1\n" * n_before + "Zoë 5 €,2\n").encode("cp1252")
    (tmp_path / name).write_bytes(gzip.compress(data, 1) if name.endswith("gz") else data)
    table = open_table(tmp_path / name)
    for _ in range(2):
        chunks = list(table.chunks(["b"], ["a"]))
        assert chunks[-1].kept["a"].to_pylist()[-1] == "Zoë 5 €"
        assert chunks[-1].positions[-1] == n_before + 2
        assert table.reading_notes() == ["Latin-1 (Windows-1252), not UTF-8"]


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("compress", [lambda data: data, gzip.compress])
def test_utf_16_of_spreadsheets_is_recognised(tmp_path, order, compress):
    path = tmp_path / "t.txt"
    text = "größe\t名\r\n" + "1.5\tZoë\r\n2\t\U0001f42d\r\n" * 20_000
    path.write_bytes(compress(("\ufeff" + text).encode(order)))
    values, kept, rows = read_all(path, ["größe"], ["名"])
    assert values.ravel().tolist() == [1.5, 2.0] * 20_000
    assert kept["名"] == ["Zoë", "\U0001f42d"] * 20_000
    assert rows[-1] == 40_000
    assert open_table(path).reading_notes() == ["UTF-16"]


def test_utf_16_that_is_cut_off_is_named_by_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(("\ufeff" + "a,b\n" + "1,2\n" * 2_000_000).encode("utf-16-le")[:-1])
    table = open_table(path)
    with pytest.raises(TableError, match=r"t\.csv is UTF-16 and damaged in line \d{7} or"):
        list(table.chunks(["a", "b"], []))


@pytest.mark.parametrize("extra", ["", "+3,5;x\n"], ids=["fast", "exact"])
def test_decimal_commas_of_spreadsheets(tmp_path, extra):
    (tmp_path / "t.csv").write_text("a;b\n1,5;-2,5e3\n2;NA\n" + extra)
    table = open_table(str(tmp_path / "t.csv"))
    assert table.text_columns(["a", "b"]) == []
    (chunk,) = table.chunks(["a", "b"], [])
    np.testing.assert_array_equal(chunk.values[:2], [[1.5, -2500], [2, np.nan]])
    assert list(chunk.bad) == ([2] if extra else [])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b\n1,2\r3,4\n5,6", 2),
        ("a,b\r1,2\n3,4\n5,6\n", 1),
        ("a,b\r\n\r\n1,2\r\n3,\r4\r\n5,6\r\n", 4),
        ('a,b\n"1\r",2\n3,4\n5\r,6\n', 4),
    ],
)
def test_a_stray_carriage_return_is_named(tmp_path, text, line):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    with pytest.raises(TableError, match=rf"t\.csv: line {line} has a carriage return"):
        list(open_table(path).chunks(["a", "b"], []))


@pytest.mark.parametrize(
    ("text", "expected", "note"),
    [
        ('a,b\n"1,234.5",2.5\n"1,234",7\n', [1234.5, 1234], "line 2: '1,234.5' is 1234.5"),
        ("a;b\n1.234,5;2,5\n1.234;7\n", [1234.5, 1234], "line 2: '1.234,5' is 1234.5"),
        ("a;b\n1 234,5;2,5\n1 234;7\n", [1234.5, 1234], "line 2: '1 234,5' is 1234.5"),
        ("a\tb\n-12,345,678\t2.5\n1,234\t7\n", [-12345678, 1234], "line 2: '-12,345,678' is"),
        ("a;b\n1\u202f234,5;2,5\n9;7\n", [1234.5, 9], r"line 2: '1\u202f234,5' is 1234.5"),
        ("a;b\n1'234.5;2.5\n12;7\n", [1234.5, 12], "is 1234.5"),
    ],
)
def test_thousands_separators_are_recognised_and_said(tmp_path, text, expected, note):
    (tmp_path / "t.csv").write_text(text, "utf-8")
    table = open_table(tmp_path / "t.csv")
    assert table.text_columns(["a", "b"]) == []
    (chunk,) = table.chunks(["a", "b"], [])
    assert not chunk.bad
    np.testing.assert_array_equal(chunk.values, np.column_stack([expected, [2.5, 7]]))
    assert note in table.reading_notes()[-1]


EITHER = " (its comma may separate thousands or decimals; write 2345 or 2.345)"
POINT = " (a point, where other numbers have decimal commas? write 1234 or 1,234)"
SCRIPT = " (digits of another script? write 0 to 9)"


@pytest.mark.parametrize(
    ("text", "cell", "hint"),
    [
        ("a;b\n7;8\n2,345;9\n", "2,345", EITHER),
        ("a\tb\n7\t8\n2,345\t9\n", "2,345", EITHER),
        ('a,b\n7,8\n"2,345",9\n', "2,345", EITHER),
        ("a;b\n1,5;2,5\n1.234;4\n", "1.234", POINT),
        ("a,b\n1,2\n\uff11\uff12,3\n", "\uff11\uff12", SCRIPT),
        ("a,b\n1,2\n\u0661\u0662,4\n", "\u0661\u0662", SCRIPT),
        ("a,b\n\uff11\uff12,2\n", "\uff11\uff12", SCRIPT),
    ],
)
def test_numbers_that_may_mean_something_else_are_not_guessed(tmp_path, text, cell, hint):
    (tmp_path / "t.csv").write_text(text, "utf-8")
    table = open_table(tmp_path / "t.csv")
    # A column of them is one of numbers, and not left out as text.
    assert table.text_columns(["a", "b"]) == []
    (chunk,) = table.chunks(["a", "b"], [])
    last = len(chunk.rows) - 1
    assert chunk.bad == {last: f"column 'a' is {cell!r}, not a number{hint}"}
    assert chunk.positions[last] == text.count("\n")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1,234", "0,345"], [1.234, 0.345]),  # one value that can only be decimals decides
        (["1,234", "2,345,678"], [1234, 2345678]),
        (["1.234", "2.345", "3.456.789"], [1234, 2345, 3456789]),
        (["1.234", "2.345", "1,5"], [1.234, 2.345, None]),  # a stray comma
        (["1.5", "0,123,4", "1,23,456", "1,234.5.6"], [1.5, None, None, None]),
        (["1.5", "-inf", "1_000", " 2 "], [1.5, -np.inf, None, 2]),
    ],
)
def test_what_numbers_mean_is_decided_by_those_that_can_mean_one_thing(tmp_path, values, expected):
    (tmp_path / "t.csv").write_text("a;b\n" + "".join(f"{value};1\n" for value in values))
    (chunk,) = open_table(tmp_path / "t.csv").chunks(["a"], [])
    assert sorted(chunk.bad) == [i for i, value in enumerate(expected) if value is None]
    numbers = [np.nan if value is None else value for value in expected]
    np.testing.assert_array_equal(chunk.values.ravel(), numbers)


@given(st.floats(-1e15, 1e15), st.integers(1, 6), st.booleans())
def test_grouped_numbers_are_those_of_python(value, digits, german):
    text = f"{value:,.{digits}f}"
    written = text.translate(str.maketrans(".,", ",.")) if german else text
    data = f"a;b\n{'1.234,5' if german else '1,234.5'};1\n{written};1\n".encode()
    table = CsvTable(io.BufferedReader(io.BytesIO(data)), "t.csv")
    (chunk,) = table.chunks(["a"], [])
    assert chunk.values[1, 0] == float(text.replace(",", ""))
