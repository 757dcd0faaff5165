"""The shrinkage by likelihood is that of leaving out samples one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from cpcapp.contrast.shrinkage import LEAST_SHRINKAGE, likelihood_shrinkage
from helpers import correlated


def spectrum(rows):
    return np.linalg.eigvalsh(np.cov(rows.T, ddof=0))


def left_out(rows, rho):
    """Return the mean log-likelihood of each row under the shrunk covariance of the others."""
    n, m = rows.shape
    mean = np.trace(np.cov(rows.T, ddof=0)) / m
    total = 0.0
    for i in range(n):
        others = np.delete(rows, i, axis=0)
        shrunk = (1 - rho) * np.cov(others.T, ddof=0) + rho * mean * np.eye(m)
        total += multivariate_normal(others.mean(axis=0), shrunk).logpdf(rows[i])
    return total / n


@pytest.mark.parametrize(("n", "m"), [(60, 10), (40, 30), (25, 40)])
def test_against_leaving_out_one_by_one(rng, n, m):
    rows = correlated(rng, n, rng.standard_normal((m, m)))
    chosen = likelihood_shrinkage(spectrum(rows), n, m)
    candidates = np.geomspace(1e-4, 1.0, 33)
    losses = [left_out(rows, rho) for rho in candidates]
    best = candidates[int(np.argmax(losses))]
    assert best / 2.0 < chosen < best * 2.0
    # The mean Mahalanobis length stands for each: hardly any likelihood is lost.
    assert left_out(rows, chosen) > max(losses) - 0.01 * m


def test_fades_with_samples_and_takes_over_without_them(rng):
    mixing = rng.standard_normal((12, 12))
    found = [
        likelihood_shrinkage(spectrum(correlated(rng, n, mixing)), n, 12) for n in (20, 200, 20_000)
    ]
    assert found[0] > 5.0 * found[1] > 25.0 * found[2]
    assert likelihood_shrinkage(spectrum(rng.standard_normal((30, 12))), 30, 12) > 0.5
    assert likelihood_shrinkage([1.0], 2, 5) == 1.0


@given(st.integers(2, 40), st.integers(3, 80), st.floats(1e-100, 1e100), st.integers(0, 2**32 - 1))
def test_does_not_depend_on_the_unit_or_on_zeros(m, n, unit, seed):
    values = np.random.default_rng(seed).lognormal(sigma=2.0, size=min(m, n - 1))
    found = likelihood_shrinkage(values, n, m)
    assert LEAST_SHRINKAGE <= found <= 1.0
    assert likelihood_shrinkage(values * unit, n, m) == pytest.approx(found, rel=1e-5)
    assert likelihood_shrinkage([*values, 0.0, 0.0], n, m) == pytest.approx(found, rel=1e-12)


def test_copies_of_features_do_not_count(rng):
    """Their directions have no variance at all, which says nothing about the others."""
    rows = correlated(rng, 100, rng.standard_normal((8, 8)))
    found = likelihood_shrinkage(spectrum(rows), 100, 8)
    twice = likelihood_shrinkage(spectrum(np.c_[rows, rows]) / 2.0, 100, 16)
    assert found / 4.0 < twice < 4.0 * found
