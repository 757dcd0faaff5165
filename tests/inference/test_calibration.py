from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp import CPCAPlusPlus, Moments
from cpcapp.contrast.solve import solve_contrast
from cpcapp.inference.power import Calibration, cross_fit


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


@pytest.mark.parametrize("p", [4, 700])
def test_held_out_rows_are_those_of_refitting(rng, p):
    """By the definition: drop the fold, solve, apply to the fold."""
    X, B = rng.normal(size=(50, p)), rng.normal(size=(40, p)) + 3.0
    X[:, 0] *= 4.0
    loading = "none" if p < 40 else 0.5  # without one of its own for each fold
    f, b = Moments.of(X), Moments.of(B)
    solve = partial(solve_contrast, f, k=1, loading=loading)
    lefts = []

    def noted(left):
        lefts.append(left)
        return solve(background=left)

    found = cross_fit(B, None, f, b, solve(background=b), solve=noted, loading=loading)
    assert len(found.powers) == 40
    assert len(lefts) == (5 if p > 3 * 90 else 0)  # few samples of many features: solved anew
    order = np.random.default_rng(0).permutation(40)
    expected = []
    for fold in range(5):
        out = order[fold::5]
        left = Moments.of(np.delete(B, out, axis=0))
        contrast = solve(background=left)
        outputs = (B[out] - left.mean) @ contrast.filters
        expected.append((outputs**2).sum(axis=1) / contrast.output_covariance.trace())
    np.testing.assert_allclose(found.powers, np.sort(np.concatenate(expected)), rtol=1e-6)


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
