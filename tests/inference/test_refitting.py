"""A contrast without some background rows: as if it were solved anew."""

from __future__ import annotations

import numpy as np
import pytest
from cpcapp.inference.refitting import Refitter, can_refit

from cpcapp import Moments, solve_contrast


def correlated(rng, n, p, sizes):
    """Rows of one correlated background, the first of them with more variance along some axes."""
    turn = np.linalg.qr(rng.normal(size=(p, p))).Q
    rows = rng.normal(size=(2, n, p)) * np.geomspace(0.05, 3.0, p)
    rows[0, :, : len(sizes)] *= sizes
    return rows[0] @ turn, rows[1] @ turn


def powers(rows, filters):
    return ((rows @ filters) ** 2).sum(axis=1)


@pytest.mark.parametrize("scaling", ["background", "unit"])
@pytest.mark.parametrize("p", [6, 90])
def test_without_loading_it_is_the_solution(rng, p, scaling):
    X, B = correlated(rng, 300, p, [9.0, 5.0])
    f, b = Moments.of(X), Moments.of(B)
    options = {"loading": "none", "scaling": scaling}
    folds = [np.arange(0, 60), np.arange(60, 130)]
    refitter = Refitter(f, b, solve_contrast(f, b, 2, **options), **options)
    found = list(refitter.without([B[fold] - b.mean for fold in folds]))
    assert len(found) == 2
    for fold, refit in zip(folds, found, strict=True):
        left = Moments.of(np.delete(B, fold, axis=0))
        exact = solve_contrast(f, left, 2, **options)
        np.testing.assert_allclose(refit.mean, left.mean - b.mean, atol=1e-12)
        assert refit.expected_power == pytest.approx(exact.output_covariance.trace(), rel=1e-3)
        # to the steps of Krylov
        np.testing.assert_allclose(powers(X, refit.filters), powers(X, exact.filters), rtol=0.02)


@pytest.mark.parametrize(
    ("sizes", "loud", "counts"),
    [
        ([30.0], 1.0, (2, 0, 0)),
        ([8.0], 4.0, (2, 0, 2)),
        ([30.0, 20.0], 4.0, (3, 0, 3)),
        ([2.0], 0.0, (0, 2, 0)),
    ],
)
def test_steering_stays(sizes, loud, counts):
    """Filters of cPCA, of one ridge for all, and plain ones, also mixed."""
    k = sum(counts)
    rng = np.random.default_rng(0)
    X, B = correlated(rng, 400, 40, sizes)
    X[:, :3] += loud * rng.normal(size=(400, 1))
    f, b = Moments.of(X), Moments.of(B)
    contrast = solve_contrast(f, b, k)
    assert (contrast.steering.n_loud, contrast.steering.n_more) == counts[:2]
    found = next(Refitter(f, b, contrast).without([B[:80] - b.mean]))
    left = Moments.of(B[80:])
    exact = solve_contrast(f, left, k)
    new = B[:80] - left.mean
    ours = powers(new, found.filters) / found.expected_power
    theirs = powers(new, exact.filters) / exact.output_covariance.trace()
    seen = powers(new, contrast.filters) / contrast.output_covariance.trace()
    assert np.corrcoef(ours, theirs)[0, 1] > 0.96
    assert ours.mean() == pytest.approx(theirs.mean(), rel=0.05)
    assert seen.mean() < 0.95 * ours.mean()  # rows that the filters have seen


@pytest.mark.parametrize("loading", ["likelihood", "oas"])
def test_nothing_is_left_of_the_rows_held_out(rng, loading):
    """A feature may be constant without them. Its unit is then another, as in a new solution."""
    X, B = rng.normal(size=(60, 20)), rng.normal(size=(50, 20))
    X[:, 0] *= 4.0
    B[10:, 1] = B[11:, 2] = 0.0
    f, b = Moments.of(X), Moments.of(B)
    contrast = solve_contrast(f, b, 1, loading=loading)
    found = next(Refitter(f, b, contrast, loading=loading).without([B[:10] - b.mean]))
    left = Moments.of(B[10:])
    exact = solve_contrast(f, left, 1, loading=loading)
    new = B[:10] - left.mean
    ours, theirs, seen = (powers(new, one.filters) for one in (found, exact, contrast))
    assert np.corrcoef(ours, theirs)[0, 1] > 0.98
    assert ours.max() / found.expected_power == pytest.approx(
        theirs.max() / exact.output_covariance.trace(), rel=0.3
    )
    if loading == "likelihood":
        assert ours.max() > 1.5 * seen.max()


def test_singular(rng):
    B = rng.normal(size=(12, 10))
    f, b = Moments.of(rng.normal(size=(50, 10))), Moments.of(B)
    refitter = Refitter(f, b, solve_contrast(f, b, 1, loading="none"), loading="none")
    with pytest.raises(np.linalg.LinAlgError):
        list(refitter.without([B[:6] - b.mean]))


def test_few_samples_of_many_features_are_solved_anew(rng):
    few, many = (Moments.of(rng.normal(size=(10, p))) for p in (61, 60))
    assert not can_refit(few, few)
    assert can_refit(many, many)
