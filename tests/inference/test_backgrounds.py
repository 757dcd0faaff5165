from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar

from cpcapp import Moments, combine_backgrounds, solve_contrast, suitable_background
from helpers import examples, random_covariance


class TestMean:
    @pytest.mark.parametrize("m", [3, 200])
    def test_is_the_weighted_mean_of_covariances(self, rng, m):
        parts = [rng.normal(loc=5.0 * i, size=(20 + 10 * i, m)) for i in range(3)]
        found = combine_backgrounds(parts, [1.0, 2.0, 1.0])
        expected = sum(
            share * np.cov(part.T, ddof=0)
            for part, share in zip(parts, (0.25, 0.5, 0.25), strict=True)
        )
        np.testing.assert_allclose(found.moments.covariance(), expected, atol=1e-12)
        assert found.weights.tolist() == [0.25, 0.5, 0.25]
        assert found.moments.is_thin == (m == 200)
        means = sum(w * p.mean(axis=0) for w, p in zip(found.weights, parts, strict=True))
        np.testing.assert_allclose(found.moments.mean, means, atol=1e-12)
        n = 1 / (0.25**2 / 20 + 0.5**2 / 30 + 0.25**2 / 40)
        assert found.moments.n_samples == round(n)

    def test_leaves_the_backgrounds_as_they_were(self, rng):
        sides = [Moments.of(rng.normal(size=(40, 3))) for _ in range(2)]
        before = [side.covariance() for side in sides]
        combine_backgrounds(sides, [0.0, 1.0])
        for side, covariance in zip(sides, before, strict=True):
            np.testing.assert_array_equal(side.covariance(), covariance)

    def test_weights_of_samples_and_of_backgrounds_go_together(self, rng):
        X, weights = rng.normal(size=(40, 3)), rng.random(40) * 1e-3
        found = combine_backgrounds([Moments.of(X, sample_weight=weights), rng.normal(size=(9, 3))])
        expected = np.cov(X.T, aweights=weights, ddof=0)
        other = combine_backgrounds([Moments.of(X, sample_weight=weights)])
        np.testing.assert_allclose(other.moments.covariance(), expected, rtol=1e-12)
        assert found.moments.n_samples > 9


def largest_contrasts(r_f, mixture, k):
    return eigh(r_f, mixture, eigvals_only=True)[::-1][:k]


def population(covariance):
    return Moments.from_covariance(covariance, 10**9)


