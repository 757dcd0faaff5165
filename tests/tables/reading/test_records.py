"""Line numbers of records, whatever is in the fields and wherever blocks end."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.tables import TableError
from cpcapp.tables.reading.records import read_blocks

FIELD = st.text(alphabet='ab1"\n,; ', max_size=6)


def lines_by_the_csv_module(text):
    """The first line of each record; blank lines are none."""
    reader = csv.reader(io.StringIO(text, newline=""))
    found, before = [], 0
    for record in reader:
        if record:
            found.append(before + 1)
        before = reader.line_num
    return found


def lines_by_blocks(text, size):
    return [int(i) for b in read_blocks(io.BytesIO(text.encode()), ",", "t", size) for i in b.lines]


@given(
    st.lists(st.lists(FIELD, min_size=2, max_size=3), max_size=8),
    st.integers(1, 40),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_lines_of_well_formed_text(records, size, ending, closed):
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=ending).writerows(records)
    whole = text.getvalue() if closed else text.getvalue().removesuffix(ending)
    assert lines_by_blocks(whole, size) == lines_by_the_csv_module(whole)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_blank_lines_and_quotes_within_words(size):
    text = 'a,b\n\n5" pipe,1\n\r\n"x\ny",2\nlast,3'
    assert lines_by_blocks(text, size) == [1, 3, 5, 7] == lines_by_the_csv_module(text)


def test_blocks_hold_the_whole_text():
    text = b'a,b\n1,"x\n\n"\n2,3\n'
    for size in range(1, 20):
        assert b"".join(b.data for b in read_blocks(io.BytesIO(text), ",", "t", size)) == text


def test_a_quote_that_is_not_closed():
    with pytest.raises(TableError, match="the record that begins in line 3 does not end"):
        list(read_blocks(io.BytesIO(b'a,b\n1,2\n3,"4\n5,6\n'), ",", "t"))


def test_a_record_much_longer_than_a_block():
    text = ",".join(["1.5"] * 10_000) + "\n"
    found = list(read_blocks(io.BytesIO((text * 3).encode()), ",", "t", 100))
    assert np.concatenate([b.lines for b in found]).tolist() == [1, 2, 3]
    assert max(b.longest for b in found) == len(text) - 1
