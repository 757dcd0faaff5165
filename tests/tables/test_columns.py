"""Roles of columns, the rows of each set, and columns that look like labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.tables import Chunk, TableError, open_table, reduce_tables, write_results


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


def test_values_that_no_row_has_are_answered_with_those_that_exist(tmp_path):
    table = pd.DataFrame({"a": range(20), "group": ["x"] * 5 + ["y"] * 12 + [None] * 3})
    table["id"] = [f"s{i}" for i in range(20)]
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(TableError) as caught:
        reduce_tables(tmp_path / "t.csv", split="group", background_values=["x", "z"], drop="id")
    assert str(caught.value).endswith(
        "no row has 'z' in column 'group'; it has 2 values: 'y' (12 rows), 'x' (5 rows); correct "
        "background_values"
    )
    with pytest.raises(TableError, match=r"it has 20 values: ('s\d+' \(1 row\), ){8}\.\.\.;"):
        reduce_tables(
            tmp_path / "t.csv", split="id", target_values="none", drop="group", method="pca"
        )


def test_columns_of_no_use(tmp_path):
    pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(TableError, match="no column is left"):
        reduce_tables(tmp_path / "t.parquet", method="pca", drop=["a", "b"])


def test_sparse_values_with_holes(tmp_path, rng):
    anndata = pytest.importorskip("anndata")
    X = rng.poisson(1.0, size=(30, 3)).astype(float)
    X[4, 1] = np.nan
    anndata.AnnData(sp.csr_matrix(X)).write_h5ad(tmp_path / "t.h5ad")
    found = reduce_tables(tmp_path / "t.h5ad", None, 1, method="pca", missing="zero")
    assert (found.target.counts.n_filled, found.target.counts.n_used) == (1, 30)
    np.testing.assert_allclose(found.target.mean, np.nan_to_num(X).mean(axis=0))
    found = reduce_tables(tmp_path / "t.h5ad", None, 1, method="pca", missing="drop")
    assert found.target.counts.n_used == 29
    (chunk,) = open_table(tmp_path / "t.h5ad").chunks(["0", "1", "2"], [])
    assert sp.issparse(chunk.values)


def label_notes(path, columns, folder):
    """Notes on columns that look like labels or row numbers."""
    np.save(path, columns)
    notes = write_results(reduce_tables(path, None, 1, method="pca"), folder).summary.notes()
    return [note.problem for note in notes if "is used as a feature" in note.problem]


def test_columns_that_look_like_labels_or_row_numbers(rng, tmp_path):
    columns = rng.normal(size=(500, 8))
    columns[:, 0] = np.arange(500) // 125  # classes, one after the other
    columns[:, 1] = np.arange(500)
    columns[:, 2] = rng.integers(0, 1000, 500)  # counts
    columns[:, 4] = rng.integers(20, 31, size=500)  # more than ten values are a measurement
    notes = label_notes(tmp_path / "t.npy", columns, tmp_path / "1")
    labelled = "'x0' is used as a feature, but has only 4 values, all whole numbers"
    assert notes == [labelled, "'x1' is used as a feature, but counts the rows"]
    columns[-1, 0], columns[-1, 1] = 0.5, 7  # one other row settles it
    assert label_notes(tmp_path / "t.npy", columns, tmp_path / "2") == []
    # A table of small counts is not one of labels.
    counts = rng.poisson(0.5, size=(300, 8)).astype(float)
    assert label_notes(tmp_path / "t.npy", counts, tmp_path / "3") == []
