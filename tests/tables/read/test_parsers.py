"""Arrow and the parser in Python give the same chunks, bit by bit, whatever the text."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpcapp.tables import TableError
from cpcapp.tables.read.csv import CsvTable

NUMBERS = st.one_of(
    st.floats(width=64).map(repr),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.3f}"),
    st.floats().map(lambda value: f"{value:.17e}"),
    st.floats(-1e300, 1e300).map(lambda value: f"{value:E}"),
    st.integers(-(10**40), 10**40).map(str),
    st.sampled_from(
        ["", "NA", "NaN", "nan", "-nan", "null", "None", "#N/A", "inf", "-Infinity", "1.", ".5"]
    ),
    st.sampled_from(["-0.0", "007", "1e5", "1E+5", "1e-400", "1e400", "4.9e-324", " 1.5", "2 "]),
    # What one parser might take for a number and the other not.
    st.sampled_from(
        ["+1", "1_0", "0x10", "1d5", "nan(1)", "infinit", "1e", "--1", "１", "1,5", "x"]
    ),
)
PLAIN = st.text(alphabet="aZ19.-e '#é名", max_size=5)
QUOTED = st.text(alphabet='ab",;\n\r\t é', max_size=6).map(
    lambda text: '"' + text.replace('"', '""') + '"'
)
RAW = st.text(alphabet='ab"1,\n\r ', max_size=4)  # quotes and line ends where they should not be
ROWS = st.lists(
    st.tuples(
        st.one_of(PLAIN, QUOTED), NUMBERS, NUMBERS.flatmap(lambda t: st.sampled_from([t, f'"{t}"']))
    ),
    max_size=6,
)


class CarefulTable(CsvTable):
    """A table that is parsed in Python only."""

    def _parse_fast(self, *arguments):
        return None


def read(kind, data, decimal="."):
    """Return all that a reader gives, or its error."""
    try:
        table = kind(io.BufferedReader(io.BytesIO(data)), "t.csv")
        if table.columns != ["who", "a", "b"]:
            return table.columns
        found = []
        for chunk in table.chunks(["a", "b"], ["who"]):
            found += [chunk.rows.tolist(), chunk.positions.tolist(), chunk.values.shape]
            # Bits, with one kind of NaN.
            values = np.where(np.isnan(chunk.values), np.nan, chunk.values)
            found += [values.tobytes(), chunk.kept["who"].to_pylist(), chunk.bad, chunk.unreadable]
        return [*found, table.reading_notes()]
    except TableError as error:
        return str(error)


def same(text):
    data = text.encode()
    assert read(CsvTable, data) == read(CarefulTable, data)


@given(ROWS, st.sampled_from(["\n", "\r\n"]), st.integers(0, 3), st.booleans())
def test_well_formed_text(rows, ending, n_blank, closed):
    lines = ["who,a,b", *(",".join(row) for row in rows)]
    same(ending.join(lines) + (ending if closed else "") + ending * n_blank)


@given(ROWS, st.sampled_from(["\n", "\r\n"]))
@example([("", "0.0", "nan(1)")], "\n")
def test_decimal_commas(rows, ending):
    lines = ["who;a;b", "x;0,5;1,25"]
    lines += [";".join([row[0], row[1].replace(".", ","), row[2]]) for row in rows]
    same(ending.join(lines))


@given(st.lists(st.tuples(RAW, RAW, RAW), max_size=5), st.lists(st.integers(0, 60), max_size=2))
@example([('"a"b', "1", "1")], [])
@example([('a"b', "1", "1"), ("", '"1"', "1 ")], [])
def test_any_text(rows, cuts):
    text = "who,a,b\nx,1,2\n" + "".join(",".join(row) + "\n" for row in rows)
    for cut in cuts:
        text = text[:cut] + text[cut + 1 :]
    same(text)


def test_very_long_rows_and_values():
    long = "0." + "1" * 2000
    text = "who,a,b\n" + f'"{"x" * 120_000}",{long},1e{"0" * 500}1\n' * 60 + "y,1,2\n"
    same(text)
    values = read(CsvTable, text.encode())[3]
    assert np.frombuffer(values)[:2].tolist() == [float(long), 10.0]


def test_arrow_reads_clean_text_alone(monkeypatch):
    """The comparison above would be of no use if Arrow refused everything."""
    monkeypatch.setattr(CsvTable, "_parse_carefully", None)
    text = 'who,a,b\r\n"x, ""y""",-1.5e3,NA\r\nNA,"2",nan\r\n'
    rows, lines, shape, values, who, *_ = read(CsvTable, text.encode())
    assert (rows, lines, shape, who) == ([1, 2], [2, 3], (2, 2), ['x, "y"', "NA"])
    np.testing.assert_array_equal(np.frombuffer(values), [-1500, np.nan, 2, np.nan])


@pytest.mark.parametrize("text", ["who,a,b\nx,1,y\n", "who,a,b\nx,1\n"])
def test_messages_of_bad_rows_do_not_depend_on_the_parser(text):
    same(text)
    assert re.search(
        "not a number|fields where the header has 3", str(read(CsvTable, text.encode()))
    )
