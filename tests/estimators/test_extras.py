"""Weights, covariates, several backgrounds and missing values, as `fit` takes them."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn.decomposition
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cpcapp import (
    CPCA,
    CPCAPlusPlus,
    Moments,
    combine_backgrounds,
    held_out_contrasts,
    pairwise_moments,
    permutation_test,
)
from helpers import subspace_angle

KINDS = [np.asarray, sp.csr_array]


@pytest.fixture
def data(rng):
    X = rng.normal(size=(300, 8)) * np.r_[5, 3, 3, np.ones(5)] + 2.0
    B = rng.normal(size=(250, 8)) * np.r_[5, 1, 1, np.ones(5)] - 1.0
    return X, B


def same(a, b, tolerance=1e-8):
    np.testing.assert_allclose(a.components_, b.components_, atol=tolerance)
    np.testing.assert_allclose(a.eigenvalues_, b.eigenvalues_, rtol=tolerance)
    np.testing.assert_allclose(a.mean_, b.mean_, atol=tolerance)


class TestWeights:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("make", [lambda: CPCAPlusPlus(loading=0.01), lambda: CPCA(alpha=1.0)])
    def test_whole_numbers_are_copies(self, rng, data, kind, make):
        X, B = data
        w, v = rng.integers(0, 4, len(X)), rng.integers(0, 4, len(B))
        found = make().fit(kind(X), background=kind(B), sample_weight=w, background_sample_weight=v)
        copies = make().fit(np.repeat(X, w, axis=0), background=np.repeat(B, v, axis=0))
        same(found, copies)

    def test_shrinkage_sees_the_effective_number(self, data):
        X, B = data
        plain = CPCAPlusPlus().fit(X, background=B)
        for factor in (0.5, 7.0):
            weights = {
                "sample_weight": np.full(300, factor),
                "background_sample_weight": np.full(250, factor),
            }
            found = CPCAPlusPlus().fit(X, background=B, **weights)
            same(found, plain)
            assert found.n_samples_seen_ == (300, 250)

    def test_weights_of_marked_rows(self, rng, data):
        X, B = data
        stacked, mask = np.vstack([X, B]), np.r_[np.zeros(300, bool), np.ones(250, bool)]
        weights = rng.random(550)
        order = rng.permutation(550)
        found = CPCAPlusPlus().fit(
            stacked[order], is_background=mask[order], sample_weight=weights[order]
        )
        expected = CPCAPlusPlus().fit(
            X,
            background=B,
            sample_weight=weights[:300],
            background_sample_weight=weights[300:],
        )
        same(found, expected)

    def test_chunks(self, rng, data):
        X, B = data
        w, v = rng.random(300), rng.random(250)
        chunked = CPCAPlusPlus()
        for cut in (slice(0, 100), slice(100, 300)):
            chunked.partial_fit(
                X[cut], background=B[cut], sample_weight=w[cut], background_sample_weight=v[cut]
            )
        whole = CPCAPlusPlus().fit(X, background=B, sample_weight=w, background_sample_weight=v)
        same(chunked, whole)

    def test_in_a_pipeline_with_routing(self, rng, data):
        X, _ = data
        weights = rng.random(300)
        with sklearn.config_context(enable_metadata_routing=True):
            scaler = StandardScaler().set_fit_request(sample_weight=True)
            est = CPCAPlusPlus().set_fit_request(sample_weight=True)
            pipeline = make_pipeline(scaler, est).fit(X, sample_weight=weights)
        scaled = StandardScaler().fit(X, sample_weight=weights).transform(X)
        same(pipeline[-1], CPCAPlusPlus().fit(scaled, sample_weight=weights))

    def test_bad_weights(self, data):
        X, B = data
        for arguments, message in (
            ({"sample_weight": np.ones(3)}, r"sample_weight has shape \(3,\); it must be \(300,\)"),
            ({"sample_weight": np.zeros(300)}, "weights of X are all zero"),
            ({"background_sample_weight": np.ones(300)}, "background_sample_weight has shape"),
            ({"background_sample_weight": -np.ones(250)}, "has -1.0 at row 0"),
        ):
            with pytest.raises(ValueError, match=message):
                CPCAPlusPlus().fit(X, background=B, **arguments)
        with pytest.raises(ValueError, match="Moments takes no weights"):
            CPCAPlusPlus().fit(X, background=Moments.of(B), background_sample_weight=np.ones(250))
        with pytest.raises(ValueError, match="Moments has its weights"):
            CPCAPlusPlus().partial_fit(
                X, background=Moments.of(B), background_sample_weight=np.ones(250)
            )
        with pytest.raises(ValueError, match="do not give background_sample_weight"):
            CPCAPlusPlus().fit(
                X, is_background=np.arange(300) < 9, background_sample_weight=np.ones(250)
            )


class TestSeveralBackgrounds:
    @pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, Moments.of, pd.DataFrame])
    def test_a_list_is_mixed(self, rng, data, kind):
        X, B = data
        other = rng.normal(size=(90, 8)) * 2.0
        made = pd.DataFrame(X) if kind is pd.DataFrame else X
        found = CPCAPlusPlus().fit(made, background=[kind(B), kind(other)])
        expected = CPCAPlusPlus().fit(X, background=combine_backgrounds([B, other]).moments)
        same(found, expected)
        assert found.background_weights_.tolist() == [0.5, 0.5]

    def test_given_weights_and_the_worst(self, rng, data):
        X, B = data
        other = rng.normal(size=(90, 8)) * 2.0
        found = CPCAPlusPlus().fit(X, background=[B, other], background_mixture=[3, 1])
        assert found.background_weights_.tolist() == [0.75, 0.25]
        found = CPCAPlusPlus(1).fit(X, background=(B, other), background_mixture="worst")
        expected = combine_backgrounds([B, other], how="worst", target=X)
        np.testing.assert_allclose(found.background_weights_, expected.weights)
        moments = CPCAPlusPlus(1).fit_moments(
            Moments.of(X), [Moments.of(B), Moments.of(other)], background_mixture="worst"
        )
        same(moments, found)

    def test_a_list_of_rows_is_one_background(self, data):
        X, B = data
        same(CPCAPlusPlus().fit(X, background=B.tolist()), CPCAPlusPlus().fit(X, background=B))

    def test_weights_of_each(self, rng, data):
        X, B = data
        v = rng.random(250)
        found = CPCAPlusPlus().fit(X, background=[B, B], background_sample_weight=[v, None])
        mixed = combine_backgrounds([Moments.of(B, sample_weight=v), B]).moments
        same(found, CPCAPlusPlus().fit(X, background=mixed))

    def test_a_later_fit_forgets_the_mixture(self, data):
        X, B = data
        est = CPCAPlusPlus().fit(X, background=[B, B])
        assert not hasattr(est.fit(X, background=B), "background_weights_")

    def test_bad_input(self, data):
        X, B = data
        for arguments, message in (
            ({"background": B, "background_mixture": "mean"}, "needs a list of backgrounds"),
            ({"background": [B, B], "background_mixture": "best"}, "must be 'mean', 'worst'"),
            ({"background": [B, B[:, :3]]}, "background has 3 features, but X has 8"),
            (
                {"background": [B, B], "background_sample_weight": np.ones(250)},
                "a list with one entry for each of 2 backgrounds",
            ),
        ):
            with pytest.raises(ValueError, match=message):
                CPCAPlusPlus().fit(X, **arguments)
        with pytest.raises(ValueError, match="partial_fit takes one background at a time"):
            CPCAPlusPlus().partial_fit(X, background=[B, B])
        with pytest.raises(ValueError, match="needs a list of backgrounds"):
            CPCAPlusPlus().fit_moments(Moments.of(X), Moments.of(B), background_mixture="mean")


class TestCovariates:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("m", [6, 700])
    def test_as_if_least_squares_had_been_done_before(self, rng, kind, m):
        ages, other = rng.normal(50, 9, 80), rng.normal(40, 9, 70)
        sites, places = rng.choice(["a", "b", "c"], 80), rng.choice(["a", "b"], 70)
        slopes = rng.normal(size=m)
        effects = 9.0 * rng.normal(size=(3, m))
        X = rng.normal(size=(80, m)) + np.outer(ages, slopes) + effects[_codes(sites)]
        B = rng.normal(size=(70, m)) + np.outer(other, slopes) + effects[_codes(places)]
        tables = [
            pd.DataFrame({"age": age, "site": site})
            for age, site in ((ages, sites), (other, places))
        ]
        est = CPCAPlusPlus(loading=0.1).fit(
            kind(X), background=kind(B), covariates=tables[0], background_covariates=tables[1]
        )
        cleaned = []
        for rows, age, site in ((X, ages, sites), (B, other, places)):
            Z = np.column_stack([age, np.eye(3)[_codes(site)]])
            cleaned.append(rows - LinearRegression().fit(Z, rows).predict(Z) + rows.mean(axis=0))
        # Age and the sites that occur cost degrees of freedom: three in X, two in B.
        unbiased = [
            (rows - rows.mean(axis=0)) * np.sqrt(len(rows) / (len(rows) - lost))
            for rows, lost in zip(cleaned, (3, 2), strict=True)
        ]
        expected = CPCAPlusPlus(loading=0.1).fit(unbiased[0], background=unbiased[1])
        np.testing.assert_allclose(est.components_, expected.components_, atol=1e-6)
        np.testing.assert_allclose(est.eigenvalues_, expected.eigenvalues_, rtol=1e-6)
        np.testing.assert_allclose(est.remove_covariates(kind(X), tables[0]), cleaned[0], atol=1e-8)
        np.testing.assert_allclose(
            est.remove_covariates(B, tables[1], side="background"), cleaned[1], atol=1e-8
        )

    def test_a_batch_no_longer_hides_the_signal(self, rng):
        batch = rng.integers(0, 2, 400)
        X = rng.normal(size=(400, 6)) * [1, 1, 3, 1, 1, 1]
        X[:, 0] += 20.0 * batch
        B = rng.normal(size=(400, 6))
        assert CPCAPlusPlus(1).fit(X, background=B).top_features(1)[0][0][0] == "x0"
        est = CPCAPlusPlus(1).fit(
            X,
            background=B,
            covariates=batch.astype(str),
            background_covariates=["0"] * 400,
        )
        assert est.top_features(1)[0][0][0] == "x2"
        copy = pickle.loads(pickle.dumps(est))
        np.testing.assert_array_equal(
            copy.remove_covariates(X, batch.astype(str)),
            est.remove_covariates(X, batch.astype(str)),
        )

    def test_of_marked_rows(self, rng, data):
        X, B = data
        z = rng.normal(size=550)
        found = CPCAPlusPlus().fit(
            np.vstack([X, B]), is_background=np.arange(550) >= 300, covariates=z
        )
        expected = CPCAPlusPlus().fit(
            X, background=B, covariates=z[:300], background_covariates=z[300:]
        )
        same(found, expected)

    def test_for_several_backgrounds(self, rng, data):
        X, B = data
        z, v = rng.normal(size=300), rng.normal(size=250)
        one = CPCAPlusPlus(loading=0.01).fit(X, background=B, covariates=z, background_covariates=v)
        two = CPCAPlusPlus(loading=0.01).fit(
            X, background=[B, B], covariates=z, background_covariates=[v, v]
        )
        same(one, two)

    def test_bad_input(self, rng, data):
        X, B = data
        z, v = rng.normal(size=300), rng.normal(size=250)
        for arguments, message in (
            ({"covariates": z}, "covariates without background_covariates"),
            ({"background_covariates": v}, "background_covariates without covariates"),
            ({"covariates": z[:9], "background_covariates": v}, "covariates has 9 rows, but there"),
            (
                {"covariates": np.where(z > 2, np.nan, z), "background_covariates": v},
                "covariates has NaN in",
            ),
        ):
            with pytest.raises(ValueError, match=message):
                CPCAPlusPlus().fit(X, background=B, **arguments)
        with pytest.raises(ValueError, match="partial_out"):
            CPCAPlusPlus().fit(X, background=Moments.of(B), covariates=z, background_covariates=v)
        est = CPCAPlusPlus().fit(X, background=B)
        with pytest.raises(ValueError, match="fit had no covariates; give them to fit first"):
            est.remove_covariates(X, z)

    def test_effects_that_there_are_not(self, data):
        X, B = data
        z, v = np.arange(300.0), np.arange(250.0)
        several = CPCAPlusPlus().fit(
            X, background=[B, B], covariates=z, background_covariates=[v, v]
        )
        alone = CPCAPlusPlus().fit(X, covariates=z)
        for est, side, message in (
            (several, "background", "fit had several backgrounds, each with effects of its own"),
            (alone, "background", "fit had no background; use side='target'"),
            (alone, "targets", "side='targets' must be one of 'target', 'background'"),
        ):
            with pytest.raises(ValueError, match=message):
                est.remove_covariates(X, z, side=side)

    def test_missing_covariates_are_refused_however_features_are_taken(self, data):
        X, B = data
        z, v = np.arange(300.0), np.arange(250.0)
        z[7] = np.nan
        for missing in ("error", "pairwise"):
            with pytest.raises(ValueError, match="covariates has NaN in 1 rows; fill it in or lea"):
                CPCAPlusPlus(missing=missing).fit(
                    X, background=B, covariates=z, background_covariates=v
                )

    def test_units_of_covariates_do_not_matter(self, rng, data):
        """Nanoseconds since 1970 do not hide the column of ones beside them."""
        X, B = data
        z, v = rng.random(300), rng.random(250)
        X, B = X + 40 * z[:, None], B + 40 * v[:, None]
        given = [
            {"covariates": unit(z), "background_covariates": unit(v)}
            for unit in (np.asarray, lambda days: 1.6e18 + 1e14 * days)
        ]
        fits = [CPCAPlusPlus().fit(X, background=B, **times) for times in given]
        same(*fits)
        tests = [permutation_test(X, B, **times) for times in given]
        assert tests[0].largest == pytest.approx(tests[1].largest, rel=1e-6)
        unseen = [
            held_out_contrasts(est, X, B, **times).contrasts
            for est, times in zip(fits, given, strict=True)
        ]
        np.testing.assert_allclose(*unseen, rtol=1e-6)


class TestCalibration:
    def test_a_background_of_no_weight_is_left_out(self, data):
        X, B = data
        est = CPCAPlusPlus("auto", calibrate=True).fit(
            X, background=[B, 2 * B], background_mixture=[1, 0]
        )
        alone = CPCAPlusPlus("auto", calibrate=True).fit(X, background=B)
        same(est, alone)
        np.testing.assert_array_equal(est.p_value(X), alone.p_value(X))

    def test_rows_count_as_much_as_their_weights_let_them(self, rng):
        """25 rows of 95 % of the weight are no 1025 rows, and small p-values are not to be had."""
        low = []
        for _ in range(20):
            X, few, many, new = (rng.normal(size=(n, 5)) for n in (100, 25, 1000, 2000))
            est = CPCAPlusPlus(1, calibrate=True).fit(
                X, background=[few, many], background_mixture=[0.95, 0.05]
            )
            low.append((est.p_value(new) <= 0.01).mean())
        assert np.mean(low) <= 0.01
        # Kish's number of rows
        assert 1 / est.smallest_p_value_ - 1 == pytest.approx(1 / (0.95**2 / 25 + 0.05**2 / 1000))
        with pytest.raises(ValueError, match="at least 20 background rows, not 25 that count as 2"):
            CPCAPlusPlus(1, calibrate=True).fit(
                X, background=few, background_sample_weight=np.r_[np.ones(2), np.full(23, 1e-3)]
            )


class TestMissing:
    def test_holes_are_taken_pair_by_pair(self, rng, data):
        X, B = (np.where(rng.random(rows.shape) < 0.1, np.nan, rows) for rows in data)
        est = CPCAPlusPlus(missing="pairwise").fit(X, background=B)
        expected = CPCAPlusPlus().fit_moments(pairwise_moments(X), pairwise_moments(B))
        same(est, expected)
        complete = CPCAPlusPlus().fit(data[0], background=data[1])
        assert subspace_angle(est.components_.T, complete.components_.T) < 0.2

    def test_a_missing_value_counts_as_the_mean(self, rng, data):
        X, B = data
        est = CPCAPlusPlus(missing="pairwise").fit(X, background=B)
        holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
        filled = np.where(np.isnan(holes), est.mean_, X)
        np.testing.assert_allclose(est.transform(holes), est.transform(filled), atol=1e-12)
        np.testing.assert_allclose(est.denoise(holes), est.denoise(filled), atol=1e-12)
        behind = np.where(np.isnan(holes), est.background_mean_, X)
        np.testing.assert_allclose(est.power(holes), est.power(behind), atol=1e-10)
        corrected = est.correct(holes)
        np.testing.assert_array_equal(np.isnan(corrected), np.isnan(holes))

    def test_without_holes_nothing_changes(self, data):
        X, B = data
        same(
            CPCAPlusPlus(missing="pairwise").fit(X, background=B),
            CPCAPlusPlus().fit(X, background=B),
        )

    def test_of_marked_rows_with_weights(self, rng, data):
        X, B = (np.where(rng.random(rows.shape) < 0.1, np.nan, rows) for rows in data)
        weights = rng.random(550)
        est = CPCAPlusPlus(missing="pairwise").fit(
            np.vstack([X, B]), is_background=np.arange(550) >= 300, sample_weight=weights
        )
        expected = CPCAPlusPlus().fit_moments(
            pairwise_moments(X, weights[:300]), pairwise_moments(B, weights[300:])
        )
        same(est, expected)

    def test_one_hole_changes_little(self, rng):
        """A feature that is constant in the background is not missing there."""
        X, B = rng.normal(size=(100, 5)), rng.normal(size=(120, 5))
        X[:, 0], B[:, 0] = 50.0 + 4.0 * X[:, 0], 50.0
        holes = B.copy()
        holes[3, 2] = np.nan
        whole = CPCAPlusPlus("auto", calibrate=True).fit(X, background=B)
        est = CPCAPlusPlus("auto", calibrate=True, missing="pairwise").fit(X, background=holes)
        assert est.n_components_ == whole.n_components_ == 1
        np.testing.assert_allclose(est.p_value(X), whole.p_value(X), atol=0.05)

    def test_errors_point_the_way(self, data):
        X, B = (rows.copy() for rows in data)
        X[3, 2] = np.nan
        with pytest.raises(ValueError, match=r"column 2; .*CPCAPlusPlus\(missing='pairwise'\)"):
            CPCAPlusPlus().fit(X, background=B)
        with pytest.raises(ValueError, match="NaN"):
            CPCAPlusPlus().fit(data[0], background=B).transform(X)
        with pytest.raises(ValueError, match="partial_fit takes no missing values; use fit"):
            CPCAPlusPlus(missing="pairwise").partial_fit(X)
        with pytest.raises(ValueError, match="missing='drop' must be one of 'error', 'pairwise'"):
            CPCAPlusPlus(missing="drop").fit(X, background=B)
        X[3, 2] = np.inf
        with pytest.raises(ValueError, match="X contains NaN or infinity in column 2; missing"):
            CPCAPlusPlus(missing="pairwise").fit(X, background=B)
        est = CPCAPlusPlus(missing="pairwise").fit(data[0], background=B)
        with pytest.raises(ValueError, match="infinity"):
            est.transform(X)


class TestCorrect:
    @pytest.mark.parametrize("kind", KINDS)
    def test_without_the_contrast_the_filters_see_nothing(self, data, kind):
        X, B = data
        est = CPCAPlusPlus().fit(X, background=B)
        left = est.correct(kind(X))
        np.testing.assert_allclose(est.transform(left), 0.0, atol=1e-10)
        np.testing.assert_allclose(left + est.denoise(X), X + est.mean_, atol=1e-10)

    def test_without_the_background_its_directions_are_gone(self, rng, data):
        X, B = data
        est = CPCAPlusPlus().fit(X, background=B)
        left = est.correct(X, remove="background", background=B, n_components=1)
        main = np.linalg.eigh(np.cov(B.T))[1][:, -1]
        np.testing.assert_allclose((left - B.mean(axis=0)) @ main, 0.0, atol=1e-10)
        other = np.linalg.eigh(np.cov(B.T))[1][:, :-1]
        np.testing.assert_allclose(left @ other, X @ other, atol=1e-10)
        chunked = CPCAPlusPlus().partial_fit(X, background=B)
        np.testing.assert_allclose(
            chunked.correct(X, remove="background", n_components=1), left, atol=1e-10
        )
        moments = est.correct(X, remove="background", background=Moments.of(B), n_components=1)
        np.testing.assert_allclose(moments, left, atol=1e-10)

    def test_cpca_too(self, data):
        X, B = data
        est = CPCA(alpha=1.0).fit(X, background=B)
        np.testing.assert_allclose(est.transform(est.correct(X)), 0.0, atol=1e-10)

    def test_the_type_of_the_input_is_kept(self, data):
        X, B = data
        est = CPCAPlusPlus().fit(X, background=B)
        assert est.correct(X.astype(np.float32)).dtype == np.float32

    def test_bad_input(self, data):
        X, B = data
        est = CPCAPlusPlus().fit(X, background=B)
        with pytest.raises(ValueError, match="remove='noise' must be one of 'contrast', 'back"):
            est.correct(X, remove="noise")
        with pytest.raises(ValueError, match="needs background="):
            est.correct(X, remove="background")
        with pytest.raises(ValueError, match="background has 3 features, but X has 8"):
            est.correct(X, remove="background", background=B[:, :3])


class TestExplainedVariance:
    def test_without_a_background_it_is_that_of_pca(self, data):
        X, _ = data
        est = CPCAPlusPlus(3).fit(X)
        pca = sklearn.decomposition.PCA(3).fit(X)
        np.testing.assert_allclose(est.explained_variance_, pca.explained_variance_ * 299 / 300)
        np.testing.assert_allclose(
            est.explained_variance_ratio_, pca.explained_variance_ratio_, rtol=1e-9
        )

    @pytest.mark.parametrize("scaling", ["background", "unit"])
    @pytest.mark.parametrize("loading", ["auto", "oas", 0.1])
    @pytest.mark.parametrize("wide", [False, True])
    def test_it_is_what_a_regression_on_the_scores_explains(
        self, rng, data, scaling, loading, wide
    ):
        X, B = data
        if wide:
            X, B = rng.normal(size=(20, 50)) * np.r_[9.0, np.ones(49)], rng.normal(size=(20, 50))
        est = CPCAPlusPlus(3, scaling=scaling, loading=loading).fit(X, background=B)
        scores = est.transform(X)
        for j in range(3):
            fitted = LinearRegression().fit(scores[:, [j]], X).predict(scores[:, [j]])
            expected = fitted.var(axis=0).sum()
            assert est.explained_variance_[j] == pytest.approx(expected, rel=1e-8)
        ratio = est.explained_variance_ratio_
        np.testing.assert_allclose(ratio, est.explained_variance_ / X.var(axis=0).sum(), rtol=1e-9)
        assert ratio.sum() <= 1.0


def _codes(labels):
    return np.searchsorted(["a", "b", "c"], labels)
