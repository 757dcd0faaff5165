"""Rows from elsewhere: the same moments and the same estimators as from NumPy."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import zarr

from cpcapp import CPCA, CPCAPlusPlus, Moments
from cpcapp.moments.rows import NonFiniteError, TextColumnsError
from cpcapp.moments.sources import kind_of, row_chunks

NAMES = [f"gene {i}" for i in range(12)]


def rows(seed, n=900):
    """Rows with a mean that would cancel all digits of a naive sum of squares."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 12)) * np.r_[1.0 + 3.0 * seed, np.ones(11)] + 1e6


def frame(X):
    return pd.DataFrame(X, columns=NAMES)


def table(X):
    return pa.table(dict(zip(NAMES, X.T, strict=True)))


def h5py_dataset(X, folder, **layout):
    file = h5py.File(Path(tempfile.mkdtemp(dir=folder)) / "rows.h5", "w")
    return file.create_dataset("rows", data=X, **layout)


def parquet_folder(X, folder):
    folder = Path(tempfile.mkdtemp(dir=folder))
    for number, part in enumerate(np.array_split(X, 3)):
        pq.write_table(table(part), folder / f"{number}.parquet")
    return folder


def tensor(X, **options):
    return pytest.importorskip("torch", reason="needs the extra torch").tensor(X, **options)


SOURCES = {
    "dask array": lambda X, folder: da.from_array(X, chunks=(100, 5)),
    "dask array of unknown sizes": lambda X, folder: (x := da.from_array(X, chunks=(90, 12)))[
        x[:, 0] > -np.inf
    ],
    "dask dataframe": lambda X, folder: dd.from_pandas(frame(X), npartitions=4),
    "h5py chunks": lambda X, folder: h5py_dataset(X, folder, chunks=(70, 5), compression="gzip"),
    "h5py contiguous": h5py_dataset,
    "h5py columns": lambda X, folder: h5py_dataset(X, folder, chunks=(len(X), 1)),
    "zarr": lambda X, folder: zarr.create_array(
        tempfile.mkdtemp(dir=folder), data=X, chunks=(70, 5), overwrite=True
    ),
    "arrow table": lambda X, folder: table(X),
    "arrow reader": lambda X, folder: table(X).to_reader(max_chunksize=100),
    "arrow batch": lambda X, folder: table(X).to_batches()[0],
    "arrow data set": lambda X, folder: ds.dataset(parquet_folder(X, folder)),
    "parquet file": lambda X, folder: pq.ParquetFile(
        pa.BufferReader((s := pa.BufferOutputStream(), pq.write_table(table(X), s))[0].getvalue())
    ),
    "generator": lambda X, folder: (part for part in np.array_split(X, 7)),
    "iterator of batches": lambda X, folder: iter(table(X).to_batches(max_chunksize=99)),
    "iterator of tensors": lambda X, folder: iter(tensor(X).split(64)),
    "tensor": lambda X, folder: tensor(X, requires_grad=True),
}


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


def test_fit_gives_the_estimator_of_numpy(make):
    X, B = rows(1), rows(0, 1300)
    expected = CPCAPlusPlus(2).fit(X, background=B)
    found = CPCAPlusPlus(2).fit(make(X), background=make(B))
    for name in ("components_", "atoms_", "eigenvalues_", "mean_", "background_mean_"):
        value = getattr(found, name)
        assert type(value) is np.ndarray
        np.testing.assert_allclose(value, getattr(expected, name), rtol=1e-7, atol=1e-8)
    assert found.n_samples_seen_ == (900, 1300)
    assert found.n_features_in_ == 12
    # One side may be of another kind.
    mixed = CPCAPlusPlus(2).fit(X, background=make(B))
    np.testing.assert_allclose(mixed.eigenvalues_, expected.eigenvalues_, rtol=1e-8)
    mixed = CPCAPlusPlus(2).fit(make(X), background=B)
    np.testing.assert_allclose(mixed.eigenvalues_, expected.eigenvalues_, rtol=1e-8)


