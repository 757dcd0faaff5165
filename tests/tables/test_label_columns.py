"""Which columns look like labels, however the rows are cut into chunks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp.tables.label_columns import LabelColumnFinder


def seen(table, step=None):
    found = LabelColumnFinder([f"x{i}" for i in range(table.shape[1])])
    for start in range(0, len(table), step or len(table)):
        found.update(table[start : start + (step or len(table))])
    return found


@pytest.fixture
def table(rng):
    columns = rng.normal(size=(500, 8))
    columns[:, 0] = np.arange(500) // 125  # classes, one after the other
    columns[:, 1] = np.arange(500)
    columns[:, 2] = rng.integers(0, 1000, 500)  # counts
    columns[:, 3] = 1.0
    return columns


@pytest.mark.parametrize("step", [None, 1, 7, 125, 499])
def test_chunks_do_not_matter(table, step):
    found = seen(table, step)
    assert found.labels == {"x0": 4}
    assert found.row_numbers == ["x1"]


@pytest.mark.parametrize("step", [None, 7])
def test_one_other_row_settles_it(table, step):
    table[-1, 0], table[-1, 1] = 0.5, 7
    found = seen(table, step)
    assert found.labels == {}
    assert found.row_numbers == []


def test_a_table_of_small_counts_is_not_a_table_of_labels(rng):
    counts = rng.poisson(0.5, size=(300, 8)).astype(float)
    assert seen(counts).labels == {}
    assert seen(np.column_stack([rng.normal(size=(300, 2)), counts[:, :1]])).labels != {}


def test_more_than_ten_values_are_a_measurement(rng):
    ages = rng.integers(20, 31, size=(900, 1)).astype(float)
    assert len(np.unique(ages)) == 11
    assert seen(np.column_stack([rng.normal(size=(900, 3)), ages])).labels == {}


def test_sparse_rows(rng):
    found = LabelColumnFinder(["a", "b"])
    found.update(sp.csr_array(rng.integers(0, 2, size=(20, 2)).astype(float)))
    assert (found.labels, found.row_numbers) == ({}, [])
