"""A bounded sample of rows: every row as likely, whatever kind of rows it comes from."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp.moments import Moments, Reservoir, add_up


def numbered(n, m=3):
    """Rows that begin with their own number."""
    rows = np.random.default_rng(0).normal(size=(n, m))
    rows[:, 0] = np.arange(n)
    return rows


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_all_rows_in_their_order(rng, kind):
    rows = rng.normal(size=(900, 3))
    sample = Reservoir(900)
    for start in range(0, 900, 250):
        sample.update(kind(rows[start : start + 250]))
    found = sample.rows()
    assert sample.n_seen == 900 and sample.weights() is None
    np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, rows)
    np.testing.assert_array_equal(sample.index(), np.arange(900))


@pytest.mark.parametrize("step", [7, 700, 60_000])
def test_every_row_is_as_likely(step):
    """Wherever it stands, and however the rows are divided into chunks."""
    rows = np.arange(60_000.0)[:, None]
    sample = Reservoir(5000)
    for start in range(0, len(rows), step):
        sample.update(rows[start : start + step])
    found = sample.rows()[:, 0]
    assert len(found) == len(set(found)) == 5000
    assert sample.n_seen == 60_000
    # means of 5000 uniform numbers: standard error 60,000/√(12·5000) = 245
    assert found.mean() == pytest.approx(30_000, abs=1000)
    assert (found < 30_000).mean() == pytest.approx(0.5, abs=0.03)


def test_a_chunk_may_be_overwritten():
    buffer = np.ones((4, 2))
    sample = Reservoir(10)
    sample.update(buffer)
    buffer[:] = 7.0
    assert (sample.rows() == 1.0).all()


def test_weights_go_along_and_rows_of_weight_0_never_come():
    rows, weights = numbered(3000), np.arange(3000.0) % 3
    rows[0] = np.nan
    sample = Reservoir(500)
    moments = add_up(rows, weights, reservoir=sample)
    assert moments.total_weight == weights.sum() and sample.n_seen == 2000
    np.testing.assert_array_equal(sample.rows()[:, 0], sample.index())
    np.testing.assert_array_equal(sample.weights(), weights[sample.index()])
    assert (sample.weights() > 0.0).all()


SOURCES = {
    "array": lambda rows: rows,
    "sparse": sp.csr_array,
    "chunks": lambda rows: iter(np.array_split(rows, 9)),
    "dask": lambda rows: da.from_array(rows, chunks=(170, 2)),
    "dask of unknown sizes": lambda rows: (x := da.from_array(rows, chunks=(400, 3)))[x[:, 0] >= 0],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("max_rows", [100, 5000])
def test_one_pass_gives_moments_and_sample(source, max_rows):
    rows = numbered(4000)
    samples = [Reservoir(max_rows, seed=5) for _ in range(2)]
    found = [add_up(SOURCES[source](rows), reservoir=sample) for sample in samples]
    np.testing.assert_allclose(found[0].covariance(), Moments.of(rows).covariance(), rtol=1e-12)
    index = samples[0].index()
    assert len(index) == min(max_rows, 4000) and (np.diff(index) > 0).all()
    kept = samples[0].rows()
    np.testing.assert_array_equal(kept.toarray() if sp.issparse(kept) else kept, rows[index])
    np.testing.assert_array_equal(samples[1].index(), index)  # by the seed
    other = Reservoir(max_rows, seed=6)
    add_up(SOURCES[source](rows), reservoir=other)
    assert (len(other.index()) == 4000) or (other.index() != index).any()


def test_the_bound_is_64_mb_unless_given():
    sample = Reservoir()
    sample.update(np.ones((1, 4096)))
    assert sample.max_rows == 2048


def test_no_rows():
    with pytest.raises(ValueError, match="no rows have been added"):
        Reservoir(5).rows()
