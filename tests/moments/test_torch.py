from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp import Moments
from cpcapp.moments import Reservoir, add_up
from cpcapp.moments.moments import NonFiniteError
from devices import on_each_device, torch

from cpcapp.moments import torch as backend  # isort: skip
from cpcapp.moments.torch import DeviceMoments  # isort: skip


def moments_of_tensor(x, weights=None, **options):
    device = getattr(x, "device", "cpu")
    return DeviceMoments(device, **options).update(x, weights).to_moments()


def mixed(rng, n, width, mean=0.0):
    return rng.normal(size=(n, width)) @ rng.normal(size=(width, width)) + mean


def assert_same_moments(found, expected, rtol=1e-8):
    scale = np.sqrt(np.multiply.outer(expected.variance(), expected.variance()))
    assert np.abs(found.covariance() - expected.covariance()).max() <= rtol * scale.max()
    assert np.abs((found.covariance() - expected.covariance()) / scale).max() <= rtol
    np.testing.assert_allclose(found.mean, expected.mean, rtol=rtol)
    assert found.n_samples == expected.n_samples
    assert found.total_weight == pytest.approx(expected.total_weight)


@on_each_device
class TestMoments:
    @pytest.mark.parametrize("mean", [0.0, 1e6, -1e10])
    def test_float64_is_that_of_numpy(self, rng, device, mean):
        X = mixed(rng, 9000, 30, mean)
        found = moments_of_tensor(torch.from_numpy(X).to(device))
        assert_same_moments(found, Moments.of(X))

    @pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "uint8", "int32", "bool"])
    def test_other_types(self, rng, device, kind):
        X = torch.from_numpy(rng.integers(0, 2 if kind == "bool" else 120, size=(5000, 7)))
        X = X.to(getattr(torch, kind)).to(device)
        found = moments_of_tensor(X)
        assert_same_moments(found, Moments.of(X.double().cpu().numpy()), rtol=2e-5)

    def test_float32_keeps_six_digits_beside_a_large_mean(self, rng, device):
        X = torch.from_numpy(mixed(rng, 20_000, 12, 1000.0)).float().to(device)
        found = moments_of_tensor(X)
        assert_same_moments(found, Moments.of(X.cpu().numpy()), rtol=5e-6)

    def test_double_products_of_float32_are_exact(self, rng, device):
        X = torch.from_numpy(mixed(rng, 20_000, 12, 1000.0)).float().to(device)
        found = moments_of_tensor(X, double=True)
        assert_same_moments(found, Moments.of(X.cpu().numpy()), rtol=1e-11)

    def test_panels_and_groups(self, rng, device, monkeypatch):
        """Wider than a panel, and more rows than one product has."""
        monkeypatch.setattr(backend, "panel_width", lambda n_features: 16)
        monkeypatch.setattr(backend, "_ROWS", 100)
        monkeypatch.setattr(backend, "_MAX_ROWS_NUMBERS", 100 * 50 * 3)
        X = mixed(rng, 1234, 50, 5.0)
        assert_same_moments(moments_of_tensor(torch.from_numpy(X).to(device)), Moments.of(X))

    def test_weights(self, rng, device):
        X, w = mixed(rng, 6000, 9, 3.0), rng.integers(0, 4, 6000).astype(float)
        expected = Moments.of(X, sample_weight=w)
        x = torch.from_numpy(X).to(device)
        assert_same_moments(moments_of_tensor(x, w), expected)
        assert_same_moments(moments_of_tensor(x, torch.from_numpy(w).to(device)), expected)

    def test_fewer_rows_than_features_are_kept_as_rows(self, rng, device):
        X = rng.normal(size=(5, 20))
        found = Moments.of(torch.from_numpy(X).to(device), sample_weight=np.arange(1.0, 6.0))
        assert found.is_thin
        assert_same_moments(found, Moments.of(X, sample_weight=np.arange(1.0, 6.0)))

    def test_views_and_gradients(self, rng, device):
        X = mixed(rng, 600, 8)
        x = torch.from_numpy(X).to(device).requires_grad_()
        assert_same_moments(moments_of_tensor(x[::2, 1:]), Moments.of(X[::2, 1:]))

    def test_the_settings_of_the_process_stay(self, rng, device):
        before = torch.get_float32_matmul_precision()
        moments_of_tensor(torch.zeros(50, 3, device=device), allow_tf32=True)
        assert torch.get_float32_matmul_precision() == before

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_a_bad_chunk_names_its_columns_and_changes_nothing(self, rng, device, bad):
        found = DeviceMoments(device).update(torch.ones(10, 3, device=device))
        chunk = torch.from_numpy(rng.normal(size=(9, 3))).to(device)
        chunk[4, 1] = bad
        with pytest.raises(NonFiniteError, match="column 1"):
            found.update(chunk)
        assert found.n_samples == 10
        assert found.to_moments().covariance().max() == 0.0

    def test_bad_arguments(self, device):
        with pytest.raises(TypeError, match="chunk is a ndarray; it must be a torch tensor"):
            moments_of_tensor(np.ones((3, 2)))
        with pytest.raises(ValueError, match=r"chunk has shape \(3,\); it must be \(n_samples"):
            moments_of_tensor(torch.ones(3, device=device))
        with pytest.raises(ValueError, match="it must be real"):
            moments_of_tensor(torch.ones(3, 2, dtype=torch.complex64, device=device))
        found = DeviceMoments(device).update(torch.ones(4, 2, device=device))
        with pytest.raises(ValueError, match="add 3 features to moments of 2"):
            found.update(torch.ones(4, 3, device=device))
        with pytest.raises(ValueError, match=r"weights has -1\.0 at row 1"):
            found.update(torch.ones(2, 2, device=device), [1, -1])
        assert found.update(torch.ones(0, 2, device=device), []).n_samples == 4
        with pytest.raises(ValueError, match="hold no samples"):
            DeviceMoments(device).spread()


