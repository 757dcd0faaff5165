from __future__ import annotations

import numpy as np
import pytest

from cpcapp import CPCAPlusPlus, solve_contrast
from cpcapp.inference.power import Calibration, calibrate
from cpcapp.moments.sample import make_sample


def t_rows(rng, n, p):
    return rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)


def lognormal(rng, n, p):
    return np.exp(rng.normal(size=(n, p)))


def rates(sets):
    """Return the shares of p-values up to .05 and .01."""
    return np.mean([[(p <= level).mean() for level in (0.05, 0.01)] for p in sets], axis=0)


def test_p_value_is_a_rank(rng):
    powers, weights = np.sort(rng.random(30)), rng.random(30)
    plain, weighted = Calibration(powers), Calibration(powers, weights)
    for value in (0.0, powers[3], 0.5, 2.0):
        above = powers >= value
        assert plain.p_value(value) == pytest.approx((above.sum() + 1) / 31)
        expected = (weights[above].sum() + 1) / (weights.sum() + 1)
        assert weighted.p_value(value) == pytest.approx(expected)
    assert plain.smallest == 1 / 31


@pytest.mark.parametrize("draw", [t_rows, lognormal])
@pytest.mark.parametrize(("n_f", "n_b", "p"), [(200, 600, 20), (100, 100, 200)])
def test_new_background_has_p_values_like_its_share(rng, draw, n_f, n_b, p):
    """With units of all rows the loading would tell of the rows that are held out."""
    sets = []
    for _ in range(25):
        X, B = draw(rng, n_f, p), draw(rng, n_b, p)
        X[:, 0] *= 3.0
        est = CPCAPlusPlus(1, calibrate=True).fit(X, background=B)
        sets.append(est.p_value(draw(rng, 500, p)))
    share = rates(sets)
    assert share[0] <= 0.065
    assert share[1] <= 0.017


def test_groups_are_held_out_together(rng):
    """With copies in the background, a row is not new unless all its copies are out."""
    labels = {"groups": np.arange(200), "background_groups": np.repeat(np.arange(40), 5)}
    sets = {"groups": [], "rows": []}
    for _ in range(10):
        X, B = rng.normal(size=(200, 25)), np.repeat(rng.normal(size=(40, 25)), 5, axis=0)
        X[:, 0] *= 3.0
        new, est = rng.normal(size=(1000, 25)), CPCAPlusPlus(1, loading=0.1, calibrate=True)
        sets["rows"].append(est.fit(X, background=B).p_value(new))
        sets["groups"].append(est.fit(X, background=B, **labels).p_value(new))
        assert est.smallest_p_value_ == pytest.approx(1 / 41)
    assert rates(sets["groups"])[0] < 0.09 < rates(sets["rows"])[0]


def test_rows_of_several_backgrounds_are_new_to_each(rng):
    """A new row is taken about the mean of the mixture, so held-out rows are too."""
    sets = []
    for _ in range(5):
        parts = [rng.normal(size=(150, 6)) + shift for shift in (0.0, 3.0)]
        X = rng.normal(size=(200, 6)) * [4, 1, 1, 1, 1, 1]
        new = rng.normal(size=(1000, 6)) + np.repeat([0.0, 3.0], 500)[:, None]
        est = CPCAPlusPlus(1, calibrate=True).fit(X, background=parts)
        sets.append(est.p_value(new))
    assert rates(sets)[0] == pytest.approx(0.05, abs=0.02)


def test_effects_of_covariates_are_not_of_the_rows(rng):
    """Of two labels, each with a column for each of its values, so that columns are collinear."""
    labels = [rng.integers(n, size=120)[:, None] == np.arange(n) for n in (2, 4)]
    design = np.column_stack([np.ones(120), *labels]).astype(float)
    effects, B = 100.0 * design @ rng.normal(size=(7, 6)), rng.normal(size=(120, 6))
    X = rng.normal(size=(80, 6)) * [4, 1, 1, 1, 1, 1]
    contrast = solve_contrast(X, B, 1, loading=0.1)
    powers = [
        calibrate(make_sample(X), make_sample(rows, design=design), contrast).powers
        for rows in (B, B + effects)
    ]
    np.testing.assert_allclose(*powers, rtol=1e-6)
