"""How numbers are written: what can be read in one way only, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.tables.read.numbers import NumberMarks, find_marks

GERMAN, ENGLISH = NumberMarks(","), NumberMarks(".")
TRANSLATE = str.maketrans(".,", ",.")


@given(st.floats(-1e15, 1e15), st.integers(1, 6))
def test_grouped_numbers_are_those_of_python(value, digits):
    text = f"{value:,.{digits}f}"
    expected = float(text.replace(",", ""))
    for marks, written in ((ENGLISH, text), (GERMAN, text.translate(TRANSLATE))):
        found = marks.parse_plain(written)
        assert (marks.parse_grouped(written) if found is None else found) == expected
    spaced = text.replace(",", "\u202f")
    assert "," not in text or ENGLISH.parse_grouped(spaced) == expected


@given(st.lists(st.floats(1e3, 1e9), min_size=1), st.sampled_from(";\t|"))
def test_marks_of_a_file_are_found_from_its_values(values, delimiter):
    texts = [f"{value:,.2f}" for value in values]
    assert find_marks(texts, delimiter) == NumberMarks(".", thousands=True)
    german = [text.translate(TRANSLATE) for text in texts]
    assert find_marks(german, delimiter) == NumberMarks(",", thousands=True)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_ordinary_numbers_are_never_taken_for_thousands(values):
    for digits in (0, 3):
        assert find_marks([f"{value:.{digits}f}" for value in values], ";") == ENGLISH


@pytest.mark.parametrize(
    "text",
    ["1,23,456", "12,34", "0,123", "1234,567", "1,234,56", "1,234.5.6", ",123", "1,", "1 23"],
)
def test_other_groups_are_no_thousands(text):
    assert NumberMarks(".", thousands=True).parse_grouped(text) is None


@pytest.mark.parametrize(
    ("values", "delimiter", "marks"),
    [
        (["1,234", "2,345"], ";", ENGLISH),
        (["1,234", "0,345"], ";", GERMAN),  # one value that can only be decimals decides
        (["1,234", "2,345,678"], ";", NumberMarks(".", thousands=True)),
        (["1.234", "2.345", "3.456.789"], ";", NumberMarks(",", thousands=True)),
        (["1.234", "2.345", "1,5"], ";", ENGLISH),  # a stray comma
        (["1,5", "2,5"], ",", ENGLISH),  # a comma between columns
    ],
)
def test_marks_of_few_values(values, delimiter, marks):
    assert find_marks(values, delimiter) == marks


def test_one_mark_with_three_digits_may_mean_either():
    assert "may separate thousands or decimals" in ENGLISH.describe_problem("1,234")
    assert ENGLISH.parse_grouped("1,234") is None
    assert NumberMarks(".", thousands=True).parse_grouped("1,234") == 1234.0


def test_missing_values_and_infinity():
    assert math.isnan(ENGLISH.parse_plain(" NA "))
    assert ENGLISH.parse_plain("-inf") == -math.inf
    assert ENGLISH.parse_plain("1_000") is None
