from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp import CPCAPlusPlus, Moments, bootstrap
from cpcapp.inference.bootstrap import _make_side


@pytest.fixture
def pair(rng):
    X = rng.normal(size=(200, 6)) * [5, 3, 1, 1, 1, 1]
    return X, rng.normal(size=(150, 6))


def test_intervals_hold_the_truth(rng):
    inside = np.zeros(2)
    for i in range(25):
        X = rng.normal(size=(300, 5)) * np.sqrt([9, 4, 1, 1, 1])
        B = rng.normal(size=(300, 5))
        est = CPCAPlusPlus(2, loading="none").fit(X, background=B)
        found = bootstrap(est, X, B, n=40, random_state=i).eigenvalue_intervals
        inside += (found[:, 0] <= [9, 4]) & (found[:, 1] >= [9, 4])
    assert (inside >= 19).all()  # binomial(25, .95): P(< 19) < .001
    assert (found[:, 1] / found[:, 0] < 3).all()


def test_what_is_sure_and_what_is_not(pair):
    X, B = pair
    est = CPCAPlusPlus(2).fit(X, background=B)
    found = bootstrap(est, X, B, n=40, n_top=1)
    assert found.n_replicates == 40
    np.testing.assert_allclose(found.eigenvalues, est.eigenvalues_, rtol=1e-9)
    np.testing.assert_array_equal(found.top_frequency.argmax(axis=1), [0, 1])
    np.testing.assert_allclose(found.top_frequency.sum(axis=1), 1.0)
    assert np.median(found.angles) < 25
    low, high = np.moveaxis(found.atom_intervals, -1, 0)
    assert ((low <= est.atoms_) & (est.atoms_ <= high)).mean() > 0.9
    noise = CPCAPlusPlus(2).fit(B[:75], background=B[75:])
    assert np.median(bootstrap(noise, B[:75], B[75:], n=40).angles) > 40


def test_blocks_are_as_good_as_rows(rng):
    X = rng.normal(size=(1500, 4)) * [3, 1, 1, 1] + 7.0
    drawn = [_make_side(part, None, np.random.default_rng(0)) for part in (X[:900], X)]
    by_rows, by_blocks = (
        np.std([np.log(draw().variance()[0]) for _ in range(200)]) for draw in drawn
    )
    # The logarithm of a variance has the variance 2/n.
    assert by_rows == pytest.approx(np.sqrt(2 / 900), rel=0.25)
    assert by_blocks == pytest.approx(np.sqrt(2 / 1500), rel=0.25)


def test_blocks_add_up(rng):
    """Each block once is the whole set."""

    class Once:
        def permutation(self, n):
            return np.arange(n)

        def multinomial(self, n, shares):
            return np.ones(n, dtype=int)

    X = rng.normal(3.0, 2.0, size=(1501, 3))
    whole, drawn = Moments.of(X), _make_side(X, None, Once())()
    assert drawn.n_samples == 1501
    np.testing.assert_allclose(drawn.mean, whole.mean)
    np.testing.assert_allclose(drawn.covariance(), whole.covariance())


def test_groups_widen_the_intervals(rng):
    X, B = (np.repeat(rng.normal(size=(40, 3)) * s, 10, axis=0) for s in ([3, 1, 1], 1.0))
    est = CPCAPlusPlus(1).fit(X, background=B)
    labels = np.repeat(np.arange(40), 10)
    rows = bootstrap(est, X, B, n=60).eigenvalue_intervals[0]
    grouped = bootstrap(est, X, B, n=60, groups=labels, background_groups=labels)
    ratio = np.log(grouped.eigenvalue_intervals[0])
    assert np.ptp(ratio) > 1.8 * np.ptp(np.log(rows))


def test_sparse_and_repeatable(pair):
    X, B = pair
    est = CPCAPlusPlus(1).fit(X, background=B)
    dense, again = (bootstrap(est, X, B, n=10) for _ in range(2))
    sparse = bootstrap(est, sp.csr_array(X), sp.csr_array(B), n=10)
    np.testing.assert_array_equal(dense.angles, again.angles)
    np.testing.assert_allclose(dense.eigenvalue_intervals, sparse.eigenvalue_intervals)


def test_bad_input(pair):
    X, B = pair
    est = CPCAPlusPlus(1).fit(X, background=B)
    for given, message in (
        ({"n": 1}, "n=1 must be at least 2"),
        ({"confidence": 95}, "confidence=95 must be between 0 and 1"),
        ({"n_top": 0}, "n_top=0 must be at least 1"),
        ({"groups": np.arange(200)}, "groups was given without background_groups"),
    ):
        with pytest.raises(ValueError, match=message):
            bootstrap(est, X, B, **given)
