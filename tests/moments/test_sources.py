"""Rows from elsewhere: the same moments as from NumPy."""

from __future__ import annotations

import pickle

import dask.array as da
import h5py
import numpy as np
import pyarrow as pa
import pytest
import zarr

from cpcapp import Moments
from cpcapp.moments.rows import NonFiniteError, TextColumnsError
from cpcapp.moments.sources import kind_of, row_chunks
from row_sources import SOURCES, Cupy, frame, rows


@pytest.fixture(params=SOURCES)
def make(request, tmp_path):
    return lambda X: SOURCES[request.param](X, tmp_path)


def test_moments_are_those_of_numpy(make):
    X = rows(0)
    found = Moments.of(make(X))
    assert found.n_samples == len(X)
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-12)
    expected = np.cov(X.T, ddof=0)
    np.testing.assert_allclose(found.covariance(), expected, atol=1e-8, rtol=1e-8)
    twice = Moments().update(X).update(make(X))
    assert twice.n_samples == 2 * len(X)
    np.testing.assert_allclose(twice.covariance(), expected, atol=1e-8, rtol=1e-8)


def test_weights_go_with_their_rows(tmp_path):
    X, weights = rows(0), np.random.default_rng(5).integers(0, 4, 900).astype(float)
    expected = Moments.of(X, sample_weight=weights)
    for name in ("dask array", "dask dataframe", "h5py chunks", "zarr", "arrow table"):
        found = Moments.of(SOURCES[name](X, tmp_path), sample_weight=weights)
        np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-8, atol=1e-8)
        assert found.total_weight == pytest.approx(weights.sum())
        with pytest.raises(ValueError, match="sample_weight has shape"):
            Moments.of(SOURCES[name](X, tmp_path), sample_weight=weights[:-1])
    lazy = da.from_array(X, chunks=(100, 12))
    found = Moments.of(lazy, sample_weight=da.from_array(weights, chunks=70))
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-8, atol=1e-8)


def test_sparse_blocks_stay_sparse():
    import scipy.sparse as sp

    dense = np.random.default_rng(0).poisson(0.1, size=(600, 12)).astype(float)
    lazy = da.from_array(dense, chunks=(200, 12)).map_blocks(sp.csr_matrix)
    found = Moments.of(lazy)
    np.testing.assert_allclose(found.covariance(), np.cov(dense.T, ddof=0), atol=1e-12)


def test_large_chunks_on_disk_are_read_once_and_in_parts(tmp_path, monkeypatch):
    """Each read ends where a stored chunk ends, and holds a limited number of values."""
    monkeypatch.setattr("cpcapp.moments.sources._VALUES", 12 * 100)
    monkeypatch.setattr("cpcapp.moments.sources._MOST_VALUES", 12 * 200)
    sizes = {"chunks": [70] * 12 + [60], "contiguous": [100] * 9, "columns": [100] * 9}
    for name, expected in sizes.items():
        data = SOURCES[f"h5py {name}"](rows(0), tmp_path)
        assert [len(chunk) for chunk in row_chunks(data)] == expected


def test_bad_values_are_named(tmp_path):
    bad = rows(0)
    bad[5, 3] = np.nan
    for name in ("dask dataframe", "arrow table", "zarr"):
        with pytest.raises(NonFiniteError, match="NaN or infinity in column 3"):
            Moments.of(SOURCES[name](bad, tmp_path))
    text = frame(rows(0)).assign(batch="a")
    for X in (text, pa.Table.from_pandas(text)):
        with pytest.raises(TextColumnsError, match=r"has 1 column of text.* 'batch'"):
            Moments.of(X)


def test_what_can_not_be_read_is_an_error_of_one_line(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file, pytest.raises(ValueError, match="a group"):
        Moments.of(file)
    with pytest.raises(ValueError, match=r"this one is of shape \(3,\)"):
        Moments.of(zarr.create_array(tmp_path / "z", data=np.ones(3)))
    with pytest.raises(ValueError, match="is no table of rows"):
        Moments.of(da.ones(5))
    with pytest.raises(ValueError, match="has no columns; give a Table"):
        Moments.of(pa.array([1.0, 2.0]))


def test_errors_of_workers_keep_their_text():
    error = NonFiniteError(np.array([2]), ["a", "b", "c"], source="X")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is NonFiniteError
    assert str(found) == str(error) and found.columns.tolist() == [2]


def test_cupy_arrays_are_fetched_in_chunks(monkeypatch):
    monkeypatch.setattr("cpcapp.moments.sources._VALUES", 12 * 100)
    X = rows(0)
    assert kind_of(Cupy(X)) == "cupy"
    assert [len(chunk) for chunk in row_chunks(Cupy(X))] == [100] * 9
