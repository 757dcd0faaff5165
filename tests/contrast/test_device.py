"""A contrast on a device is that of NumPy; torch on the CPU is a device too."""

from __future__ import annotations

import numpy as np
import pytest

from cpcapp import Moments, solve_contrast
from cpcapp.contrast.solution import InsufficientRankError, SingularBackgroundError
from devices import on_each_device, torch

from cpcapp.moments.torch import DeviceMoments  # isort: skip

pytestmark = on_each_device


def assert_same(found, expected):
    assert found.solver == "dense"
    assert found.bound == expected.bound
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-8)
    np.testing.assert_allclose(found.filters, expected.filters, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.atoms, expected.atoms, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.contrast, expected.contrast, rtol=1e-6)


@pytest.fixture
def sides(rng):
    X, B = rng.standard_normal((2, 900, 30))
    X[:, :2] += 5.0 * rng.integers(0, 2, (900, 2))
    mixing = rng.standard_normal((30, 30))
    return X @ mixing, B @ mixing


@pytest.mark.parametrize("loading", ["auto", "oas", "none", 0.1])
def test_same_as_numpy(sides, device, loading):
    on_device = [DeviceMoments(device).update(torch.from_numpy(rows).to(device)) for rows in sides]
    expected = solve_contrast(*sides, 3, loading=loading)
    found = solve_contrast(*on_device, 3, loading=loading, rows=sides[0])
    assert_same(found, expected)
    assert on_device[0].n_samples == 900  # nothing is used up
    np.testing.assert_allclose(found.mean, sides[0].mean(axis=0))
    assert_same(solve_contrast(*sides, 3, loading=loading, device=device), expected)


def test_without_a_background_and_with_one_side_elsewhere(sides, device):
    assert_same(solve_contrast(sides[0], None, 4, device=device), solve_contrast(sides[0], None, 4))
    target = DeviceMoments(device).update(torch.from_numpy(sides[0]).to(device))
    found = solve_contrast(target, Moments.of(sides[1]), 3, scaling="unit", rows=sides[0])
    assert_same(found, solve_contrast(*sides, 3, scaling="unit"))


def test_constant_features_and_few_samples(rng, device):
    X, B = rng.normal(size=(2, 200, 5))
    X[:, 1], B[:, 1], B[:, 3] = 7.0, 7.0, -2.0
    assert_same(solve_contrast(X, B, 2, device=device), solve_contrast(X, B, 2))
    X, B = rng.normal(size=(30, 50)), rng.normal(size=(25, 50))
    expected = solve_contrast(X, B, 2, solver="dense")
    assert_same(solve_contrast(X, B, 2, device=device), expected)


def test_errors_are_the_same(rng, device):
    X, B = rng.normal(size=(2, 50, 4))
    B[:, 2] = B[:, 0] + B[:, 1]
    with pytest.raises(SingularBackgroundError, match="its rank is 3 of 4"):
        solve_contrast(X, B, 1, loading="none", device=device)
    with pytest.raises(ValueError, match="too small to make the background"):
        solve_contrast(X, B, 1, loading=1e-19, device=device)
    with pytest.raises(InsufficientRankError, match="at most 3"):
        solve_contrast(B, X, 4, loading="none", device=device)
    with pytest.raises(ValueError, match="must be 'auto' or 'dense' on a device"):
        solve_contrast(X, B, 1, solver="dual", device=device)
    with pytest.raises(ValueError, match="device='gpu' can't be used here; use 'cpu', or"):
        solve_contrast(X, B, 1, device="gpu")
