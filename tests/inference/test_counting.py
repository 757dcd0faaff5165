from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import eigh

from cpcapp import CPCAPlusPlus, Moments, ViewsDisagreeWarning, permutation_test
from cpcapp.datasets import mice_like
from cpcapp.estimators import NoComponentsWarning
from cpcapp.inference.glrt import HeavyTailsWarning
from cpcapp.inference.permutation import kept_rows, mean_excess_kurtosis


def t_rows(rng, n, p):
    """Multivariate t with 5 degrees of freedom: one scale for all features of a row."""
    return rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)


def rare_binary(rng, n, p):
    return (rng.random((n, p)) < 0.03).astype(float)


def lognormal(rng, n, p):
    return np.exp(rng.normal(size=(n, p)))


class TestRates:
    @pytest.mark.parametrize("draw", [t_rows, rare_binary, lognormal])
    @pytest.mark.parametrize(("n_f", "n_b", "p"), [(60, 60, 10), (30, 40, 60)])
    def test_false_alarms(self, rng, draw, n_f, n_b, p):
        alarms = sum(
            permutation_test(
                draw(rng, n_f, p), draw(rng, n_b, p), n_permutations=19, random_state=i
            ).n_components
            > 0
            for i in range(60)
        )
        assert alarms <= 9  # binomial(60, .05): 3 expected, P(> 9) < .001

    def test_what_is_there_is_found(self, rng):
        found = 0
        for i in range(20):
            X, B = rng.normal(size=(80, 40)), rng.normal(size=(80, 40))
            X[:, 0] *= np.sqrt(8)
            mixing = np.linalg.qr(rng.normal(size=(40, 40))).Q
            found += permutation_test(X @ mixing, B @ mixing, random_state=i).n_components == 1
        assert found >= 18

    def test_a_difference_of_means_is_no_component(self, rng):
        X, B = rng.normal(size=(60, 20)), rng.normal(size=(60, 20))
        near, far = (permutation_test(X + shift, B).largest for shift in (0.0, 100.0))
        assert near == pytest.approx(far, rel=0.03)
        assert permutation_test(X + 100.0, B).n_components == 0

    @pytest.mark.filterwarnings("ignore::cpcapp.contrast.views.ViewsDisagreeWarning")
    @pytest.mark.parametrize("p", [30, 200])
    @pytest.mark.parametrize("kind", ["rare", "once", "tiny noise"])
    def test_features_that_are_almost_constant_hide_nothing(self, rng, kind, p):
        """Shuffled, each of them would be constant in the background now and then."""
        rare = {
            "rare": lambda: (rng.random((100, p)) < 0.01).astype(float),
            "once": lambda: np.eye(100)[:, rng.integers(100, size=p)],
            "tiny noise": lambda: 5.0 + 1e-6 * rng.normal(size=(100, p)),
        }[kind]
        for _ in range(3):
            X, B = rng.normal(size=(100, 20)), rng.normal(size=(100, 20))
            X[:, 0] += 5.0 * rng.integers(2, size=100)
            X, B = np.hstack([X, rare()]), np.hstack([B, rare()])
            found = permutation_test(X, B)
            assert found.n_components == 1
            # and the solution does not contradict it
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ViewsDisagreeWarning)
                est = CPCAPlusPlus("auto", calibrate=False).fit(X, background=B)
            assert est.n_components_ == 1
            assert est.eigenvalues_[0] > found.threshold

    def test_rows_far_out_hide_nothing(self, rng):
        found = 0
        for i in range(20):
            X, B = t_rows(rng, 80, 40), t_rows(rng, 80, 40)
            X[:, 0] *= np.sqrt(8)
            mixing = np.linalg.qr(rng.normal(size=(40, 40))).Q
            found += permutation_test(X @ mixing, B @ mixing, random_state=i).n_components > 0
        assert found >= 18

    def test_one_strong_feature_among_many_is_found(self, rng):
        """Also where the loading is most of the background."""
        X, B = rng.normal(size=(60, 100)), rng.normal(size=(60, 100))
        X[:, :2] *= 4.0
        assert permutation_test(X, B).n_components == 2


class TestStatistic:
    @pytest.mark.parametrize("loading", ["none", 0.3])
    def test_is_the_eigenvalue_of_the_contrast(self, rng, loading):
        X = rng.normal(size=(50, 8)) * [3, 1, 1, 1, 1, 1, 1, 1] + 5.0
        B = rng.normal(size=(40, 8))
        ridge = 0.0 if loading == "none" else loading * B.var(axis=0).mean()
        # Variances that expect the removed part of the mean difference.
        values = eigh(
            np.cov(X.T, ddof=0), np.cov(B.T, ddof=0) + ridge * np.eye(8), eigvals_only=True
        )
        assert permutation_test(X, B, loading=loading).largest == pytest.approx(
            values[-1], rel=0.03
        )

    @pytest.mark.parametrize("p", [15, 120])
    def test_sparse_is_dense(self, rng, p):
        X, B = rng.poisson(0.3, size=(40, p)) * 1.0, rng.poisson(0.3, size=(50, p)) * 1.0
        X[:, 0] *= 4.0
        X[:, 1] += 3.0
        dense = permutation_test(X, B)
        for kinds in ((sp.csr_array, sp.csr_array), (sp.csc_matrix, np.asarray)):
            found = permutation_test(kinds[0](X), kinds[1](B))
            assert found.n_components == dense.n_components
            assert found.threshold == pytest.approx(dense.threshold, rel=1e-4)

    def test_does_not_depend_on_units(self, rng):
        X, B = rng.normal(size=(50, 8)), rng.normal(size=(40, 8))
        X[:, 0] *= 4.0
        scale = 10.0 ** np.arange(-4, 4)
        one, other = permutation_test(X, B), permutation_test(X * scale, B * scale)
        assert one.threshold == pytest.approx(other.threshold, rel=1e-3)
        assert one.n_components == other.n_components == 1

    def test_a_sample_of_many_rows(self, rng):
        X, B = rng.normal(size=(30_000, 3)) * [2, 1, 1], rng.normal(size=(2000, 3))
        found = permutation_test(X, B, n_permutations=19)
        assert found.n_rows == (8000, 2000)
        assert found.n_components >= 1
        assert found.largest == pytest.approx(4.0, rel=0.15)

    def test_stops_early_where_there_is_nothing(self, rng):
        X, B = rng.normal(size=(50, 8)), rng.normal(size=(40, 8))
        early, late = (permutation_test(X, B, stop_early=stop) for stop in (True, False))
        assert early.n_permutations < late.n_permutations == 99
        assert early.n_components == late.n_components == 0
        assert 0.05 < early.p_value < 1.0


