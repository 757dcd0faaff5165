"""Rows from elsewhere: the same estimators as from NumPy."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pytest

from cpcapp import CPCA, CPCAPlusPlus, Moments
from cpcapp.moments.rows import NonFiniteError, TextColumnsError
from row_sources import NAMES, SOURCES, frame, rows, table


@pytest.fixture(params=SOURCES)
def make(request, tmp_path):
    return lambda X: SOURCES[request.param](X, tmp_path)


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
    for method in ("transform", "power", "denoise"):
        found = np.asarray(getattr(whole, method)(make(X)))
        np.testing.assert_allclose(found, getattr(whole, method)(X), rtol=1e-6, atol=1e-9)


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
    with pytest.raises(ValueError, match="column 0 is 'gene 11'"):
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


def test_components_are_counted_and_calibrated_by_the_rows_that_stay_at_hand():
    rng = np.random.default_rng(0)
    X, B = rng.normal(size=(3000, 6)) * [5, 1, 1, 1, 1, 1], rng.normal(size=(3000, 6))
    lazy = [da.from_array(rows, chunks=(700, 6)) for rows in (X, B)]
    fitted = CPCAPlusPlus("auto", calibrate=True).fit(lazy[0], background=lazy[1])
    assert fitted.n_components_ == fitted.permutation_test_.n_components == 1
    below = np.asarray(fitted.p_value(rng.normal(size=(4000, 6)))) <= 0.05
    assert below.mean() == pytest.approx(0.05, abs=0.02)


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


def test_weights_go_with_their_rows():
    X, weights = rows(0), np.random.default_rng(5).integers(0, 4, 900).astype(float)
    lazy = da.from_array(X, chunks=(100, 12))
    fitted = CPCAPlusPlus(1).fit(lazy, background=rows(1), sample_weight=weights)
    same = CPCAPlusPlus(1).fit(X, background=rows(1), sample_weight=weights)
    np.testing.assert_allclose(fitted.eigenvalues_, same.eigenvalues_, rtol=1e-8)


def test_what_can_not_be_read_is_an_error_of_one_line():
    fit = CPCAPlusPlus(1).fit
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
    with pytest.raises(ValueError, match="read in chunks: covariates, groups"):
        fit(lazy, background=rows(0), groups=np.arange(900), background_groups=np.arange(900))
    with pytest.raises(ValueError, match="background has 3 features"):
        fit(lazy, background=iter([np.ones((5, 3))]))
    fitted = fit(lazy)
    with pytest.raises(ValueError, match="holds no samples"):
        fitted.transform(iter([]))


def test_rows_of_large_chunks_count_as_many_as_they_are(monkeypatch):
    """Of each part of a stream a sample is kept, but the parts count by all of their rows."""
    monkeypatch.setattr("cpcapp.moments.reservoir.sample_size", lambda _: 200)
    rng = np.random.default_rng(0)
    X, B = rng.normal(size=(300, 2)) * [3.0, 1.0], rng.normal(size=(1800, 2))
    est = CPCAPlusPlus(1, calibrate=True, loading=0.1)
    est.partial_fit(X, background=iter([B[:900], B[900:]]), solve=False)
    est.partial_fit(background=rng.normal(size=(200, 2)) * 100.0)
    # Of 2000 rows 200 are far out; a row that is less so has most of these beyond it.
    assert 0.04 < est.p_value([[20.0, 0.0]])[0] < 0.17
