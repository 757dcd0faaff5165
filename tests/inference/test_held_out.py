from __future__ import annotations

import numpy as np
import pytest

from cpcapp import Moments, solve_contrast
from cpcapp.inference.held_out import held_out
from cpcapp.moments.sample import make_sample


def try_out(rng, n, p, runs, loading="auto"):
    """Return held-out results, and the contrasts that the filters have in the population."""
    scale = np.r_[9.0, 4.0, np.ones(p - 2)]
    for i in range(runs):
        X, B = rng.normal(size=(n, p)) * np.sqrt(scale), rng.normal(size=(n, p))
        contrast = solve_contrast(X, B, 2, loading=loading)
        squares = contrast.filters**2
        truth = scale @ squares / squares.sum(axis=0)
        yield held_out(make_sample(X), make_sample(B), contrast, random_state=i), truth, contrast


@pytest.mark.parametrize(("n", "p"), [(150, 5), (60, 30)])
def test_intervals_hold_the_truth(rng, n, p):
    inside, ratios = [], []
    for held, truth, _ in try_out(rng, n, p, 20):
        low, high = held.intervals.T
        assert ((low < held.contrasts) & (held.contrasts < high)).all()
        inside.append((low <= truth) & (truth <= high))
        ratios.append(held.contrasts / truth)
        assert (held.note is not None) == (n < 10 * p)
    assert np.mean(inside) > 0.8  # of 40, at .95: P(<= 32) < .001
    assert np.exp(np.mean(np.log(ratios))) == pytest.approx(1.0, abs=0.25)


def test_the_fit_says_too_much(rng):
    found = list(try_out(rng, 60, 40, 5, loading=0.1))
    fit = np.median([contrast.contrast[0] for _, _, contrast in found])
    held, truth = (
        np.median([part[i] for part in values])
        for i, values in enumerate(
            [[(h.contrasts[0],) * 2 for h, _, _ in found], [(t[0],) * 2 for _, t, _ in found]]
        )
    )
    assert fit > 4 * truth
    assert held == pytest.approx(truth, rel=0.5)


def test_are_those_of_leaving_each_row_out(rng):
    """By the definition, with as many folds as rows and a loading that depends on none."""
    X, B = rng.normal(size=(25, 3)) * [4, 1, 1], rng.normal(size=(25, 3))
    contrast = solve_contrast(X, B, 1, loading=0.5)
    found = held_out(make_sample(X), make_sample(B), contrast, folds=25)
    ridge = contrast.loading.diagonal
    orders = [np.random.default_rng(0)]
    orders = [orders[0].permutation(25), orders[0].permutation(25)]
    squares = np.zeros((2, 25))
    for fold in range(25):
        left = [
            np.delete(rows, np.flatnonzero(order == fold), axis=0)
            for rows, order in zip((X, B), orders, strict=True)
        ]
        R_f, R_b = (np.cov(rows.T) for rows in left)
        values, vectors = np.linalg.eig(np.linalg.solve(R_b + np.diag(ridge), R_f))
        v = vectors[:, values.argmax()]
        v /= np.sqrt(v @ (R_b + np.diag(ridge)) @ v)
        for i, (rows, part, order) in enumerate(zip((X, B), left, orders, strict=True)):
            squares[i, order == fold] = ((rows[order == fold] - part.mean(axis=0)) @ v) ** 2
    expected = squares[0].mean() / squares[1].mean()
    assert found.contrasts[0] == pytest.approx(expected, rel=1e-2)


def test_groups_widen_the_intervals(rng):
    X, B = (np.repeat(rng.normal(size=(60, 3)) * s, 6, axis=0) for s in ([3, 1, 1], 1.0))
    labels = np.repeat(np.arange(60), 6)
    contrast = solve_contrast(X, B, 1)
    widths = [
        np.ptp(
            np.log(held_out(*(make_sample(rows, groups=g) for rows in (X, B)), contrast).intervals)
        )
        for g in (None, labels)
    ]
    assert widths[1] > 1.8 * widths[0]


def test_weights_are_those_of_the_population(rng):
    """Rows of weight 0 beside others are as good as not there."""
    X, B = rng.normal(size=(200, 3)) * [3, 1, 1], rng.normal(size=(200, 3))
    X[100:] *= 10.0
    weights = np.repeat([1.0, 1e-9], 100)
    contrast = solve_contrast(Moments.of(X, sample_weight=weights), B, 1)
    found = held_out(make_sample(X, weights=weights), make_sample(B), contrast)
    assert found.contrasts[0] == pytest.approx(9.0, rel=0.4)


def test_heavy_tails_are_noted(rng):
    X, B = np.exp(2.0 * rng.normal(size=(2, 300, 4)))
    X[:, 0] *= 3.0
    found = held_out(make_sample(X), make_sample(B), solve_contrast(X, B, 1))
    assert "the intervals can be too narrow" in found.note


def test_bad_input(rng):
    sides = [make_sample(rng.normal(size=(n, 3))) for n in (30, 3)]
    contrast = solve_contrast(*(rng.normal(size=(2, 30, 3))), 1)
    with pytest.raises(ValueError, match=r"level=95 must be between 0 and 1"):
        held_out(sides[0], sides[0], contrast, level=95)
    with pytest.raises(ValueError, match="at least 4 rows or groups of each set, not 30 and 3"):
        held_out(*sides, contrast)
