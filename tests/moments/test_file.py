"""Files of moments: what was saved comes back, and what does not fit together is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file

from cpcapp import Moments
from cpcapp._io.tensor_file import read_tensors, write_tensors


def changed(path, change, header=None):
    """Write the file at a path with other arrays in it."""
    known, arrays = read_tensors(path, "cpcapp-moments", 3, max_bytes=1 << 30)
    arrays = {name: np.asarray(a) for name, a in (arrays | change).items() if a is not None}
    write_tensors(path, arrays, known | (header or {}), "cpcapp-moments", 3)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("n", [5, 50])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_come_back_and_go_on(rng, tmp_path, kind, n, weighted):
    X = rng.normal(size=(n, 20)) * (rng.random((n, 20)) < 0.5)
    more = rng.normal(size=(40, 20))
    moments = Moments.of(kind(X), sample_weight=rng.random(n) if weighted else None)
    moments.save(tmp_path / "m.safetensors")
    loaded = Moments.load(tmp_path / "m.safetensors")
    assert (loaded.is_thin, loaded.form) == (moments.is_thin, moments.form)
    assert (loaded.n_samples, loaded.total_weight) == (moments.n_samples, moments.total_weight)
    np.testing.assert_allclose(loaded.mean, moments.mean, rtol=1e-15)
    for a, b in ((loaded, moments), (loaded.update(more), moments.update(more))):
        np.testing.assert_allclose(a.covariance(), b.covariance(), rtol=1e-12, atol=1e-15)
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_large_mean_and_a_loss_by_removal_come_back(rng, tmp_path):
    X, loud = rng.normal(loc=1e12, size=(3000, 5)), rng.normal(loc=1e12, size=(50, 5))
    whole = Moments.of(X[:1000]).update(loud).remove(loud)
    whole.save(tmp_path / "m")
    loaded = Moments.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded._rounding, whole._rounding)
    expected = np.cov((X - 1e12).T, ddof=0)
    np.testing.assert_allclose(loaded.update(X[1000:]).covariance(), expected, atol=1e-9)


def test_damaged_and_foreign_files(rng, tmp_path):
    path = tmp_path / "m.safetensors"
    Moments.of(rng.normal(size=(50, 20))).save(path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"hello", b"PK\x03\x04", whole[:-30]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"m\.safetensors is not a whole file of moments"):
            Moments.load(path)
    write_tensors(path, {"a": np.ones(3)}, {}, "cpcapp-model", 1)
    with pytest.raises(ValueError, match="it is another kind of file of this package"):
        Moments.load(path)
    with pytest.raises(FileNotFoundError):
        Moments.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("rows", "change", "message"),
    [
        (50, {"mean": np.ones(3)}, r"its mean_low is float64 of \(20,\), not"),
        (50, {"mean": np.ones(20, np.float32)}, "its mean is float32"),
        (50, {"mean": np.full(20, np.inf)}, "its mean holds NaN or infinity"),
        (50, {"mean": None}, "no 'mean'"),
        (50, {"scatter": -np.eye(20)}, "a variance below 0"),
        (5, {"indptr": np.array([0, 2])}, "its indptr does not rise"),
        (5, {"indices": np.full(50, 7_000)}, "its indices hold 7000, not from 0 to 19"),
        (5, {"indices": np.full(50, -1)}, "its indices hold -1, not from 0 to 19"),
        (5, {"indices": np.full(50, 0.5)}, "its indices are float64"),
        (5, {"indptr": np.array([0, 90, 2, 3, 4, 50])}, "its indptr does not rise"),
        (5, {"row_weights": np.array([1.0, 1, 1, 1, -1])}, "row_weights are not all above 0"),
    ],
)
def test_contents_that_do_not_fit_together(rng, tmp_path, rows, change, message):
    X = rng.normal(size=(rows, 20))
    if rows == 5:
        X[:, ::2] = 0.0
    path = tmp_path / "m"
    Moments.of(X if rows == 50 else sp.csr_array(X)).save(path)
    changed(path, change)
    with pytest.raises(ValueError, match=f"m is not a whole file of moments: .*{message}"):
        Moments.load(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"form": "other"}, "its form is 'other'"),
        ({"weights": [0.0, 1.0]}, "weights add up to 0"),
        ({"weights": [1e300, 1.0]}, "weights add up to 1e"),
        ({"weights": 3}, "not iterable"),
    ],
)
def test_headers_that_can_not_be(rng, tmp_path, header, message):
    Moments.of(rng.normal(size=(50, 20))).save(tmp_path / "m")
    changed(tmp_path / "m", {}, header)
    with pytest.raises(ValueError, match=f"not a whole file of moments: .*{message}"):
        Moments.load(tmp_path / "m")


def test_form_scatter_writes_no_rows(rng, tmp_path):
    Moments.of(rng.normal(size=(5, 20)), form="scatter").save(tmp_path / "m")
    assert set(load_file(tmp_path / "m")) == {"mean", "mean_low", "scatter"}
