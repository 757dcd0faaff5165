"""Models of tables: what is written comes back, and other files are refused in one line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors import safe_open
from safetensors.numpy import load, save

from cpcapp import CPCAPlusPlus
from cpcapp.splicing import ModelError
from cpcapp.splicing import load_model as load_localizer
from cpcapp.tables import TableError, load_model, reduce_tables

ARRAYS = ("components", "atoms", "eigenvalues", "scale", "fill")


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


@pytest.fixture
def model(tables):
    return reduce(tables, standardize="each", missing="mean").model


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_what_is_saved_comes_back(model, path, rng):
    found, X = load_model(path), rng.normal(size=(9, 6))
    for name in ("features", "method", "standardize", "missing", "info", "n_components"):
        assert getattr(found, name) == getattr(model, name)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(found, name), getattr(model, name))
    for name in ("transform", "power", "p_value"):
        np.testing.assert_allclose(getattr(found, name)(X), getattr(model, name)(X), rtol=1e-12)


def test_scores_are_the_formula_dense_or_sparse(model, tables, rng):
    X = rng.normal(size=(5, 6)) * (rng.random((5, 6)) < 0.5)
    mean = np.load(tables / "t.npy").mean(axis=0)
    expected = [model.components @ ((x - mean) / model.scale) for x in X]
    np.testing.assert_allclose(model.transform(X), expected)
    np.testing.assert_allclose(model.transform(sp.csr_array(X)), expected)


def test_power_and_p_value_are_those_of_the_estimator(tables):
    X, B, new = (np.load(tables / f"{name}.npy") for name in ("t", "b", "new"))
    estimator = CPCAPlusPlus(2, calibrate=True).fit(X, background=B)
    model = reduce(tables).model
    np.testing.assert_allclose(model.power(new), estimator.power(new), rtol=1e-8)
    np.testing.assert_allclose(model.p_value(new), estimator.p_value(new), rtol=1e-6)
    np.testing.assert_allclose(model.power(sp.csr_array(new)), estimator.power(new), rtol=1e-8)


@pytest.mark.parametrize("standardize", ["each", "background"])
def test_p_values_of_new_background_rows_are_uniform(tables, standardize):
    model = reduce(tables, standardize=standardize).model
    p = model.p_value(np.load(tables / "new.npy"))
    for level in (0.05, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=0.05)


def test_models_of_earlier_versions_are_read(path, model, rng):
    """They have powers as shares of the power to expect, and no contrast."""
    tensors, X = load(path.read_bytes()), rng.normal(size=(9, 6))
    header = safe_open(path, "np").metadata()
    powers = tensors.pop("powers")
    for name in ("power_weights", "contrast"):
        del tensors[name]
    tensors |= {"calibration": powers / 4.0, "output_covariance": np.diag([3.0, 1.0])}
    path.write_bytes(save(tensors, metadata=header))
    np.testing.assert_allclose(load_model(path).p_value(X), model.p_value(X))
    for name in ("background_mean", "background_scale", "calibration", "output_covariance"):
        del tensors[name]
    path.write_bytes(save(tensors, metadata=header))
    assert not load_model(path).has_power


@pytest.mark.parametrize("method", ["cpca", "pca"])
def test_other_methods_have_no_power(tables, method):
    model = reduce(tables, method=method).model
    assert not model.has_power
    with pytest.raises(TableError, match=f"model of {method} has no background"):
        model.power(np.zeros((1, 6)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": ["a"] * 6}, "two of its features have the same name"),
        ({"features": ["a", "b"]}, r"its components are float64 of shape \(2, 6\), not"),
        ({"features": "abc"}, "not a list of names"),
        ({"missing": "guess"}, "'guess' is not known; missing must be one of"),
        ({"facts": 3}, "not a JSON object"),
        ({"scale": np.zeros(6)}, "its scale must be above 0"),
        ({"mean": np.full(6, np.nan)}, "its mean must be finite"),
        ({"fill": np.full(6, -1e308)}, "its numbers are so large"),
        ({"mean": np.full(6, 1e150), "scale": np.full(6, 1e-159)}, "its numbers are so large"),
        ({"components": np.full((2, 6), 1e308)}, "its numbers are so large"),
        ({"eigenvalues": np.ones(3)}, r"its components are float64 of shape \(2, 6\), not"),
        ({"atoms": np.ones((6, 2))}, r"its atoms are float64 of shape \(6, 2\), not"),
        ({"mean": np.zeros(6, dtype=np.float32)}, "its mean are float32"),
        ({"background_mean": None}, "background_mean and background_scale it has only one"),
        ({"background_scale": np.zeros(6)}, "its background_scale must be above 0"),
        ({"powers": np.arange(400.0)[::-1].copy()}, "powers must be ascending"),
        ({"power_weights": np.zeros(400)}, "weights above 0"),
        ({"powers": np.zeros(10_001)}, r"powers are float64 of shape \(10001,\)"),
        ({"components": None}, "it has no 'components'"),
    ],
)
def test_models_that_can_not_be(path, change, message):
    tensors = load(path.read_bytes())
    header = json.loads(safe_open(path, "np").metadata()["cpcapp"])
    for name, value in change.items():
        if value is None:
            del tensors[name]
        else:
            (tensors if isinstance(value, np.ndarray) else header)[name] = value
    path.write_bytes(save(tensors, metadata={"cpcapp": json.dumps(header)}))
    with pytest.raises(TableError, match=message) as caught:
        load_model(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("unit", [1e-149, 1e149])
def test_models_of_very_small_and_very_large_units(unit, tmp_path, rng):
    X = rng.normal(size=(60, 3)) * [1, 2, 3] * unit
    np.save(tmp_path / "t.npy", X)
    reduced = reduce_tables(tmp_path / "t.npy", None, 2, method="pca")
    reduced.model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(X), reduced.model.transform(X))


@pytest.mark.parametrize(
    ("version", "advice"), [(0, "make it again from its data"), (2, "install a newer cpcapp")]
)
def test_a_file_of_another_version_says_what_to_do(path, version, advice):
    header = {"format": "cpcapp-table-model", "format_version": version}
    path.write_bytes(save(load(path.read_bytes()), metadata={"cpcapp": json.dumps(header)}))
    with pytest.raises(TableError, match=f"version {version!r}.*reads version 1; {advice}"):
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
