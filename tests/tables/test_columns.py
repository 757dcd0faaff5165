"""Roles of columns, and the rows of each set."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.tables import Chunk, TableError, open_table
from cpcapp.tables.columns import Selection, choose_columns, match_columns


class NoSearch(list):
    """A list that can be read, but not searched: with many columns a search takes too long."""

    def __contains__(self, name):
        raise AssertionError(f"{name} was searched for")

    def index(self, *arguments):
        raise AssertionError(f"{arguments[0]} was searched for")


@pytest.fixture
def frame(rng):
    found = pd.DataFrame(rng.normal(size=(20, 6)), columns=list("abcdef"))
    found["group"] = ["x"] * 5 + ["y"] * 12 + [None] * 3
    return found


@pytest.fixture(params=["csv", "parquet"])
def table(request, frame, tmp_path):
    path = tmp_path / f"t.{request.param}"
    frame.to_csv(path, index=False) if request.param == "csv" else frame.to_parquet(path)
    return open_table(path)


def test_columns_are_looked_up_and_not_searched_for(table):
    table.columns = NoSearch(table.columns)
    columns = choose_columns(table, labels=["group"], drop=["b"])
    assert columns.features == list("acdef")
    chosen = choose_columns(table, columns=["f", "a"], ids=["group"])
    match_columns(table, chosen.features, table)
    (chunk,) = table.chunks(chosen.features, chosen.kept)
    assert chunk.values.shape == (20, 2)


def test_wrong_names(table):
    with pytest.raises(TableError, match=r"has no column 'z'; its columns are .*; correct ids"):
        choose_columns(table, ids=["z"])
    with pytest.raises(TableError, match=r"'group' is not numeric; copy it .* labels=\['group'\]"):
        choose_columns(table)
    with pytest.raises(TableError, match="no column is left"):
        choose_columns(table, drop=[*"abcdef", "group"])


def test_values_that_no_row_has_are_answered_with_those_that_exist(table):
    selection = Selection(table, "background", "group", frozenset({"x", "z"}))
    with pytest.raises(TableError) as caught:
        list(selection.chunks(["a"], []))
    assert str(caught.value).endswith(
        "no row has 'z' in column 'group'; it has 2 values: 'y' (12 rows), 'x' (5 rows); correct "
        "background_values"
    )


def test_many_values_are_counted_and_a_few_listed(tmp_path):
    pd.DataFrame({"a": range(300), "id": [f"s{i}" for i in range(300)]}).to_csv(
        tmp_path / "t.csv", index=False
    )
    selection = Selection(open_table(tmp_path / "t.csv"), "target", "id", frozenset({"none"}))
    with pytest.raises(TableError, match=r"it has 300 values: ('s\d+' \(1 row\), ){8}\.\.\.;"):
        list(selection.chunks(["a"], []))


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.data())
def test_selected_rows_keep_their_problems(mask, data):
    bad = data.draw(st.dictionaries(st.integers(0, len(mask) - 1), st.text(max_size=3)))
    rows = np.arange(1, len(mask) + 1)
    chunk = Chunk(rows, 10 * rows, rows[:, None].astype(float), {}, bad)
    found = chunk.select_rows(np.array(mask))
    assert found.rows.tolist() == [int(row) for row, kept in zip(rows, mask, strict=True) if kept]
    assert {int(found.rows[i]) - 1: reason for i, reason in found.bad.items()} == {
        i: reason for i, reason in bad.items() if mask[i]
    }