class TestAddingUp:
    @given(cuts=st.lists(st.integers(0, 400), max_size=5), seed=st.integers(0, 99))
    def test_pieces_in_any_order_add_up(self, cuts, seed):
        rng = np.random.default_rng(seed)
        X = mixed(rng, 400, 5, rng.normal(scale=1e4, size=5))
        pieces = np.split(X, sorted(cuts))
        rng.shuffle(pieces)
        parts = [DeviceMoments("cpu").update(torch.from_numpy(piece)) for piece in pieces]
        assert_same_moments(sum(parts).to_moments(), Moments.of(X))

    @on_each_device
    def test_moments_of_numpy_go_on(self, rng, device, tmp_path):
        X = mixed(rng, 500, 6, 1e5)
        moments = DeviceMoments.of(Moments.of(X[:200]), device)
        moments.update(torch.from_numpy(X[200:]).to(device))
        moments.save(tmp_path / "moments.npz")
        assert_same_moments(Moments.load(tmp_path / "moments.npz"), Moments.of(X))

    def test_a_copy_is_independent(self, rng):
        X = torch.from_numpy(mixed(rng, 300, 4))
        one = DeviceMoments("cpu").update(X[:100])
        whole = one + DeviceMoments("cpu").update(X[100:])
        assert one.n_samples == 100
        assert_same_moments(one.to_moments(), Moments.of(X[:100].numpy()))
        assert_same_moments(whole.to_moments(), Moments.of(X.numpy()))

    def test_other_widths_and_other_things(self):
        one = DeviceMoments("cpu").update(torch.ones(4, 2))
        with pytest.raises(ValueError, match="can't add 3 features to moments of 2"):
            one + DeviceMoments("cpu").update(torch.ones(4, 3))
        with pytest.raises(TypeError):
            one + Moments.of(np.ones((4, 2)))
        assert (one + DeviceMoments("cpu")).n_samples == 4


def test_without_torch_one_line_names_the_command():
    code = "import sys\nsys.modules['torch'] = None\nimport cpcapp.moments.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: cpcapp.moments.torch needs torch; install it with: "
        "pip install 'cpcapp[torch]'"
    )


@on_each_device
def test_rows_of_a_tensor_are_sampled_and_come_to_the_host(rng, device):
    X = rng.normal(size=(3000, 4))
    X[:, 0] = np.arange(3000)
    x, weights = torch.from_numpy(X).to(device), np.arange(3000.0) % 2
    sample = Reservoir(200)
    assert_same_moments(add_up(x, weights, reservoir=sample), Moments.of(X, sample_weight=weights))
    assert type(sample.rows()) is np.ndarray
    np.testing.assert_array_equal(sample.rows(), X[sample.index()])
    assert (sample.weights() == 1.0).all() and sample.n_seen == 1500