class TestWorst:
    @examples(25)
    @given(seed=st.integers(0, 1000), k=st.integers(1, 3))
    def test_no_other_mixture_of_two_hides_more(self, seed, k):
        rng = np.random.default_rng(seed)
        r_f, *backgrounds = (random_covariance(rng, 5, 1.5) for _ in range(3))
        found = combine_backgrounds(
            [population(b) for b in backgrounds],
            how="worst",
            target=population(r_f),
            n_components=k,
            tol=1e-6,
        )
        assert found.gap <= 1e-6

        def contrast(share):
            mixture = share * backgrounds[0] + (1 - share) * backgrounds[1]
            return -(1 / largest_contrasts(r_f, mixture, k)).sum()

        best = min(
            minimize_scalar(contrast, bounds=(0, 1), method="bounded").fun, contrast(0), contrast(1)
        )
        assert contrast(found.weights[0]) <= best * (1 - 1e-5)
        assert found.weights.sum() == pytest.approx(1.0)

    def test_many_backgrounds_against_random_mixtures(self, rng):
        r_f, *backgrounds = (random_covariance(rng, 8, 1.5) for _ in range(7))
        found = combine_backgrounds(
            [population(b) for b in backgrounds], how="worst", target=population(r_f)
        )
        assert found.gap <= 1e-3
        mine = largest_contrasts(r_f, np.tensordot(found.weights, backgrounds, 1), 1)[0]
        for shares in rng.dirichlet(np.ones(6), 200):
            other = largest_contrasts(r_f, np.tensordot(shares, backgrounds, 1), 1)[0]
            assert mine <= other * 1.002

    def test_a_background_that_hides_everything_takes_all(self, rng):
        r_f, small = random_covariance(rng, 4), random_covariance(rng, 4)
        found = combine_backgrounds(
            [population(small), population(100 * small)], how="worst", target=population(r_f)
        )
        np.testing.assert_allclose(found.weights, [0.0, 1.0], atol=1e-9)

    def test_the_filter_is_special_against_each(self, rng):
        """Two nuisances, each in one background only, and a signal that neither has."""
        X = rng.normal(size=(2000, 10)) * np.r_[8, 8, 4, np.ones(7)]
        first, second = (rng.normal(size=(2000, 10)) for _ in range(2))
        first[:, 0] *= 8
        second[:, 1] *= 8
        for single in (first, second):
            filters = solve_contrast(X, single, 1, loading="oas").filters
            assert np.abs(filters[:, 0]).argmax() in (0, 1)
        worst = combine_backgrounds([first, second], how="worst", target=X)
        filters = solve_contrast(X, worst.moments, 1, loading="oas").filters
        assert np.abs(filters[:, 0]).argmax() == 2

    def test_it_stops_when_told_and_says_how_far_it_is(self, rng):
        r_f, *backgrounds = (random_covariance(rng, 8, 2.0) for _ in range(6))
        found = combine_backgrounds(
            [population(b) for b in backgrounds],
            how="worst",
            target=population(r_f),
            tol=1e-12,
            max_iter=2,
        )
        assert found.n_iter == 2
        assert found.gap > 1e-12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"how": "best"}, "how='best' must be one of 'mean', 'worst'"),
        ({"backgrounds": []}, "backgrounds is empty"),
        ({"backgrounds": [np.eye(3), np.eye(4)]}, "backgrounds have 3, 4 features"),
        ({"backgrounds": [np.ones((1, 3))]}, r"backgrounds\[0\] has n_samples=1"),
        ({"backgrounds": [np.full((3, 3), np.nan)]}, r"backgrounds\[0\]: .*NaN"),
        ({"weights": [1.0]}, r"weights has shape \(1,\); it must be \(2,\)"),
        ({"weights": [1.0, -1.0]}, "must be at least 0, and not all 0"),
        ({"weights": [0.0, 0.0]}, "not all 0"),
        ({"how": "worst"}, "needs the target"),
        ({"how": "worst", "weights": [1, 1], "target": np.eye(3)}, "finds the weights"),
        ({"how": "worst", "target": np.eye(4)}, "but the target has 4"),
        ({"how": "worst", "target": np.eye(3), "n_components": 9}, "must be between 1 and 3"),
        ({"how": "worst", "target": np.eye(2, 3), "n_components": 3}, "at most the rank"),
    ],
)
def test_bad_input(change, message):
    arguments = {"backgrounds": [np.eye(3), np.eye(3)]} | change
    with pytest.raises(ValueError, match=message):
        combine_backgrounds(**arguments)


class TestSuitable:
    def test_common_and_not_all_comes_first(self, rng):
        loud, signal = np.r_[9, 7, np.ones(10)], np.r_[1, 1, 4, np.ones(9)]
        X = rng.normal(size=(400, 12)) * loud * signal
        candidates = {
            "unrelated": rng.normal(size=(400, 12)) * loud[::-1],
            "same": rng.normal(size=(400, 12)) * loud * signal,
            "few": rng.normal(size=(10, 12)) * loud,
            "control": rng.normal(size=(400, 12)) * loud,
        }
        table = suitable_background(X, candidates, k=2)
        assert [row.name for row in table] == ["control", "unrelated", "few", "same"]
        control, unrelated, few, same = table
        assert control.n_significant == 1
        assert control.overlap > 0.95 > 0.2 > unrelated.overlap
        assert (few.n_significant, few.threshold) == (None, None)
        assert same.n_significant == 0
        assert control.overlap_by_chance == pytest.approx(2 / 12)
        assert control.threshold > 1

    def test_a_list_is_numbered_and_k_is_cut_to_what_there_is(self, rng):
        table = suitable_background(rng.normal(size=(50, 3)), rng.normal(size=(2, 40, 3)), k=50)
        assert sorted(row.name for row in table) == ["0", "1"]
        assert table[0].overlap == pytest.approx(1.0)

    def test_bad_input(self, rng):
        X = rng.normal(size=(50, 3))
        with pytest.raises(ValueError, match="candidate 'b' has 2 features"):
            suitable_background(X, {"a": X, "b": X[:, :2]})
        with pytest.raises(ValueError, match="candidates is empty"):
            suitable_background(X, [])
        with pytest.raises(ValueError, match="k=0 must be at least 1"):
            suitable_background(X, [X], k=0)
