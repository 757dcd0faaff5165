from __future__ import annotations

import gc
import pickle
import weakref

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from cpcapp import CPCA, CPCAPlusPlus, Moments, solve_contrast
from cpcapp.datasets import mice_like, synthetic
from cpcapp.estimators import LawOfNoiseWarning, NoComponentsWarning
from helpers import correlated, peak_bytes, random_covariance, subspace_angle


@pytest.fixture
def data():
    return synthetic(random_state=1)


@pytest.fixture
def fitted(data):
    return CPCAPlusPlus().fit(data.target, background=data.background)


class TestFit:
    def test_is_solve_contrast(self, data, fitted):
        found = solve_contrast(data.target, data.background, 2)
        np.testing.assert_array_equal(fitted.components_, found.filters.T)
        np.testing.assert_array_equal(fitted.atoms_, found.atoms.T)
        np.testing.assert_array_equal(fitted.eigenvalues_, found.eigenvalues)
        np.testing.assert_array_equal(fitted.contrast_, found.contrast)
        assert fitted.bound_ == found.bound
        np.testing.assert_array_equal(fitted.loading_, found.loading.diagonal)
        assert fitted.shrinkage_ == 1 - found.loading.weight
        np.testing.assert_allclose(fitted.mean_, data.target.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(
            fitted.background_mean_, data.background.mean(axis=0), atol=1e-12
        )
        assert fitted.n_samples_seen_ == (400, 400)
        assert fitted.n_components_ == 2
        assert fitted.solver_ == "dense"

    def test_returns_itself(self, data):
        est = CPCAPlusPlus()
        assert est.fit(data.target, background=data.background) is est

    def test_separates_the_papers_classes(self, data, fitted):
        Y = fitted.transform(data.target)
        centres = np.array([Y[data.labels == k].mean(axis=0) for k in range(4)])
        nearest = ((Y[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        assert (nearest == data.labels).mean() > 0.99

    def test_is_background_is_the_same(self, data, fitted, rng):
        both = np.vstack([data.target, data.background])
        mask = np.r_[np.zeros(400, bool), np.ones(400, bool)]
        order = rng.permutation(800)
        for flags in (mask, mask.astype(int), mask.tolist()):
            est = CPCAPlusPlus().fit(both[order], is_background=np.asarray(flags)[order])
            np.testing.assert_allclose(est.components_, fitted.components_, atol=1e-10)

    @pytest.mark.parametrize("make", [sp.csr_array, sp.csc_array, sp.csr_matrix, np.asfortranarray])
    def test_other_containers(self, data, fitted, make):
        est = CPCAPlusPlus().fit(make(data.target), background=make(data.background))
        np.testing.assert_allclose(est.components_, fitted.components_, atol=1e-9)
        reduced = est.transform(make(data.target))
        np.testing.assert_allclose(reduced, fitted.transform(data.target), atol=1e-9)

    def test_background_as_moments_is_left_as_it_was(self, data, fitted):
        background = Moments.of(data.background)
        est = CPCAPlusPlus().fit(data.target, background=background)
        np.testing.assert_array_equal(est.components_, fitted.components_)
        assert background.n_samples == 400
        np.testing.assert_allclose(background.covariance(), np.cov(data.background.T, ddof=0))

    def test_fit_moments(self, data, fitted):
        target, background = Moments.of(data.target), Moments.of(data.background)
        est = CPCAPlusPlus(loading=0.1).fit_moments(target, background)
        whole = CPCAPlusPlus(loading=0.1).fit(data.target, background=data.background)
        np.testing.assert_array_equal(est.components_, whole.components_)
        assert CPCAPlusPlus().fit_moments(target, background).bound_ == 12.0  # no rows to look at
        assert target.n_samples == 400
        assert est.transform(data.target).shape == (400, 2)
        with pytest.raises(TypeError, match="target must be Moments, not ndarray; use fit"):
            CPCAPlusPlus().fit_moments(data.target, background)
        with pytest.raises(ValueError, match="background holds no samples yet"):
            CPCAPlusPlus().fit_moments(target, Moments())

    def test_moments_after_a_data_frame_have_no_names(self, data):
        frame = pd.DataFrame(data.target, columns=data.feature_names)
        est = CPCAPlusPlus().fit(frame, background=data.background)
        est.fit_moments(Moments.of(data.target[:, :4]), Moments.of(data.background[:, :4]))
        assert not hasattr(est, "feature_names_in_")
        assert [name for name, _ in est.top_features(4)[0]] != data.feature_names[:4]

    def test_again_forgets_the_first(self, data, fitted, rng):
        fitted.fit(rng.normal(size=(50, 4)), background=rng.normal(size=(60, 4)))
        assert fitted.components_.shape == (2, 4)
        assert fitted.n_samples_seen_ == (50, 60)

    def test_integers_and_booleans(self, rng):
        X, B = rng.integers(0, 9, size=(90, 5)), rng.integers(0, 9, size=(80, 5))
        expected = CPCAPlusPlus().fit(X.astype(float), background=B.astype(float))
        np.testing.assert_allclose(
            CPCAPlusPlus().fit(X, background=B).components_, expected.components_
        )
        assert CPCAPlusPlus(1).fit(X > 4, background=B > 4).components_.shape == (1, 5)

    def test_few_samples_of_many_features(self, rng):
        X, B = rng.normal(size=(30, 2000)), rng.normal(size=(40, 2000))
        X[:15, 700:760] += 3.0
        est = CPCAPlusPlus(1)
        assert peak_bytes(lambda: est.fit(X, background=B)) < 2000 * 2000 * 8 / 4
        assert est.solver_ == "dual"
        assert abs(np.corrcoef(est.transform(X)[:, 0], np.arange(30) < 15)[0, 1]) > 0.95

    def test_without_background_is_pca(self, data):
        est, pca = CPCAPlusPlus(3).fit(data.target), PCA(3).fit(data.target)
        np.testing.assert_allclose(
            np.abs(est.components_ @ pca.components_.T), np.eye(3), atol=1e-8
        )
        np.testing.assert_allclose(est.eigenvalues_, pca.explained_variance_ * 399 / 400)
        np.testing.assert_allclose(
            np.abs(est.transform(data.target)), np.abs(pca.transform(data.target)), atol=1e-8
        )
        assert est.background_mean_ is None
        assert est.loading_ is None
        assert est.shrinkage_ is None

    def test_features_1e16_apart_in_scale(self, rng):
        """The default settings must not depend on the units of the features."""
        mixing = random_covariance(rng, 6)
        X = correlated(rng, 300, mixing) + rng.normal(size=(300, 1)) * 4 * rng.normal(size=6)
        B = correlated(rng, 300, mixing)
        units = np.array([1e-8, 1e8, 1e-3, 1e5, 1.0, 1e-6])
        plain = CPCAPlusPlus(1).fit(X, background=B)
        scaled = CPCAPlusPlus(1).fit(X * units, background=B * units)
        np.testing.assert_allclose(scaled.eigenvalues_, plain.eigenvalues_, rtol=1e-8)
        assert subspace_angle(scaled.components_.T * units[:, None], plain.components_.T) < 1e-6
        np.testing.assert_allclose(
            np.abs(scaled.transform(X * units)), np.abs(plain.transform(X)), rtol=1e-6, atol=1e-8
        )


class TestMemory:
    def test_keeps_no_reference_to_the_data(self, rng):
        class Array(np.ndarray):
            """Can be watched, unlike a plain array."""

        X = rng.normal(size=(500, 4)).view(Array)
        B = rng.normal(size=(500, 4)).view(Array)
        watched = [weakref.ref(X), weakref.ref(B)]
        est = CPCAPlusPlus().fit(X, background=B)
        del X, B
        gc.collect()
        assert [ref() for ref in watched] == [None, None]
        assert est.components_.shape == (2, 4)

    def test_a_fitted_model_is_small(self, rng):
        est = CPCAPlusPlus().fit(
            rng.normal(size=(900, 300)), background=rng.normal(size=(900, 300))
        )
        # Filters and atoms of both views, means, loading and variances.
        assert len(pickle.dumps(est)) < 14 * 300 * 8
        thin = CPCAPlusPlus().fit(rng.normal(size=(90, 300)), background=rng.normal(size=(90, 300)))
        assert len(pickle.dumps(thin)) < 14 * 300 * 8

    @pytest.mark.parametrize("loc", [0.0, 100.0])
    def test_a_memory_map_is_never_read_whole(self, rng, tmp_path, loc):
        n, m = 30_000, 300
        X = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=float, shape=(n, m))
        X[:] = rng.normal(loc, size=(n, m))
        X.flush()
        X = np.load(tmp_path / "x.npy", mmap_mode="r")
        est = CPCAPlusPlus()
        assert peak_bytes(lambda: est.fit(X, background=X[:10_000])) < X.nbytes / 2
        mask = np.arange(n) < 10_000
        assert peak_bytes(lambda: est.fit(X, is_background=mask)) < X.nbytes / 2


class TestPartialFit:
    @given(
        pieces=st.lists(
            st.tuples(st.booleans(), st.integers(1, 40)), min_size=4, max_size=12
        ).filter(lambda p: {side for side, _ in p} == {True, False}),
        seed=st.integers(0, 100),
    )
    def test_any_interleaving_is_fit(self, pieces, seed):
        rng = np.random.default_rng(seed)
        est = CPCAPlusPlus(1)
        seen = {True: [rng.normal(size=(5, 4))], False: [rng.normal(size=(5, 4))]}
        est.partial_fit(seen[True][0], background=seen[False][0])
        for is_target, n in pieces:
            chunk = rng.normal(loc=100, size=(n, 4)) * [1, 2, 3, 4 + is_target]
            seen[is_target].append(chunk)
            est.partial_fit(chunk) if is_target else est.partial_fit(background=chunk)
        X, B = np.vstack(seen[True]), np.vstack(seen[False])
        whole = CPCAPlusPlus(1).fit(X, background=B)
        np.testing.assert_allclose(est.eigenvalues_, whole.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(est.components_, whole.components_, rtol=1e-5, atol=1e-8)
        assert est.n_samples_seen_ == (len(X), len(B))

    def test_results_between_chunks(self, data):
        est = CPCAPlusPlus()
        for i in range(0, 400, 100):
            est.partial_fit(data.target[i : i + 100], background=data.background[i : i + 100])
            seen = CPCAPlusPlus().fit(data.target[: i + 100], background=data.background[: i + 100])
            np.testing.assert_allclose(est.eigenvalues_, seen.eigenvalues_, rtol=1e-9)

    def test_background_first(self, data, fitted):
        est = CPCAPlusPlus().partial_fit(background=data.background)
        with pytest.raises(NotFittedError, match="only background has been seen"):
            est.transform(data.target)
        est.partial_fit(data.target)
        np.testing.assert_allclose(est.components_, fitted.components_, atol=1e-10)

    def test_background_as_moments(self, data, fitted):
        est = CPCAPlusPlus().partial_fit(background=Moments.of(data.background))
        est.partial_fit(data.target)
        np.testing.assert_allclose(est.components_, fitted.components_, atol=1e-10)

    def test_only_target_is_pca(self, data):
        est = CPCAPlusPlus().partial_fit(data.target[:50]).partial_fit(data.target[50:])
        np.testing.assert_allclose(
            est.components_, CPCAPlusPlus().fit(data.target).components_, atol=1e-9
        )

    def test_a_bad_chunk_loses_nothing(self, data, fitted):
        est = CPCAPlusPlus().partial_fit(data.target, background=data.background)
        bad = data.target.copy()
        bad[3, 5] = np.nan
        for arguments in (
            {"X": bad},
            {"X": data.target, "background": bad},
            {"X": data.target[:, :4]},
            {"X": data.target, "background": data.target[:, :4]},
        ):
            with pytest.raises(ValueError, match=r"."):
                est.partial_fit(**arguments)
        np.testing.assert_allclose(est.components_, fitted.components_, atol=1e-10)
        assert est.n_samples_seen_ == (400, 400)

    def test_after_fit_starts_anew_and_says_so(self, data, fitted):
        with pytest.warns(UserWarning, match="partial_fit starts anew after fit"):
            fitted.partial_fit(data.target[:100], background=data.background)
        assert fitted.n_samples_seen_ == (100, 400)

    def test_goes_on_after_pickling(self, data, fitted):
        est = CPCAPlusPlus().partial_fit(data.target[:150], background=data.background[:350])
        est = pickle.loads(pickle.dumps(est))
        est.partial_fit(data.target[150:], background=data.background[350:])
        np.testing.assert_allclose(est.components_, fitted.components_, atol=1e-9)


class TestMaps:
    def test_transform_is_the_paper(self, data, fitted):
        expected = (data.target - data.target.mean(axis=0)) @ fitted.components_.T
        np.testing.assert_allclose(fitted.transform(data.target), expected, atol=1e-10)
        np.testing.assert_allclose(
            CPCAPlusPlus().fit_transform(data.target, background=data.background),
            expected,
            atol=1e-10,
        )

    def test_there_and_back(self, data, fitted):
        Y = fitted.transform(data.target)
        X = fitted.inverse_transform(Y)
        assert X.shape == data.target.shape
        np.testing.assert_allclose(fitted.transform(X), Y, atol=1e-9)  # FᵀW = I
        np.testing.assert_allclose(fitted.denoise(data.target), X, atol=1e-10)

    def test_with_all_components_nothing_is_lost(self, data):
        est = CPCAPlusPlus(30).fit(data.target, background=data.background)
        np.testing.assert_allclose(est.denoise(data.target), data.target, atol=1e-8)

    def test_deviations_survive_a_large_mean(self, rng):
        X, B = rng.normal(size=(300, 4)) * [1, 1, 1, 5], rng.normal(size=(300, 4))
        near = CPCAPlusPlus(1).fit(X, background=B)
        far = CPCAPlusPlus(1).fit(X + 1e8, background=B + 1e8)
        np.testing.assert_allclose(far.transform(X + 1e8), near.transform(X), atol=1e-6)

    def test_float32_stays_float32(self, data, fitted):
        small = data.target.astype(np.float32)
        assert fitted.transform(small).dtype == np.float32
        assert fitted.inverse_transform(fitted.transform(small)).dtype == np.float32
        assert fitted.denoise(small).dtype == np.float32
        np.testing.assert_allclose(
            fitted.transform(small), fitted.transform(data.target), atol=1e-4
        )

    def test_signs_and_repeats(self, data):
        a, b = (CPCAPlusPlus(5).fit(data.target, background=data.background) for _ in range(2))
        np.testing.assert_array_equal(a.components_, b.components_)
        assert (a.components_.max(axis=1) >= -a.components_.min(axis=1)).all()

    def test_wrong_number_of_components(self, fitted):
        with pytest.raises(ValueError, match="Y has 3 components, but CPCAPlusPlus has 2"):
            fitted.inverse_transform(np.ones((4, 3)))


class TestPower:
    def test_is_the_squared_norm(self, data, fitted):
        outputs = (data.target - data.background.mean(axis=0)) @ fitted.components_.T
        np.testing.assert_allclose(fitted.power(data.target), (outputs**2).sum(axis=1))

    def test_target_stands_out(self, data, fitted):
        fresh = synthetic(random_state=2)
        fitted.set_params(calibrate=True).fit(data.target, background=data.background)
        assert np.median(fitted.p_value(fresh.target)) == fitted.smallest_p_value_ == 1 / 401
        assert np.median(fitted.p_value(fresh.background)) > 0.3

    @pytest.mark.parametrize("loading", ["auto", "none", 0.1])
    @pytest.mark.parametrize("scaling", ["background", "unit"])
    @pytest.mark.parametrize("n_background", [80, 1000])
    def test_p_values_hold_for_new_background(self, rng, loading, scaling, n_background):
        """Also where the filters had 80 samples of 30 features to be overfitted to.

        There the filters of the folds, which had fewer still, do worse than those of all rows, and
        p-values are on the safe side.
        """
        rates = []
        for _ in range(20):
            mixing = rng.normal(size=(30, 30))
            X = correlated(rng, 300, mixing)
            X += rng.normal(size=(300, 2)) @ rng.normal(size=(2, 30)) * 8
            est = CPCAPlusPlus(2, loading=loading, scaling=scaling, calibrate=True)
            est.fit(X, background=correlated(rng, n_background, mixing))
            rates.append((est.p_value(correlated(rng, 1000, mixing)) < 0.05).mean())
        assert (0.005 if n_background == 80 else 0.035) < np.mean(rates) < 0.065

    def test_without_background(self, data):
        est = CPCAPlusPlus().fit(data.target)
        assert est.power(data.target).shape == (400,)
        with pytest.raises(ValueError, match="p_value needs a background"):
            est.p_value(data.target)


class TestAuto:
    def test_two_on_the_papers_example(self, data):
        for how in ("auto", "permutation"):
            est = CPCAPlusPlus(how).fit(data.target, background=data.background)
            assert est.n_components_ == 2

    def test_nothing_found_is_said_in_a_stream_too(self, rng):
        X, B = rng.normal(size=(200, 10)), rng.normal(size=(300, 10))
        est = CPCAPlusPlus("auto", false_alarm_rate=0.001)
        with pytest.warns(NoComponentsWarning):
            est.partial_fit(X, background=B)
        assert est.transform(X).shape == (200, 0)
        with pytest.warns((NoComponentsWarning, LawOfNoiseWarning)):
            est.fit_moments(Moments.of(X), Moments.of(B))

    def test_adding_up_only(self, data, fitted):
        est = CPCAPlusPlus()
        for i in range(0, 400, 100):
            rows = slice(i, i + 100)
            est.partial_fit(data.target[rows], background=data.background[rows], solve=False)
        with pytest.raises(NotFittedError, match="call it with solve=True"):
            est.transform(data.target)
        np.testing.assert_allclose(est.partial_fit().components_, fitted.components_, atol=1e-9)

    def test_none_for_one_population(self, rng):
        X, B = rng.normal(size=(200, 10)), rng.normal(size=(300, 10))
        with pytest.warns(NoComponentsWarning, match="'auto' found no component") as caught:
            est = CPCAPlusPlus("auto", false_alarm_rate=0.001).fit(X, background=B)
        assert caught[0].filename == __file__
        for said in ("false_alarm_rate=0.001", "0 columns", "give n_components as a number"):
            assert said in str(caught[0].message)
        assert est.n_components_ == 0
        assert est.components_.shape == (0, 10)
        assert est.transform(X).shape == (200, 0)
        assert est.get_feature_names_out().tolist() == []
        np.testing.assert_allclose(est.denoise(X), np.tile(X.mean(axis=0), (200, 1)))

    def test_fewer_samples_than_features(self, rng):
        X, B = rng.normal(size=(60, 150)), rng.normal(size=(70, 150))
        X += rng.normal(size=(60, 2)) @ rng.normal(size=(2, 150)) * 3
        both, mask = np.vstack([X, B]), np.r_[np.zeros(60, bool), np.ones(70, bool)]
        for est in (
            CPCAPlusPlus("auto").fit(X, background=B),
            CPCAPlusPlus("auto").fit(both, is_background=mask),
            CPCAPlusPlus("auto").fit(sp.csr_array(X), background=sp.csr_array(B)),
        ):
            assert est.n_components_ == 2

    def test_copies_of_a_feature(self, rng):
        X, B = rng.normal(size=(100, 6)), rng.normal(size=(100, 6))
        X[:, 0] *= 5
        X[:, 5], B[:, 5] = X[:, 4], B[:, 4]
        assert CPCAPlusPlus("auto").fit(X, background=B).n_components_ == 1

    def test_more_than_a_handful(self, rng):
        X, B = rng.normal(size=(400, 30)), rng.normal(size=(400, 30))
        X[:, :12] *= 6
        for how in ("auto", "permutation"):
            assert CPCAPlusPlus(how).fit(X, background=B).n_components_ == 12

    def test_from_moments(self, data):
        target, background = Moments.of(data.target), Moments.of(data.background)
        with pytest.warns(LawOfNoiseWarning):
            assert CPCAPlusPlus("auto").fit_moments(target, background).n_components_ == 2
        with pytest.raises(ValueError, match="must permute the samples"):
            CPCAPlusPlus("permutation").fit_moments(target, background)
        with pytest.raises(ValueError, match="only Moments are at hand"):
            CPCAPlusPlus("permutation").fit(data.target, background=background)

    def test_needs_a_background(self, data):
        with pytest.raises(ValueError, match="n_components='auto' needs a background"):
            CPCAPlusPlus("auto").fit(data.target)


class TestBadInput:
    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_the_column_is_named(self, data, bad):
        X = pd.DataFrame(data.target, columns=data.feature_names)
        B = pd.DataFrame(data.background, columns=data.feature_names)
        X.iloc[7, 3] = bad
        with pytest.raises(ValueError, match="X contains NaN or infinity in column 'h1_4'"):
            CPCAPlusPlus().fit(X, background=B)
        with pytest.raises(
            ValueError, match="background contains NaN or infinity in column 'h1_4'"
        ):
            CPCAPlusPlus().fit(B, background=X)
        with pytest.raises(ValueError, match="X contains NaN or infinity in column 3"):
            CPCAPlusPlus().fit(X.to_numpy())
        est = CPCAPlusPlus().fit(B)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            est.transform(X)

    @pytest.mark.parametrize(
        ("k", "error", "message"),
        [
            (0, ValueError, "n_components=0 must be between 1 and 30"),
            (31, ValueError, "n_components=31 must be between 1 and 30"),
            (2.0, TypeError, "n_components=2.0 must be a whole number"),
            ("some", ValueError, "n_components='some' must be a whole number, 'auto'"),
            (None, TypeError, "n_components=None must be a whole number"),
        ],
    )
    def test_n_components(self, data, k, error, message):
        with pytest.raises(error, match=message):
            CPCAPlusPlus(k).fit(data.target, background=data.background)

    def test_too_many_for_the_samples(self, data):
        with pytest.raises(ValueError, match="n_components=5 must be at most 3"):
            CPCAPlusPlus(5).fit(data.target[:4], background=data.background)

    def test_too_many_for_the_rank(self, data, rng):
        X = rng.normal(size=(90, 2)) @ rng.normal(size=(2, 30))
        with pytest.raises(ValueError, match=r"n_components=3 must be at most 2 \(the rank"):
            CPCAPlusPlus(3).fit(X, background=data.background)
        with pytest.raises(ValueError, match="n_components=2 but the target does not vary at all"):
            CPCAPlusPlus(2).fit(np.ones((9, 30)), background=data.background)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    @pytest.mark.parametrize("kind", [pd.DataFrame, sp.csr_array])
    def test_transform_names_what_is_not_finite(self, data, value, kind):
        rows = kind(data.target)
        est = CPCAPlusPlus().fit(rows, background=kind(data.background))
        broken = data.target.copy()
        broken[3, 4] = value
        with pytest.raises(ValueError, match="X contains NaN or infinity in column 4; remove"):
            est.transform(kind(broken))

    def test_backgrounds_that_do_not_fit(self, data):
        X, B = data.target, data.background
        with pytest.raises(ValueError, match="background has 29 features, but X has 30"):
            CPCAPlusPlus().fit(X, background=B[:, 1:])
        with pytest.raises(ValueError, match="background has 29 features, but X has 30"):
            CPCAPlusPlus().fit(X, background=Moments.of(B[:, 1:]))
        with pytest.raises(ValueError, match="0 sample"):
            CPCAPlusPlus().fit(X, background=B[:0])
        with pytest.raises(ValueError, match=r"background: .*minimum of 2 is required"):
            CPCAPlusPlus().fit(X, background=B[:1])
        with pytest.raises(ValueError, match="background does not vary at all"):
            CPCAPlusPlus().fit(X, background=np.ones((50, 30)))
        with pytest.raises(ValueError, match="it looks like a background"):
            CPCAPlusPlus().fit(X, B)

    def test_names_that_do_not_fit(self, data):
        X = pd.DataFrame(data.target, columns=data.feature_names)
        B = pd.DataFrame(data.background, columns=data.feature_names)
        swapped = B[[*data.feature_names[1::-1], *data.feature_names[2:]]]
        with pytest.raises(ValueError, match="column 0 is 'h1_2' in background, but it was 'h1_1'"):
            CPCAPlusPlus().fit(X, background=swapped)
        with pytest.raises(ValueError, match="feature names"):
            CPCAPlusPlus().fit(X, background=B).transform(swapped)

    @pytest.mark.parametrize("estimator", [CPCAPlusPlus(), CPCA(alpha=1.0)])
    def test_columns_of_text_are_named(self, data, estimator):
        X = pd.DataFrame(data.target, columns=data.feature_names)
        sound = estimator.fit(X, background=X)
        text = X.copy()
        text["h1_2"] = "healthy"
        text["h1_4"] = pd.Categorical(["a", "b"] * 200)
        text["h1_5"] = pd.Timestamp(0)
        text["h1_6"] = text["h1_6"].astype(object)  # numbers all the same
        said = "has 3 columns of text .* no numbers: 'h1_2', 'h1_4', 'h1_5'; drop them, or turn"
        for call in (lambda: clone(estimator).fit(text), lambda: sound.transform(text)):
            with pytest.raises(ValueError, match=f"X {said}"):
                call()
        with pytest.raises(ValueError, match=f"background {said}"):
            clone(estimator).fit(X, background=text)
        many = X.astype(str) + "?"
        with pytest.raises(ValueError, match=r"30 columns .*: 'h1_1', .*, 'h1_5' and 25 more; "):
            clone(estimator).fit(many)

    def test_columns_of_text_in_a_stream(self, data):
        X = pd.DataFrame(data.target, columns=data.feature_names)
        text = X.assign(h1_2="healthy")
        est = CPCAPlusPlus()
        with pytest.raises(ValueError, match="X has 1 column of text"):
            est.partial_fit(text)
        with pytest.raises(ValueError, match="background has 1 column of text"):
            est.partial_fit(background=text)
        with pytest.raises(ValueError, match="background has 1 column of text"):
            est.partial_fit(X, background=text)
        with pytest.raises(ValueError, match=r"X has 1 column of text .*: 1; drop"):
            est.partial_fit(text.to_numpy())

    @pytest.mark.parametrize("estimator", [CPCAPlusPlus(), CPCA(alpha=1.0)])
    def test_masked_values_are_refused(self, data, estimator):
        whole = np.ma.array(data.target)
        sound = estimator.fit(whole, background=np.ma.array(data.background))
        np.testing.assert_array_equal(sound.transform(whole), sound.transform(data.target))
        holes = whole.copy()
        holes[3, [2, 7]] = np.ma.masked
        said = "a masked array with 2 masked values, in column 2, 7; fill them in"
        calls = [
            lambda: clone(estimator).fit(holes),
            lambda: clone(estimator).fit(holes, is_background=np.arange(400) < 200),
            lambda: sound.transform(holes),
            lambda: sound.denoise(holes),
        ]
        if isinstance(estimator, CPCAPlusPlus):
            calls += [
                lambda: CPCAPlusPlus().partial_fit(holes),
                lambda: CPCAPlusPlus("permutation").fit(holes, background=data.background),
                lambda: sound.power(holes),
            ]
        for call in calls:
            with pytest.raises(ValueError, match=f"X is {said}"):
                call()
        with pytest.raises(ValueError, match=f"background is {said}"):
            clone(estimator).fit(data.target, background=holes)
        with pytest.raises(ValueError, match="background is a masked"):
            CPCAPlusPlus().partial_fit(background=holes)
        with pytest.raises(ValueError, match="Y is a masked array with 1 masked"):
            sound.inverse_transform(np.ma.array([[1.0, 2.0]], mask=[[True, False]]))
        with pytest.raises(ValueError, match="is_background is a masked array with 400"):
            clone(estimator).fit(data.target, is_background=np.ma.masked_all(400, bool))

    @pytest.mark.parametrize("estimator", [CPCAPlusPlus(), CPCAPlusPlus("auto"), CPCA()])
    def test_values_beyond_squaring_are_named(self, data, estimator):
        X = pd.DataFrame(data.target, columns=data.feature_names)
        huge = X.assign(h1_2=X["h1_2"] * 1e160)
        with pytest.raises(ValueError, match=r"the target has values .* in column 'h1_2'; "):
            estimator.fit(huge, background=X)

    def test_masks_that_do_not_fit(self, data):
        X = data.target
        with pytest.raises(ValueError, match=r"is_background has shape \(3,\)"):
            CPCAPlusPlus().fit(X, is_background=[True, False, True])
        with pytest.raises(ValueError, match="leaves 0 background samples"):
            CPCAPlusPlus().fit(X, is_background=np.zeros(400, bool))
        with pytest.raises(ValueError, match="leaves 1 target samples"):
            CPCAPlusPlus().fit(X, is_background=np.arange(400) > 0)
        with pytest.raises(ValueError, match="True/False"):
            CPCAPlusPlus().fit(X, is_background=np.arange(400))
        with pytest.raises(ValueError, match="not both"):
            CPCAPlusPlus().fit(X, background=X, is_background=np.arange(400) > 9)

    def test_the_target_as_background(self, data):
        with pytest.warns(NoComponentsWarning):
            est = CPCAPlusPlus("auto").fit(data.target, background=data.target)
        assert est.n_components_ == 0
        est = CPCAPlusPlus(2, loading="none").fit(data.target, background=data.target)
        np.testing.assert_allclose(est.eigenvalues_, 1.0)

    def test_constant_features_are_left_out(self, data):
        X, B = data.target.copy(), data.background.copy()
        X[:, 4] = B[:, 4] = 0.3
        est = CPCAPlusPlus().fit(X, background=B)
        assert np.abs(est.components_[:, 4]).max() < 1e-9
        assert est.contrast_ == pytest.approx([27.3, 23.5], rel=0.2)

    def test_nothing_is_fitted_after_an_error(self, data, fitted):
        with pytest.raises(ValueError, match="NaN"):
            fitted.fit(np.full((5, 3), np.nan))
        with pytest.raises(NotFittedError):
            fitted.transform(data.target)

    def test_not_fitted(self, data):
        for call in (CPCAPlusPlus().transform, CPCAPlusPlus().power, CPCAPlusPlus().denoise):
            with pytest.raises(NotFittedError):
                call(data.target)
        assert not hasattr(CPCAPlusPlus(), "components_")


class TestConventions:
    def test_clone_has_the_parameters_only(self, fitted):
        copy = clone(fitted.set_params(loading=0.5, n_components=3))
        assert copy.get_params() == fitted.get_params()
        assert not hasattr(copy, "components_")

    def test_names_and_pandas_output(self, data):
        X = pd.DataFrame(data.target, columns=data.feature_names)
        B = pd.DataFrame(data.background, columns=data.feature_names)
        est = CPCAPlusPlus().set_output(transform="pandas").fit(X, background=B)
        assert est.feature_names_in_.tolist() == data.feature_names
        out = est.transform(X)
        assert out.columns.tolist() == ["cpcaplusplus0", "cpcaplusplus1"]
        assert est.get_feature_names_out().tolist() == out.columns.tolist()

    def test_saved_with_joblib(self, data, fitted, tmp_path):
        joblib.dump(fitted, tmp_path / "model")
        again = joblib.load(tmp_path / "model")
        np.testing.assert_array_equal(again.transform(data.target), fitted.transform(data.target))


def test_the_badly_conditioned_example_needs_its_loading():
    data = mice_like(random_state=0)
    target = data.target - data.target.mean(axis=0)

    def separation(loading):
        Y = CPCAPlusPlus(1, loading=loading).fit_transform(target, background=data.background)[:, 0]
        a, b = Y[data.labels == 0], Y[data.labels == 1]
        return abs(a.mean() - b.mean()) / np.sqrt(a.var() + b.var())

    assert separation("auto") > 2.0
    assert separation("auto") > 1.3 * separation("none")
