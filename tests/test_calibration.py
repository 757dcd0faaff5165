from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp import CPCAPlusPlus, Moments
from cpcapp.calibration import Calibration, cross_fit
from cpcapp.contrast import solve_contrast


def t_rows(rng, n, p):
    return rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)


def test_p_value_is_a_rank(rng):
    powers = np.sort(rng.random(30))
    calibration = Calibration(powers)
    for value in (0.0, powers[3], 0.5, 2.0):
        expected = ((powers >= value).sum() + 1) / 31
        assert calibration.p_value(value) == pytest.approx(expected)


def test_heavy_tails(rng):
    rates = {True: [], False: []}
    for _ in range(8):
        X, B = t_rows(rng, 200, 20), t_rows(rng, 1200, 20)
        X[:, 0] *= 3.0
        new = t_rows(rng, 2500, 20)
        for calibrate, found in rates.items():
            est = CPCAPlusPlus(1, calibrate=calibrate).fit(X, background=B)
            found.append([(est.p_value(new) <= level).mean() for level in (0.05, 0.001)])
    held, law = (np.mean(rates[c], axis=0) for c in (True, False))
    assert held[0] == pytest.approx(0.05, abs=0.012)
    assert held[1] < 0.0025
    assert law[1] > 0.005


def test_held_out_rows_are_those_of_refitting(rng):
    """By the definition: drop the fold, solve, apply to the fold."""
    X, B = rng.normal(size=(50, 4)) * [4, 1, 1, 1], rng.normal(size=(40, 4)) + 3.0
    lefts = []

    def solve(left):
        lefts.append(left)
        return solve_contrast(X, left, 1)

    found = cross_fit(B, None, Moments.of(B), solve, 0)
    assert len(lefts) == 5
    assert sum(40 - left.n_samples for left in lefts) == 40
    expected = []
    for left in lefts:
        # The fold is known by its mean: the rows left have the given one.
        contrast = solve_contrast(X, left, 1)
        outputs = (B - left.mean) @ contrast.filters
        expected.append((outputs**2).sum(axis=1) / contrast.output_covariance.trace())
    assert np.isin(found.powers.round(9), np.round(expected, 9)).all()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("p", [5, 90])
def test_any_form_of_data(rng, kind, p):
    X, B = rng.normal(size=(50, p)), rng.normal(size=(40, p))
    X[:, 0] *= 4.0
    plain = CPCAPlusPlus(1).fit(X, background=B)
    other = CPCAPlusPlus(1).fit(
        kind(np.vstack([X, B])), is_background=np.repeat([False, True], [50, 40])
    )
    assert plain.smallest_p_value_ == other.smallest_p_value_ == 1 / 41
    np.testing.assert_allclose(plain.p_value(X), other.p_value(X), atol=1e-9)


def test_groups_are_held_out_together(rng):
    """With copies in the background, a row is not new unless all its copies are out."""
    labels = np.repeat(np.arange(40), 5)
    rates = []
    for _ in range(10):
        X, B = rng.normal(size=(200, 25)), np.repeat(rng.normal(size=(40, 25)), 5, axis=0)
        X[:, 0] *= 3.0
        est = CPCAPlusPlus(1, loading=0.1)
        est.fit(X, background=B, groups=np.arange(200), background_groups=labels)
        assert est.smallest_p_value_ == pytest.approx(1 / 41)
        new = rng.normal(size=(1000, 25))
        plain = CPCAPlusPlus(1, loading=0.1).fit(X, background=B)
        rates.append([(e.p_value(new) <= 0.05).mean() for e in (est, plain)])
    grouped, plain = np.mean(rates, axis=0)
    assert grouped < 0.09 < plain


def test_where_the_law_stays(rng):
    X, B = rng.normal(size=(50, 4)), rng.normal(size=(40, 4))
    law = CPCAPlusPlus(1, calibrate=False).fit(X, background=B)
    assert law.smallest_p_value_ is None
    for est in (
        CPCAPlusPlus(1).fit(X, background=Moments.of(B)),
        CPCAPlusPlus(1).fit_moments(Moments.of(X), Moments.of(B)),
        CPCAPlusPlus(1).partial_fit(X, background=B),
    ):
        assert est.smallest_p_value_ is None
        np.testing.assert_allclose(est.p_value(X), law.p_value(X), rtol=1e-6)
    assert CPCAPlusPlus(1).fit(X, background=B[:19]).smallest_p_value_ is None


def test_bad_input(rng):
    X = rng.normal(size=(50, 4))
    with pytest.raises(ValueError, match="calibrate='yes' must be True, False or 'auto'"):
        CPCAPlusPlus(1, calibrate="yes").fit(X, background=X)