class TestGroups:
    def test_copies_of_rows_are_no_evidence(self, rng):
        labels = np.repeat(np.arange(15), 6)
        alarms = {"rows": 0, "groups": 0}
        for i in range(20):
            X, B = (np.repeat(rng.normal(size=(15, 8)), 6, axis=0) for _ in "fb")
            alarms["rows"] += permutation_test(X, B, random_state=i).n_components > 0
            grouped = permutation_test(
                X, B, groups=labels, background_groups=labels, random_state=i
            )
            alarms["groups"] += grouped.n_components > 0
        assert alarms["groups"] <= 4 < 12 <= alarms["rows"]

    def test_the_estimator_takes_them(self, rng):
        labels = np.repeat(np.arange(15), 6)
        X, B = (np.repeat(rng.normal(size=(15, 8)), 6, axis=0) for _ in "fb")
        with pytest.warns(NoComponentsWarning):
            one = CPCAPlusPlus("auto").fit(X, None, B, groups=labels, background_groups=labels)
        both, mask = np.vstack([X, B]), np.repeat([False, True], 90)
        with pytest.warns(NoComponentsWarning):
            other = CPCAPlusPlus("auto").fit(
                both, is_background=mask, groups=np.concatenate([labels, labels])
            )
        assert one.permutation_test_ == other.permutation_test_
        assert one.permutation_test_.p_value > 0.05

    def test_bad_input(self, rng):
        X, B = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
        for given, message in (
            ({"groups": np.arange(6)}, "groups was given without background_groups"),
            ({"background_groups": np.arange(4)}, "background_groups was given without groups"),
            (
                {"groups": np.arange(5), "background_groups": np.arange(4)},
                r"groups has shape \(5,\); it must be \(6,\)",
            ),
            (
                {"groups": np.zeros(6), "background_groups": np.arange(4)},
                "groups has 1 group; at least 2",
            ),
            (
                {"groups": np.repeat([0, 1], 3), "background_groups": np.repeat([0, 1], 2)},
                "can be arranged in 6 ways only, too few for false_alarm_rate=0.05",
            ),
            (
                {"groups": np.full(6, np.nan), "background_groups": np.arange(4)},
                "groups contains NaN",
            ),
        ):
            with pytest.raises(ValueError, match=message):
                permutation_test(X, B, **given)
        est = CPCAPlusPlus(1)
        with pytest.raises(ValueError, match="groups need the rows of a background"):
            est.fit(X, background=Moments.of(B), groups=np.arange(6))
        with pytest.raises(ValueError, match="background_groups must be None"):
            est.fit(X, is_background=np.arange(6) > 2, background_groups=np.arange(3))


class TestMomentsOnly:
    def test_heavy_tails_are_warned_of(self, rng):
        X, B = t_rows(rng, 300, 5), t_rows(rng, 300, 5)
        X[:, 0] *= 5.0
        with pytest.warns(HeavyTailsWarning, match="X has heavy tails"):
            CPCAPlusPlus("auto").fit(X, background=Moments.of(B))
        X = rng.normal(size=(300, 5)) * [5, 1, 1, 1, 1]
        est = CPCAPlusPlus("auto").fit(X, background=Moments.of(B))
        assert est.n_components_ == 1
        assert est.permutation_test_ is None

    def test_rows_that_moments_still_hold_are_shuffled(self, rng):
        X, B = rng.normal(size=(60, 100)), rng.normal(size=(60, 100))
        X[:, :2] *= 4.0
        est = CPCAPlusPlus("auto").fit_moments(Moments.of(X), Moments.of(B))
        assert est.permutation_test_ == permutation_test(X, B)
        assert kept_rows(Moments.of(X, form="scatter")) is None

    def test_kurtosis(self, rng):
        X = (rng.random((4000, 3)) < 0.1).astype(float)
        # of a Bernoulli variable: (1 - 6pq)/pq
        assert mean_excess_kurtosis(X) == pytest.approx((1 - 0.54) / 0.09, rel=0.1)
        assert mean_excess_kurtosis(sp.csr_array(X)) == pytest.approx(mean_excess_kurtosis(X))
        assert mean_excess_kurtosis(np.ones((5, 2))) == 0.0


def test_count_and_loading_agree():
    data = mice_like(135, 135, random_state=0)
    for loading in ("auto", "oas"):
        est = CPCAPlusPlus("auto", loading=loading).fit(data.target, background=data.background)
        test = est.permutation_test_
        assert 1 <= est.n_components_ <= test.n_components
        assert (est.eigenvalues_ > test.threshold).all()
