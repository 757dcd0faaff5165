from __future__ import annotations

import numpy as np
import pytest

from cpcapp import solve_contrast
from cpcapp.inference.bootstrap import resample
from cpcapp.moments.sample import make_sample


@pytest.fixture
def pair(rng):
    return rng.normal(size=(200, 6)) * [5, 3, 1, 1, 1, 1], rng.normal(size=(150, 6))


def stability(X, B, k, groups=(None, None), **options):
    sides = [make_sample(rows, groups=g) for rows, g in zip((X, B), groups, strict=True)]
    return resample(*sides, solve_contrast(X, B, k), **options)


def test_what_is_sure_and_what_is_not(pair):
    X, B = pair
    contrast = solve_contrast(X, B, 2)
    found = stability(X, B, 2, n=40, n_top=1)
    assert found.n_replicates == 40
    np.testing.assert_array_equal(found.top_frequency.argmax(axis=1), [0, 1])
    np.testing.assert_allclose(found.top_frequency.sum(axis=1), 1.0)
    assert np.median(found.angles) < 25
    low, high = np.moveaxis(found.atom_intervals, -1, 0)
    assert ((low <= contrast.atoms.T) & (high >= contrast.atoms.T)).mean() > 0.9
    assert np.median(stability(B[:75], B[75:], 2, n=40).angles) > 40


def test_groups_are_drawn_whole(rng):
    X, B = (np.repeat(rng.normal(size=(40, 3)) * s, 10, axis=0) for s in ([3, 1, 1], 1.0))
    labels = np.repeat(np.arange(40), 10)
    rows, grouped = (
        np.median(stability(X, B, 1, groups=g, n=60).angles)
        for g in ((None, None), (labels, labels))
    )
    assert grouped > 1.8 * rows


def test_repeatable(pair):
    one, again = (stability(*pair, 1, n=10) for _ in range(2))
    np.testing.assert_array_equal(one.angles, again.angles)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": 1}, "n=1 must be at least 2"),
        ({"confidence": 95}, "confidence=95 must be between 0 and 1"),
        ({"n_top": 0}, "n_top=0 must be at least 1"),
    ],
)
def test_bad_input(pair, given, message):
    with pytest.raises(ValueError, match=message):
        stability(*pair, 1, **given)
