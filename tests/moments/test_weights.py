"""Weights of samples: whole numbers are copies, and nothing depends on their unit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cpcapp import Moments
from cpcapp.moments.moments import NonFiniteError

KINDS = [np.asarray, sp.csr_array]


@given(
    n=st.integers(2, 120),
    m=st.integers(1, 40),
    cuts=st.lists(st.integers(0, 120), max_size=4),
    offset=st.sampled_from([0.0, 1e6, 1e12]),
    sparse=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_whole_numbers_are_copies(n, m, cuts, offset, sparse, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(loc=offset, size=(n, m))
    weights = rng.integers(0, 4, n)
    weights[0] = 1
    places = sorted(min(c, n) for c in cuts)
    weighted = Moments()
    for rows, its in zip(np.split(X, places), np.split(weights, places), strict=True):
        weighted.update(sp.csr_array(rows) if sparse else rows, sample_weight=its)
    copies = Moments.of(np.repeat(X, weights, axis=0), form="scatter")
    scale = max(1.0, copies.scatter().max())
    # float64 of 1e12 has no digits below 1e-4; the copies are summed in another order.
    np.testing.assert_allclose(weighted.scatter() / scale, copies.scatter() / scale, atol=1e-10)
    np.testing.assert_allclose(weighted.mean, copies.mean, rtol=1e-14, atol=1e-13)
    np.testing.assert_allclose(weighted.variance(), copies.variance(), rtol=1e-9, atol=1e-12)
    assert weighted.total_weight == weights.sum() == copies.n_samples
    assert weighted.n_samples == round(weights.sum() ** 2 / (weights**2).sum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [30, 3000])
def test_numpys_weighted_covariance_agrees(rng, kind, n):
    X, weights = rng.normal(loc=3.0, size=(n, 50)), rng.gamma(0.5, size=n)
    found = Moments.of(kind(X), sample_weight=weights)
    assert found.is_thin == (n < 50)
    expected = np.cov(X.T, aweights=weights, ddof=0)
    np.testing.assert_allclose(found.covariance(), expected, atol=1e-13)
    np.testing.assert_allclose(found.variance(), expected.diagonal(), rtol=1e-12)
    np.testing.assert_allclose(found.mean, np.average(X, axis=0, weights=weights), rtol=1e-13)


@pytest.mark.parametrize("factor", [1e-97, 0.3, 1e99])
def test_only_ratios_of_weights_matter(rng, factor):
    X, weights = rng.normal(size=(200, 4)), rng.uniform(0.01, 1.0, 200)
    a = Moments.of(X, sample_weight=weights)
    b = Moments.of(X, sample_weight=weights * factor)
    np.testing.assert_allclose(a.covariance(), b.covariance(), rtol=1e-12)
    assert a.n_samples == b.n_samples < 200


def test_a_sample_without_a_weight_has_the_weight_1(rng):
    X = rng.normal(size=(90, 4))
    mixed = Moments.of(X[:40]) + Moments.of(X[40:], sample_weight=np.full(50, 2.0))
    np.testing.assert_allclose(
        mixed.covariance(), np.cov(X.T, fweights=[1] * 40 + [2] * 50, ddof=0), rtol=1e-12
    )
    assert mixed.n_samples == round(140**2 / 240)


def test_covariance_of_other_ddof_goes_by_the_effective_number(rng):
    moments = Moments.of(rng.normal(size=(90, 2)), sample_weight=np.r_[np.ones(45), np.full(45, 3)])
    n = moments.n_samples
    assert n == 72
    np.testing.assert_allclose(
        moments.covariance(ddof=1), moments.covariance() * n / (n - 1), rtol=1e-13
    )


def test_weights_of_an_iterator_of_chunks(rng):
    X, weights = rng.normal(size=(60, 3)), rng.random(60)
    parts = [slice(0, 7), slice(7, 60)]
    found = Moments.of((X[p] for p in parts), sample_weight=(weights[p] for p in parts))
    expected = Moments.of(X, sample_weight=weights)
    np.testing.assert_allclose(found.scatter(), expected.scatter(), rtol=1e-12)
    with pytest.raises(ValueError, match="as many as chunks"):
        Moments.of((X[p] for p in parts), sample_weight=iter([weights[:7]]))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], r"sample_weight has shape \(2,\); it must be \(3,\)"),
        ([1.0, np.nan, 2.0], "has nan at row 1"),
        ([1.0, 1.0, -2.0], "has -2.0 at row 2; weights must be finite and at least 0"),
        ([1.0, np.inf, 2.0], "has inf at row 1"),
        ([1.0, 1e-120, 2.0], "has 1e-120 at row 1; .* 1e-100 to 1e"),
        (["a", "b", "c"], "must be a number for each of 3 rows"),
        (-1, "has -1.0 at row 0"),
    ],
)
def test_bad_weights_change_nothing(weights, message):
    moments = Moments.of(np.eye(3))
    with pytest.raises(ValueError, match=message):
        moments.update(np.eye(3), sample_weight=weights)
    assert moments.n_samples == 3


def test_a_row_of_weight_0_is_not_looked_at(rng):
    X = rng.normal(size=(50, 3))
    X[7] = np.nan
    weights = np.ones(50)
    with pytest.raises(NonFiniteError):
        Moments.of(X, sample_weight=weights)
    weights[7] = 0.0
    assert Moments.of(X, sample_weight=weights).n_samples == 49
    assert Moments.of(X, sample_weight=0.0).n_samples == 0


def test_the_callers_weights_are_not_kept(rng):
    X, weights = rng.normal(size=(4, 9)), np.ones(4)
    moments = Moments.of(X, sample_weight=weights)
    weights[:] = 100.0
    np.testing.assert_allclose(moments.covariance(), np.cov(X.T, ddof=0), atol=1e-14)
