"""What takes the data once more: held-out contrasts, and stability of directions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cpcapp import CPCA, CPCAPlusPlus, Moments, bootstrap, held_out_contrasts
from cpcapp.estimators import NoComponentsWarning


def one_direction(rng, n, p, contrast):
    """Two sets that differ in the variance of one feature."""
    X, B = rng.normal(size=(n, p)), rng.normal(size=(n, p))
    X[:, 0] *= np.sqrt(contrast)
    return X, B


class TestHeldOutContrasts:
    def test_unbiased_where_the_contrast_of_the_fit_is_far_too_high(self, rng):
        fitted, held = [], []
        for _ in range(15):
            X, B = one_direction(rng, 60, 40, 9.0)
            est = CPCAPlusPlus(1).fit(X, background=B)
            # What the filter is worth on many new rows is the truth to compare with.
            new, other = one_direction(rng, 20_000, 40, 9.0)
            true = est.transform(new).var() / est.transform(other).var()
            fitted.append(est.contrast_[0] / true)
            held.append(held_out_contrasts(est, X, B).contrasts[0] / true)
        assert np.median(fitted) > 1.6
        assert 0.7 < np.median(held) < 1.3

    @pytest.mark.parametrize(("n", "p"), [(150, 5), (60, 30)])
    def test_intervals_hold_the_truth(self, rng, n, p):
        scale, inside, ratios = np.r_[9.0, 4.0, np.ones(p - 2)], [], []
        for i in range(20):
            X, B = rng.normal(size=(n, p)) * np.sqrt(scale), rng.normal(size=(n, p))
            est = CPCAPlusPlus(2).fit(X, background=B)
            squares = est.components_**2  # in the population
            truth = squares @ scale / squares.sum(axis=1)
            held = held_out_contrasts(est, X, B, random_state=i)
            low, high = held.intervals.T
            assert ((low < held.contrasts) & (held.contrasts < high)).all()
            inside.append((low <= truth) & (truth <= high))
            ratios.append(held.contrasts / truth)
            assert (held.note is not None) == (n < 10 * p)
        assert np.mean(inside) > 0.8  # of 40, at .95: P(<= 32) < .001
        assert np.exp(np.mean(np.log(ratios))) == pytest.approx(1.0, abs=0.25)

    def test_are_those_of_leaving_each_row_out(self, rng):
        """By the definition, with as many folds as rows and a loading that depends on none."""
        X, B = rng.normal(size=(25, 3)) * [4, 1, 1], rng.normal(size=(25, 3))
        est = CPCAPlusPlus(1, loading=0.5).fit(X, background=B)
        found = held_out_contrasts(est, X, B, folds=25)
        orders = [np.random.default_rng(0)]
        orders = [orders[0].permutation(25), orders[0].permutation(25)]
        squares = np.zeros((2, 25))
        for fold in range(25):
            left = [
                np.delete(rows, np.flatnonzero(order == fold), axis=0)
                for rows, order in zip((X, B), orders, strict=True)
            ]
            R_f, R_b = (np.cov(rows.T) for rows in left)
            loaded = R_b + np.diag(est.loading_)
            values, vectors = np.linalg.eig(np.linalg.solve(loaded, R_f))
            v = vectors[:, values.argmax()]
            v /= np.sqrt(v @ loaded @ v)
            for i, (rows, part, order) in enumerate(zip((X, B), left, orders, strict=True)):
                squares[i, order == fold] = ((rows[order == fold] - part.mean(axis=0)) @ v) ** 2
        expected = squares[0].mean() / squares[1].mean()
        assert found.contrasts[0] == pytest.approx(expected, rel=1e-2)

    def test_groups_widen_the_intervals(self, rng):
        X, B = (np.repeat(rng.normal(size=(60, 3)) * s, 6, axis=0) for s in ([3, 1, 1], 1.0))
        est, labels = CPCAPlusPlus(1).fit(X, background=B), np.repeat(np.arange(60), 6)
        found = [
            held_out_contrasts(est, X, B, groups=g, background_groups=g) for g in (None, labels)
        ]
        alone, together = (np.ptp(np.log(one.intervals)) for one in found)
        assert together > 1.8 * alone

    def test_weights_are_those_of_the_population(self, rng):
        """Rows of weight 0 beside others are as good as not there."""
        X, B = rng.normal(size=(200, 3)) * [3, 1, 1], rng.normal(size=(200, 3))
        X[100:] *= 10.0
        weights = {"sample_weight": np.repeat([1.0, 1e-9], 100)}
        est = CPCAPlusPlus(1).fit(X, background=B, **weights)
        assert held_out_contrasts(est, X, B, **weights).contrasts[0] == pytest.approx(9.0, rel=0.4)

    def test_heavy_tails_are_noted(self, rng):
        X, B = np.exp(2.0 * rng.normal(size=(2, 300, 4)))
        X[:, 0] *= 3.0
        found = held_out_contrasts(CPCAPlusPlus(1).fit(X, background=B), X, B)
        assert "the intervals can be too narrow" in found.note

    def test_as_the_estimator_was_fitted(self, rng):
        X, B = one_direction(rng, 200, 6, 9.0)
        w = rng.integers(1, 4, 200)
        est = CPCAPlusPlus(2).fit(X, background=B, sample_weight=w)
        found = held_out_contrasts(est, X, B, sample_weight=w)
        assert found.contrasts.shape == (2,)
        assert found.intervals.shape == (2, 2)
        assert not np.allclose(found.contrasts, held_out_contrasts(est, X, B).contrasts)
        both, mask = np.vstack([X, B]), np.arange(400) >= 200
        marked = held_out_contrasts(
            est, both, is_background=mask, sample_weight=np.r_[w, np.ones(200)]
        )
        np.testing.assert_allclose(marked.contrasts, found.contrasts)

    def test_bad_input(self, rng):
        X, B = one_direction(rng, 50, 6, 9.0)
        est = CPCAPlusPlus(1).fit(X, background=B)
        with pytest.raises(TypeError, match="must be a CPCAPlusPlus, not CPCA"):
            held_out_contrasts(CPCA(1).fit(X, background=B), X, B)
        with pytest.raises(ValueError, match="folds=1 must be at least 2"):
            held_out_contrasts(est, X, B, folds=1)
        for arguments, message in (
            ((X,), "there is no background"),
            ((X[:, :3], B[:, :3]), "X has 3 features, but the estimator was fitted to 6"),
            ((X, Moments.of(B, form="scatter")), "only its moments"),
            ((X, B[:3]), "at least 4 rows or groups of each set, not 50 and 3"),
        ):
            with pytest.raises(ValueError, match=message):
                held_out_contrasts(est, *arguments)
        with pytest.raises(ValueError, match="level=95 must be between 0 and 1"):
            held_out_contrasts(est, X, B, level=95)
        for name in ("missing", "weights"):
            with pytest.raises(TypeError, match=f"'{name}' can't be given; fit takes sample_weigh"):
                held_out_contrasts(est, X, B, **{name: None})


class TestBootstrap:
    @pytest.fixture
    def pair(self, rng):
        return rng.normal(size=(200, 6)) * [5, 3, 1, 1, 1, 1], rng.normal(size=(150, 6))

    def test_what_is_sure_and_what_is_not(self, pair):
        X, B = map(pd.DataFrame, pair)
        est = CPCAPlusPlus(2).fit(X, background=B)
        found = bootstrap(est, X, B, n=40, n_top=1)
        assert found.n_replicates == 40
        np.testing.assert_array_equal(found.top_frequency.argmax(axis=1), [0, 1])
        np.testing.assert_allclose(found.top_frequency.sum(axis=1), 1.0)
        assert np.median(found.angles) < 25
        low, high = np.moveaxis(found.atom_intervals, -1, 0)
        assert ((low <= est.atoms_) & (high >= est.atoms_)).mean() > 0.9
        nothing = CPCAPlusPlus(2).fit(B[:75], background=B[75:])
        assert np.median(bootstrap(nothing, B[:75], B[75:], n=40).angles) > 40
        np.testing.assert_array_equal(bootstrap(est, X, B, n=40).angles, found.angles)

    def test_groups_are_drawn_whole(self, rng):
        """Copies of few rows are no more than those rows."""
        X, B = (np.repeat(rows, 8, axis=0) for rows in one_direction(rng, 30, 5, 4.0))
        est, labels = CPCAPlusPlus(1).fit(X, background=B), np.repeat(np.arange(30), 8)
        alone = bootstrap(est, X, B, n=60)
        together = bootstrap(est, X, B, n=60, groups=labels, background_groups=labels)
        assert together.angles.mean() > 1.5 * alone.angles.mean()

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"n": 1}, "n=1 must be at least 2"),
            ({"confidence": 95}, "confidence=95 must be between 0 and 1"),
            ({"n_top": 0}, "n_top=0 must be at least 1"),
        ],
    )
    def test_bad_input(self, pair, given, message):
        X, B = pair
        with pytest.raises(ValueError, match=message):
            bootstrap(CPCAPlusPlus(1).fit(X, background=B), X, B, **given)

    def test_nothing_to_resample(self, rng):
        X, B = rng.normal(size=(2, 50, 6))
        with pytest.warns(NoComponentsWarning):
            est = CPCAPlusPlus("auto").fit(X, background=B)
        with pytest.raises(ValueError, match="has no components"):
            bootstrap(est, X, B)
