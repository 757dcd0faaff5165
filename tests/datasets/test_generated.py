from __future__ import annotations

import numpy as np
import pytest

from cpcapp.datasets import mice_like, needle, synthetic


def test_synthetic_has_the_papers_distribution():
    data = synthetic(80_000, 80_000, random_state=0)
    r_b = np.cov(data.background.T, ddof=0)
    np.testing.assert_allclose(r_b.diagonal(), np.repeat([3.0, 1.0, 10.0], 10), rtol=0.03)
    assert np.bincount(data.labels).tolist() == pytest.approx([20_000] * 4, rel=0.03)
    for label, means in enumerate([(0, 0), (0, 3), (6, 0), (6, 3)]):
        found = data.target[data.labels == label].mean(axis=0).reshape(3, 10).mean(axis=1)
        np.testing.assert_allclose(found, [*means, 0], atol=0.05)
    within = data.target[data.labels == 0].var(axis=0)
    np.testing.assert_allclose(within, np.repeat([1.0, 1.0, 10.0], 10), rtol=0.06)


@pytest.mark.parametrize("make", [synthetic, mice_like])
def test_seeds(make):
    a, b, c = make(random_state=1), make(random_state=1), make(random_state=2)
    np.testing.assert_array_equal(a.target, b.target)
    assert not np.array_equal(a.target, c.target)
    assert len(a.feature_names) == a.target.shape[1] == a.background.shape[1]


def test_mice_like_has_the_shape_and_the_difficulty():
    data = mice_like(random_state=0)
    assert data.target.shape == (270, 77)
    assert data.background.shape == (135, 77)
    assert np.linalg.cond(np.cov(data.background.T)) > 1e3


def test_needle_has_the_stated_covariances():
    target, background, a, c = needle(6, gamma=7.0, beta=5.0, epsilon=0.5, rho=0.01)
    assert a @ c == pytest.approx(0.0)
    assert a @ target.covariance() @ a == pytest.approx(5.0)
    assert c @ target.covariance() @ c == pytest.approx(0.5)
    assert a @ background.covariance() @ a == pytest.approx(7.01)
    assert c @ background.covariance() @ c == pytest.approx(0.01)


def test_bad_input():
    with pytest.raises(ValueError, match="n_features=1 must be at least 2"):
        needle(1)
    with pytest.raises(ValueError, match="noise_variance=0 must be above 0"):
        synthetic(noise_variance=0)