def test_partial_fit_and_results_of_each_row(make):
    X, B = rows(1), rows(0)
    whole = CPCAPlusPlus(2).fit_moments(Moments.of(X), Moments.of(B))
    parts = CPCAPlusPlus(2).partial_fit(background=make(B)).partial_fit(make(X))
    np.testing.assert_allclose(parts.components_, whole.components_, rtol=1e-7, atol=1e-9)
    for method in ("transform", "power", "p_value", "denoise"):
        found = np.asarray(getattr(whole, method)(make(X)))
        np.testing.assert_allclose(found, getattr(whole, method)(X), rtol=1e-6, atol=1e-9)


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
    fitted = CPCAPlusPlus(1).fit(lazy, background=rows(1), sample_weight=weights)
    same = CPCAPlusPlus(1).fit(X, background=rows(1), sample_weight=weights)
    np.testing.assert_allclose(fitted.eigenvalues_, same.eigenvalues_, rtol=1e-8)


@pytest.mark.parametrize("form", ["dask", "arrow"])
def test_names_of_columns_are_kept_and_compared(form):
    make = table if form == "arrow" else lambda X: dd.from_pandas(frame(X), npartitions=2)
    fitted = CPCAPlusPlus(1).fit(make(rows(1)), background=make(rows(0)))
    assert fitted.feature_names_in_.tolist() == NAMES
    # Neither a warning nor an error with the same names.
    expected = fitted.transform(frame(rows(1)))
    np.testing.assert_allclose(np.asarray(fitted.transform(make(rows(1)))), expected)
    other = make(rows(1)).rename_columns(NAMES[::-1]) if form == "arrow" else None
    if other is None:
        other = make(rows(1))[NAMES[::-1]]
    with pytest.raises(ValueError, match=r"column 0 is 'gene 11', but it was 'gene 0'"):
        fitted.transform(other)
    with pytest.raises(ValueError, match="background must have the feature names"):
        CPCAPlusPlus(1).fit(make(rows(1)), background=other)


def test_dask_stays_lazy_and_in_its_blocks():
    computed = []

    def count(block):
        computed.append(len(block))
        return block

    X = rows(1)
    fitted = CPCAPlusPlus(2).fit(X, background=rows(0))
    lazy = da.from_array(X, chunks=(250, 12)).map_blocks(count, meta=np.empty((0, 0)))
    scores = fitted.transform(lazy)
    powers = fitted.power(lazy)
    assert computed == []
    assert scores.chunks == ((250, 250, 250, 150), (2,))
    assert powers.chunks == ((250, 250, 250, 150),)
    expected = fitted.transform(X)
    fitted.fit(rows(3), background=rows(0))  # what was asked for stays as it was
    np.testing.assert_allclose(scores.compute(), expected, rtol=1e-9)
    assert scores.astype(np.float32).dtype == np.float32
    single = fitted.transform(da.from_array(X.astype(np.float32)))
    assert single.dtype == single.compute().dtype == np.float32


def test_empty_partitions_of_a_filtered_dataframe():
    everything = dd.from_pandas(frame(rows(1)), npartitions=4)
    few = everything.loc[:299]
    few = dd.concat([few, everything.query("`gene 0` < 0")])
    fitted = CPCAPlusPlus(1).fit(few, background=everything)
    assert fitted.n_samples_seen_ == (300, 900)
    assert fitted.transform(few).compute().shape == (300, 1)


def test_sparse_blocks_stay_sparse():
    import scipy.sparse as sp

    dense = np.random.default_rng(0).poisson(0.1, size=(600, 12)).astype(float)
    lazy = da.from_array(dense, chunks=(200, 12)).map_blocks(sp.csr_matrix)
    found = Moments.of(lazy)
    np.testing.assert_allclose(found.covariance(), np.cov(dense.T, ddof=0), atol=1e-12)


def test_cpca_takes_them_too():
    X, B = rows(1), rows(0)
    found = CPCA(1, alpha=2.0).fit(da.from_array(X), background=iter([B[:400], B[400:]]))
    expected = CPCA(1, alpha=2.0).fit(X, background=B)
    np.testing.assert_allclose(found.components_, expected.components_, atol=1e-8)
    assert np.asarray(found.transform(da.from_array(X))).shape == (900, 1)


def test_several_backgrounds():
    X, first, second = rows(2), rows(0), rows(1)
    lazy = [da.from_array(first), table(second)]
    found = CPCAPlusPlus(1).fit(da.from_array(X), background=lazy)
    expected = CPCAPlusPlus(1).fit(X, background=[first, second])
    np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-8)
    assert found.background_weights_.tolist() == [0.5, 0.5]


