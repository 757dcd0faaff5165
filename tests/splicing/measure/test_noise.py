from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.measure import noise
from cpcapp.splicing.measure.noise import noise_levels


@pytest.mark.parametrize("sigma", [1.0, 4.0, 12.0])
def test_the_level_of_normal_noise(sigma):
    rng = np.random.default_rng(1)
    grey = np.repeat(rng.normal(128, sigma, (320, 400, 1)), 3, axis=2)
    found = noise_levels(np.rint(grey).clip(0, 255).astype(np.uint8))
    # Rounding adds 1/12 to the variance, and to the median of small values somewhat more.
    assert found.mean() == pytest.approx(np.hypot(sigma, 0.29), rel=0.08)


def test_ramps_and_straight_edges_are_no_noise():
    y, x = np.mgrid[:64, :96]
    photo = np.repeat((x + 2 * (y > 30) * 40)[..., None], 3, axis=2).astype(np.uint8)
    assert noise_levels(photo).max() < 0.01


def test_strips_are_seamless(monkeypatch):
    photo = np.random.default_rng(0).integers(0, 256, (400, 64, 3), dtype=np.uint8)
    whole = noise_levels(photo)
    for rows in (1, 7, 1000):
        monkeypatch.setattr(noise, "_ROWS_PER_STRIP", rows)
        np.testing.assert_array_equal(noise_levels(photo), whole)


def test_sixteen_bits_are_in_the_same_unit():
    rng = np.random.default_rng(0)
    photo = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    np.testing.assert_allclose(
        noise_levels(photo.astype(np.uint16) * 257), noise_levels(photo), rtol=1e-4
    )


@pytest.mark.parametrize("shape", [(15, 40), (8, 8)])
def test_too_small(shape):
    assert noise_levels(np.zeros((*shape, 3), np.uint8)).size == 0


def test_wrong_shape():
    with pytest.raises(ValueError, match=r"pixels of shape \(9, 9\) must be"):
        noise_levels(np.zeros((9, 9), np.uint8))
