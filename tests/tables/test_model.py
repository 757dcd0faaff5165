"""Models of tables: what is written comes back, and other files are refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load, save

from cpcapp import CPCAPlusPlus
from cpcapp.splicing import ModelError
from cpcapp.splicing import load_model as load_localizer
from cpcapp.tables import TableError, TableModel, load_model, reduce_tables


@pytest.fixture
def model(rng):
    return TableModel(
        ["a", "b", "größe"],
        components=rng.normal(size=(2, 3)),
        atoms=rng.normal(size=(2, 3)),
        eigenvalues=np.array([3.0, 2.0]),
        mean=rng.normal(size=3),
        scale=rng.uniform(1, 2, 3),
        fill=rng.normal(size=3),
        standardize="each",
        missing="mean",
        info={"rows": 9},
    )


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_what_is_saved_comes_back(model, path):
    found = load_model(path)
    for name in ("features", "method", "standardize", "missing", "info", "n_components"):
        assert getattr(found, name) == getattr(model, name)
    for name in ("components", "atoms", "eigenvalues", "mean", "scale", "fill"):
        np.testing.assert_array_equal(getattr(found, name), getattr(model, name))


def test_scores_are_the_formula_dense_or_sparse(model, rng):
    X = rng.normal(size=(5, 3)) * (rng.random((5, 3)) < 0.5)
    expected = [model.components @ ((x - model.mean) / model.scale) for x in X]
    np.testing.assert_allclose(model.transform(X), expected)
    np.testing.assert_allclose(model.transform(sp.csr_array(X)), expected)


@pytest.fixture
def tables(rng, tmp_path):
    """Two arrays with means and scales of their own, and a third of new background rows."""
    mix = rng.normal(size=(6, 6))
    for name, n, width in (("t", 300, 3.0), ("b", 400, 1.0), ("new", 4000, 1.0)):
        wide = rng.normal(size=(n, 6)) * [width, width, 1, 1, 1, 1]
        np.save(tmp_path / f"{name}.npy", wide @ mix + 5.0 * (name == "t"))
    return tmp_path


def reduce(tables, **options):
    return reduce_tables(tables / "t.npy", tables / "b.npy", 2, **options)


def test_power_and_p_value_are_those_of_the_estimator(tables):
    X, B, new = (np.load(tables / f"{name}.npy") for name in ("t", "b", "new"))
    estimator = CPCAPlusPlus(2).fit(X, background=B)
    reduce(tables).model.save(tables / "m")
    found = load_model(tables / "m")
    np.testing.assert_allclose(found.power(new), estimator.power(new), rtol=1e-8)
    np.testing.assert_allclose(found.p_value(new), estimator.p_value(new), rtol=1e-6)
    np.testing.assert_allclose(found.power(sp.csr_array(new)), estimator.power(new), rtol=1e-8)


@pytest.mark.parametrize("standardize", ["none", "each", "background"])
def test_p_values_of_new_background_rows_are_uniform(tables, standardize):
    model = reduce(tables, standardize=standardize).model
    p = model.p_value(np.load(tables / "new.npy"))
    for level in (0.05, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=0.05)


def test_p_values_are_shares_of_held_out_rows_where_there_are_such(tables):
    model = replace(reduce(tables).model, calibration=np.array([1.0, 2.0, 2.0, 5.0]))
    expected = model.output_covariance.trace()
    found = model.power_p_value(np.array([0.0, 0.9, 1.9, 3.0, 9.0]) * expected)
    np.testing.assert_allclose(found, [1.0, 1.0, 0.8, 0.4, 0.2])
    model.save(tables / "m")
    np.testing.assert_array_equal(load_model(tables / "m").calibration, [1, 2, 2, 5])


@pytest.mark.parametrize("method", ["cpca", "pca"])
def test_other_methods_have_no_power(tables, method):
    model = reduce(tables, method=method).model
    assert not model.has_power
    with pytest.raises(TableError, match=f"model of {method} has no background"):
        model.power(np.zeros((1, 6)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"background_mean": None}, "but no background_mean"),
        ({"output_covariance": np.zeros((2, 2))}, "positive trace"),
        ({"output_covariance": np.eye(3)}, "its output_covariance are float64 of shape"),
        ({"background_scale": np.zeros(6)}, "its background_scale must be at least 1e-160"),
        ({"calibration": np.array([2.0, 1.0])}, "must be ascending"),
        ({"calibration": np.zeros(10_001)}, r"calibration are float64 of shape \(10001,\)"),
    ],
)
def test_backgrounds_that_can_not_be(tables, change, message):
    replace(reduce(tables).model, **change).save(tables / "m")
    with pytest.raises(TableError, match=message):
        load_model(tables / "m")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_cut_off(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(TableError, match="is not a model of cpcapp reduce: ") as caught:
        load_model(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": ["a", "b", "a"]}, "two of its features have the same name"),
        ({"features": ["a", "b"]}, r"its components are float64 of shape \(2, 3\), not"),
        ({"features": "abc"}, "not a list of names"),
        ({"missing": "guess"}, "missing='guess' must be one of"),
        ({"scale": np.zeros(3)}, "its scale must be at least 1e-160"),
        ({"scale": np.full(3, 1e-308)}, "its scale must be at least 1e-160"),
        ({"mean": np.full(3, np.nan)}, "its mean must be finite"),
        ({"fill": np.full(3, -1e308)}, r"its fill must lie within ±1e\+160"),
        ({"mean": np.full(3, 1e150), "scale": np.full(3, 1e-159)}, "its numbers are so large"),
        ({"components": np.full((2, 3), 1e308)}, r"its components must lie within ±1e\+160"),
        ({"eigenvalues": np.ones(3)}, r"its components are float64 of shape \(2, 3\), not"),
        ({"atoms": np.ones((3, 2))}, r"its atoms are float64 of shape \(3, 2\), not"),
        ({"eigenvalues": np.float64(1.0)}, "is not a model"),
        ({"mean": np.zeros(3, dtype=np.float32)}, "its mean are float32"),
        ({"info": 3}, "not a JSON object"),
    ],
)
def test_models_that_can_not_be(model, path, change, message):
    replace(model, **change).save(path)
    with pytest.raises(TableError, match=message):
        load_model(path)


@pytest.mark.parametrize("unit", [1e-149, 1e149])
def test_models_of_very_small_and_very_large_units(unit, tmp_path, rng):
    X = rng.normal(size=(60, 3)) * [1, 2, 3] * unit
    np.save(tmp_path / "t.npy", X)
    reduced = reduce_tables(tmp_path / "t.npy", None, 2, method="pca")
    reduced.model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(X), reduced.model.transform(X))


@pytest.mark.parametrize(
    ("version", "advice"),
    [(0, "make it again from its data"), (2, "install a newer cpcapp"), ("x", "make it again")],
)
def test_a_file_of_another_version_says_what_to_do(path, version, advice):
    header = {"format": "cpcapp-table-model", "format_version": version}
    path.write_bytes(save(load(path.read_bytes()), metadata={"cpcapp": json.dumps(header)}))
    with pytest.raises(
        TableError, match=f"format is version {version!r}.*reads version 1; {advice}"
    ):
        load_model(path)


def test_files_of_another_kind(path, tmp_path):
    with pytest.raises(ModelError, match="another kind of file of this package: 'cpcapp-table"):
        load_localizer(path)
    data = load(path.read_bytes())
    path.write_bytes(save(data, metadata={"cpcapp": json.dumps({"format": "x"})}))
    with pytest.raises(TableError, match="no header of this package"):
        load_model(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(TableError, match="is not a model"):
        load_model(path)
    with pytest.raises(TableError, match="there is no model file"):
        load_model(tmp_path / "none")