def test_without_rows_components_are_counted_by_the_law_of_noise():
    rng = np.random.default_rng(0)
    X, B = rng.normal(size=(3000, 6)) * [5, 1, 1, 1, 1, 1], rng.normal(size=(3000, 6))
    fitted = CPCAPlusPlus("auto").fit(da.from_array(X), background=da.from_array(B))
    assert fitted.n_components_ == 1
    assert fitted.permutation_test_ is None and fitted.smallest_p_value_ is None
    with pytest.raises(ValueError, match="must permute the samples"):
        CPCAPlusPlus("permutation").fit(da.from_array(X), background=da.from_array(B))


def test_large_chunks_on_disk_are_read_once_and_in_parts(tmp_path, monkeypatch):
    """Each read ends where a stored chunk ends, and holds a limited number of values."""
    monkeypatch.setattr("cpcapp.moments.sources._VALUES", 12 * 100)
    monkeypatch.setattr("cpcapp.moments.sources._MOST_VALUES", 12 * 200)
    sizes = {"chunks": [70] * 12 + [60], "contiguous": [100] * 9, "columns": [100] * 9}
    for name, expected in sizes.items():
        data = SOURCES[f"h5py {name}"](rows(0), tmp_path)
        assert [len(chunk) for chunk in row_chunks(data)] == expected


def test_bad_values_are_named():
    bad = frame(rows(0))
    bad.iloc[5, 3] = np.nan
    for X in (dd.from_pandas(bad, npartitions=3), pa.Table.from_pandas(bad)):
        with pytest.raises(NonFiniteError, match="X contains NaN or infinity in column 'gene 3'"):
            CPCAPlusPlus(1).fit(X)
    text = frame(rows(0)).assign(batch="a")
    for X in (dd.from_pandas(text, npartitions=3), pa.Table.from_pandas(text)):
        with pytest.raises(TextColumnsError, match=r"X has 1 column of text.* 'batch'"):
            CPCAPlusPlus(1).fit(X)


def test_what_can_not_be_read_is_an_error_of_one_line(tmp_path):
    fit = CPCAPlusPlus(1).fit
    with h5py.File(tmp_path / "a.h5", "w") as file, pytest.raises(ValueError, match="a group"):
        Moments.of(file)
    with pytest.raises(ValueError, match=r"this one is of shape \(3,\)"):
        Moments.of(zarr.create_array(tmp_path / "z", data=np.ones(3)))
    with pytest.raises(ValueError, match="is no table of rows"):
        fit(da.ones(5))
    with pytest.raises(ValueError, match="has no columns; give a Table"):
        fit(pa.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="X holds 0 samples"):
        fit(iter([]))
    with pytest.raises(ValueError, match="X holds 1 samples"):
        fit(iter([np.ones((1, 3))]))
    lazy = da.from_array(rows(1))
    with pytest.raises(ValueError, match="a Dask collection, which is read in chunks"):
        fit(lazy, is_background=np.arange(900) > 300)
    with pytest.raises(ValueError, match="an X that is read in chunks"):
        fit(lazy, background=rows(0), groups=np.arange(900))
    with pytest.raises(ValueError, match="background has 3 features"):
        fit(lazy, background=iter([np.ones((5, 3))]))
    fitted = fit(lazy)
    with pytest.raises(ValueError, match="holds no samples"):
        fitted.transform(iter([]))


def test_errors_of_workers_keep_their_text():
    error = NonFiniteError(np.array([2]), ["a", "b", "c"], source="X")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is NonFiniteError
    assert str(found) == str(error) and found.columns.tolist() == [2]


class _Array:
    """Stands for a CuPy array, which needs a GPU: its rows come to NumPy by ``get``."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __len__(self):
        return len(self.values)

    def __getitem__(self, part):
        return _Array(self.values[part])

    def get(self):
        return self.values


def test_cupy_arrays_are_fetched_in_chunks(monkeypatch):
    monkeypatch.setattr(_Array, "__module__", "cupy")
    monkeypatch.setattr("cpcapp.moments.sources._VALUES", 12 * 100)
    X = rows(0)
    assert kind_of(_Array(X)) == "cupy"
    assert [len(chunk) for chunk in row_chunks(_Array(X))] == [100] * 9
    found = CPCAPlusPlus(1).fit(_Array(rows(1)), background=_Array(X))
    expected = CPCAPlusPlus(1).fit(rows(1), background=X)
    np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
