"""Delimited text: names, lines, values, and what is wrong with rows."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from cpcapp.tables import TableError, open_table
from cpcapp.tables.columns import choose_columns


@pytest.fixture
def frame(rng):
    values = rng.normal(size=(50, 3)) * [1e-5, 1, 1e9]
    frame = pd.DataFrame(values, columns=["a b", "c,d", 'e"f'])
    frame.insert(0, "who", [f"Zoë {i}\nline two" for i in range(50)])
    frame.iloc[3, 2] = np.nan
    return frame


def test_lines_count_those_within_quotes(tmp_path, frame):
    frame.to_csv(tmp_path / "t.csv", index=False)
    (chunk,) = open_table(str(tmp_path / "t.csv")).chunks(["a b"], [])
    assert chunk.positions.tolist() == list(range(2, 102, 2))


@pytest.mark.parametrize("sep", [";", "|", "\t"])
def test_the_delimiter_is_seen(tmp_path, sep):
    (tmp_path / "t.csv").write_text(sep.join("ab") + "\n" + sep.join("12") + "\n")
    assert open_table(str(tmp_path / "t.csv")).columns == ["a", "b"]


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


@pytest.mark.parametrize("text", ["NA", "nan", "", " NA", "null", "#N/A", "None"])
def test_missing_values(tmp_path, text):
    (tmp_path / "t.csv").write_text(f"a,b\n1,{text}\n2,3\n")
    (chunk,) = open_table(str(tmp_path / "t.csv")).chunks(["a", "b"], [])
    np.testing.assert_array_equal(chunk.values, [[1, np.nan], [2, 3]])
    assert not chunk.bad


def test_ids_are_kept_as_they_are_written(tmp_path):
    (tmp_path / "t.csv").write_text("id,b\n007,1\nNA,2\n1e3,3\n")
    (chunk,) = open_table(str(tmp_path / "t.csv")).chunks(["b"], ["id"])
    assert chunk.kept["id"].to_pylist() == ["007", "NA", "1e3"]


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
    path.write_bytes(b"a,b\n" + b"x,1\n" * 300_000 + b"\xe4,2\n")
    table = open_table(str(path))
    with pytest.raises(TableError, match="line 300002 is not UTF-8"):
        list(table.chunks(["b"], ["a"]))


@pytest.mark.parametrize("extra", ["", "+3,5;x\n"], ids=["fast", "exact"])
def test_decimal_commas_of_spreadsheets(tmp_path, extra):
    (tmp_path / "t.csv").write_text("a;b\n1,5;-2,5e3\n2;NA\n" + extra)
    table = open_table(str(tmp_path / "t.csv"))
    assert table.text_columns(["a", "b"]) == []
    (chunk,) = table.chunks(["a", "b"], [])
    np.testing.assert_array_equal(chunk.values[:2], [[1.5, -2500], [2, np.nan]])
    assert list(chunk.bad) == ([2] if extra else [])


@pytest.mark.parametrize("name", ["t.TSV.GZ", "t.Txt", "t.TAB"])
def test_endings_in_upper_case(tmp_path, name):
    text = b"a\tb,c\n1\t2\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("GZ") else text)
    assert open_table(tmp_path / name).columns == ["a", "b,c"]
