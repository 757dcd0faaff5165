"""Missing values and bad rows: counted, filled in or left out, and named by position."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cpcapp.tables import Chunk
from cpcapp.tables.cleaning import Cleaner

VALUES = arrays(
    float,
    st.tuples(st.integers(1, 12), st.integers(1, 4)),
    elements=st.sampled_from([0.0, 1.5, -2.0, np.nan, np.inf]),
)


def clean(values, rule, fill=None):
    cleaner = Cleaner(rule, fill, skip_bad_rows=True)
    rows = np.arange(1, values.shape[0] + 1)
    names = [f"x{i}" for i in range(values.shape[1])]
    chunks = list(cleaner.clean(iter([Chunk(rows, rows, values, {})]), names))
    return (chunks[0] if chunks else None), cleaner.counts


@given(VALUES, st.sampled_from(["error", "zero", "mean", "drop"]))
def test_what_is_left_is_finite_and_all_rows_are_counted(values, rule):
    fill = np.arange(values.shape[1], dtype=float)
    chunk, counts = clean(values, rule, fill)
    infinite, missing = np.isinf(values).any(axis=1), np.isnan(values)
    usable = ~infinite
    if rule in ("error", "drop"):
        usable &= ~missing.any(axis=1)
    assert counts.n_rows == len(values)
    assert counts.n_used == usable.sum()
    assert counts.n_bad == infinite.sum()
    assert counts.n_missing == missing[~infinite].sum()
    if chunk is None:
        assert not usable.any()
        return
    expected = np.where(missing, fill if rule == "mean" else 0.0, values)[usable]
    np.testing.assert_array_equal(chunk.values, expected)
    assert chunk.rows.tolist() == (np.flatnonzero(usable) + 1).tolist()


def test_sparse_values_stay_sparse_unless_some_are_missing():
    values = sp.csr_array(np.array([[0.0, 1.0], [2.0, 0.0]]))
    chunk, _ = clean(values, "error")
    assert sp.issparse(chunk.values)
    values.data[0] = np.nan
    chunk, counts = clean(values, "zero")
    np.testing.assert_array_equal(chunk.values, [[0.0, 0.0], [2.0, 0.0]])
    assert counts.n_filled == 1
