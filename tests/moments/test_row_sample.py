from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp.moments.row_sample import RowSample
from cpcapp.tables import reduce_tables


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_all_rows_in_their_order(rng, kind):
    rows = rng.normal(size=(900, 3))
    sample = RowSample(3)
    for start in range(0, 900, 250):
        sample.update(kind(rows[start : start + 250]))
    found = sample.rows()
    assert sample.is_complete
    np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, rows)


def test_every_row_is_as_likely(rng):
    """Wherever it stands, and however the table is divided into chunks."""
    rows = np.arange(60_000.0)[:, None]
    for step in (700, 60_000):
        sample = RowSample(1)
        for start in range(0, len(rows), step):
            sample.update(rows[start : start + step])
        found = sample.rows()[:, 0]
        assert len(found) == len(set(found)) == 5000 == sample.max_rows
        assert not sample.is_complete
        # means of 5000 uniform numbers: standard error 60,000/√(12·5000) = 245
        assert found.mean() == pytest.approx(30_000, abs=1000)
        assert (found < 30_000).mean() == pytest.approx(0.5, abs=0.03)


def test_wide_tables_keep_fewer():
    assert [RowSample(p).max_rows for p in (10, 1000, 50_000)] == [5000, 1048, 500]


def test_a_chunk_may_be_overwritten():
    buffer = np.ones((4, 2))
    sample = RowSample(2)
    sample.update(buffer)
    buffer[:] = 7.0
    assert (sample.rows() == 1.0).all()


def test_the_summary_says_that_it_is_a_sample(rng, tmp_path):
    X, B = rng.normal(size=(6000, 3)) * [3, 1, 1], rng.normal(size=(7000, 3))
    np.save(tmp_path / "t.npy", X)
    np.save(tmp_path / "b.npy", B)
    found = reduce_tables(tmp_path / "t.npy", tmp_path / "b.npy", "auto")
    assert found.n_significant == 1
    said = "permutation test of 5,000 + 5,000 rows drawn at random"
    assert found.significance.describe() == said
    assert len(found.model.calibration) == 5000
    new = rng.normal(size=(4000, 3))
    assert (found.model.p_value(new) <= 0.05).mean() == pytest.approx(0.05, abs=0.02)
