from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.making.cameras import Camera
from cpcapp.splicing.regions.side_statistics import side_statistics
from cpcapp.splicing.regions.superpixels import superpixels
from cpcapp.splicing.traces.mosaic import mosaic_trace
from superpixel_problems import random_problem


def test_two_means_gain_what_the_determinant_says(rng):
    """-n/2 log det(S_within)/det(S_total), against covariances that are computed in full."""
    _, statistics = random_problem(rng, n_statistics=3)
    side = rng.random(12) < 0.4
    values = statistics.total / statistics.pixels[:, None]
    within = sum(
        np.cov(values[part].T, bias=True) * part.sum() / len(side) for part in (side, ~side)
    )
    wanted = -0.5 * statistics.pixels.sum() * np.linalg.slogdet(within)[1]
    assert statistics.evidence(side) == pytest.approx(wanted, rel=1e-9)


def test_the_preference_is_the_likelihood_ratio_of_two_gaussians(rng):
    from scipy.stats import multivariate_normal

    _, statistics = random_problem(rng)
    side = rng.random(12) < 0.4
    values = statistics.total / statistics.pixels[:, None]
    within = sum(
        np.cov(values[part].T, bias=True) * part.sum() / len(side) for part in (side, ~side)
    )
    inside, outside = (
        multivariate_normal(values[part].mean(axis=0), within).logpdf(values)
        for part in (side, ~side)
    )
    np.testing.assert_allclose(
        statistics.preference(side), statistics.pixels * (inside - outside), rtol=1e-8
    )


def test_statistics_have_mean_0_and_covariance_1_over_the_photo(rng):
    scene = rng.integers(90, 130, (200, 260, 3), dtype=np.uint8)
    photo = Camera(shot_noise=1e-3).shoot(scene, rng).astype(np.float32) / 255
    labels, count = superpixels(photo)
    found = side_statistics(mosaic_trace(photo), labels, count)
    assert found.total.shape == (count, 6)
    np.testing.assert_allclose(found.total.sum(axis=0), 0.0, atol=1e-6 * found.pixels.sum())
    means = found.total[found.pixels > 0] / found.pixels[found.pixels > 0, None]
    assert (means.var(axis=0) <= 1.0 + 1e-6).all()
