"""The contrast against SciPy, scikit-learn and closed forms, whichever way it is solved."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as sl
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kurtosis
from sklearn.covariance import OAS
from sklearn.decomposition import PCA

from cpcapp import Contrast, Loading, Moments, solve_contrast
from cpcapp.contrast.difference import solve_cpca, solve_difference
from cpcapp.contrast.solution import InsufficientRankError, SingularBackgroundError
from cpcapp.contrast.solve import eigenvalues_above, subspace_overlap
from cpcapp.moments.moments import FeatureRangeError
from helpers import correlated, peak_bytes, random_covariance, subspace_angle

LOADINGS = ["auto", "oas", "none", 0.1]


def loaded(background, found):
    return found.loading.weight * background.covariance() + np.diag(found.loading.diagonal)


def pair(rng, n_target=300, n_background=400, n_features=20):
    mixing = rng.standard_normal((n_features, n_features))
    target = correlated(rng, n_target, mixing)
    target += rng.standard_normal((n_target, 2)) @ rng.standard_normal((2, n_features)) * 5
    return Moments.of(target), Moments.of(correlated(rng, n_background, mixing))


class TestAgainstScipy:
    @pytest.mark.parametrize("loading", LOADINGS)
    @pytest.mark.parametrize("solver", ["auto", "dense", "iterative"])
    def test_eigenvalues_filters_and_atoms(self, rng, loading, solver):
        target, background = pair(rng)
        found = solve_contrast(target, background, 4, loading=loading, solver=solver)
        b = loaded(background, found)
        values, vectors = sl.eigh(target.covariance(), b, subset_by_index=(16, 19))
        np.testing.assert_allclose(found.eigenvalues, values[::-1], rtol=1e-10)
        for mine, other in zip(found.filters.T, vectors.T[::-1], strict=True):
            np.testing.assert_allclose(mine, other * np.sign(mine @ other), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.atoms, b @ found.filters, rtol=1e-8, atol=1e-10)

    @given(
        n_features=st.integers(2, 15),
        k=st.integers(1, 5),
        seed=st.integers(0, 500),
        loading=st.sampled_from(LOADINGS),
        scaling=st.sampled_from(["background", "unit"]),
    )
    def test_contract(self, n_features, k, seed, loading, scaling):
        rng = np.random.default_rng(seed)
        target, background = pair(rng, 40, 50, n_features)
        k = min(k, n_features)
        found = solve_contrast(target, background, k, loading=loading, scaling=scaling)
        F, W = found.filters, found.atoms
        assert F.shape == W.shape == (n_features, k)
        assert (np.diff(found.eigenvalues) <= 0).all()
        assert (found.eigenvalues >= 0).all()
        np.testing.assert_allclose(F.T @ W, np.eye(k), atol=1e-8)
        gram = F.T @ loaded(background, found) @ F
        np.testing.assert_allclose(
            gram / gram.diagonal().mean(),
            np.diag(np.diag(gram)) / gram.diagonal().mean(),
            atol=1e-8,
        )
        if scaling == "background":
            np.testing.assert_allclose(gram, np.eye(k), atol=1e-7)
        else:
            np.testing.assert_allclose(np.linalg.norm(F, axis=0), 1.0, rtol=1e-12)
        largest = np.abs(F).argmax(axis=0)
        assert (F[largest, np.arange(k)] > 0).all()

    def test_arrays_and_moments_are_the_same(self, rng):
        X, B = rng.normal(size=(50, 5)), rng.normal(size=(60, 5))
        a = solve_contrast(X, B, 2)
        b = solve_contrast(Moments.of(X), Moments.of(B), 2)
        np.testing.assert_allclose(a.filters, b.filters, rtol=1e-12)


class TestPCA:
    @pytest.mark.parametrize("shape", [(200, 10), (8, 50)])
    @pytest.mark.parametrize("solver", ["auto", "dense", "iterative"])
    def test_without_a_background(self, rng, shape, solver):
        X = rng.normal(size=shape) * np.linspace(1, 3, shape[1])
        found = solve_contrast(X, None, 3, solver=solver)
        reference = PCA(3).fit(X)
        assert subspace_angle(found.filters, reference.components_.T) < 1e-7
        scale = shape[0] / (shape[0] - 1)
        np.testing.assert_allclose(found.eigenvalues * scale, reference.explained_variance_)
        assert found.loading is None
        np.testing.assert_allclose(found.filters.T @ found.filters, np.eye(3), atol=1e-10)


class TestIterative:
    @pytest.mark.parametrize("copies", [2, 3, 5])
    def test_repeated_eigenvalues_are_not_missed(self, copies):
        m = 60
        values = np.ones(m)
        values[:copies] = 5.0
        values[copies] = 3.0
        target = Moments.from_covariance(np.diag(values), 1000)
        background = Moments.from_covariance(np.eye(m), 1000)
        k = copies
        found = solve_contrast(target, background, k, loading="none")
        np.testing.assert_allclose(found.eigenvalues, 5.0)
        try:
            iterative = solve_contrast(target, background, k, loading="none", solver="iterative")
        except ValueError as error:
            assert "did not converge" in str(error)  # loud, not wrong
        else:
            np.testing.assert_allclose(iterative.eigenvalues, 5.0)

    def test_auto_uses_it_for_many_features_and_is_exact(self, rng):
        m = 1200
        target_values = np.ones(m)
        target_values[:2] = [9.0, 6.0]
        target = Moments.from_covariance(np.diag(target_values[::-1]), 10_000)
        background = Moments.from_covariance(np.eye(m), 10_000)
        found = solve_contrast(target, background, 2, loading="none")
        assert found.solver == "iterative"
        np.testing.assert_allclose(found.eigenvalues, [9.0, 6.0], rtol=1e-12)

    def test_eigenvalues_that_lie_close_together(self, rng):
        m = 1000
        values = 1.0 + 1e-7 * rng.random(m)
        target = Moments.from_covariance(np.diag(values), 10_000)
        found = solve_contrast(target, Moments.from_covariance(np.eye(m), 10_000), 2, loading=0.1)
        np.testing.assert_allclose(found.eigenvalues, np.sort(values)[:-3:-1] / 1.1, rtol=1e-12)

    def test_is_repeatable(self, rng):
        target, background = pair(rng)
        a, b = (solve_contrast(target, background, 3, solver="iterative") for _ in range(2))
        np.testing.assert_array_equal(a.filters, b.filters)


class TestDual:
    @pytest.mark.parametrize("loading", ["auto", "oas", 0.1, 1e-3])
    @pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
    def test_equals_dense(self, rng, loading, make):
        X = (rng.normal(size=(30, 200)) + 2) * (rng.random((30, 200)) < 0.7)
        B = rng.normal(size=(50, 200)) * (rng.random((50, 200)) < 0.7)
        dual = solve_contrast(make(X), make(B), 4, loading=loading, solver="dual")
        dense = solve_contrast(make(X), make(B), 4, loading=loading, solver="dense")
        np.testing.assert_allclose(dual.eigenvalues, dense.eigenvalues, rtol=1e-9)
        np.testing.assert_allclose(dual.filters, dense.filters, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(dual.atoms, dense.atoms, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(dual.contrast, dense.contrast, rtol=1e-6)
        assert dual.bound == dense.bound
        np.testing.assert_allclose(dual.loading.diagonal, dense.loading.diagonal, rtol=1e-10)

    def test_one_side_sparse_and_the_other_dense(self, rng):
        X, B = rng.poisson(1.0, size=(20, 100)).astype(float), rng.poisson(1.0, size=(30, 100))
        dense = solve_contrast(X, B, 2)
        for pair in ((sp.csr_array(X), B), (X, sp.csr_array(B))):
            mixed = solve_contrast(*pair, 2)
            assert mixed.solver == "dual"
            np.testing.assert_allclose(mixed.eigenvalues, dense.eigenvalues, rtol=1e-10)
            np.testing.assert_allclose(mixed.filters, dense.filters, atol=1e-10)

    def test_auto_takes_it_for_few_samples(self, rng):
        X, B = rng.normal(size=(30, 200)), rng.normal(size=(50, 200))
        assert solve_contrast(X, B, 2).solver == "dual"
        assert solve_contrast(X, None, 2).solver == "dual"

    def test_never_forms_a_square_matrix(self, rng):
        m = 5000
        X, B = rng.normal(size=(60, m)), rng.normal(size=(60, m))
        assert peak_bytes(lambda: solve_contrast(X, B, 2)) < m * m * 8 / 10

    def test_sparse_rows_stay_sparse(self, rng):
        X, B = (sp.random_array((200, 20_000), density=0.001, format="csr", rng=rng) for _ in "fb")
        assert peak_bytes(lambda: solve_contrast(X, B, 2)) < 200 * 20_000 * 8 / 2

    def test_needs_thin_data(self, rng):
        with pytest.raises(ValueError, match="solver='dual' needs fewer samples than features"):
            solve_contrast(rng.normal(size=(50, 5)), rng.normal(size=(50, 5)), 1, solver="dual")

    def test_no_loading_is_an_error_that_names_the_rank(self, rng):
        with pytest.raises(SingularBackgroundError, match="rank is 11 of 100 features") as caught:
            solve_contrast(rng.normal(size=(9, 100)), rng.normal(size=(12, 100)), 1, loading="none")
        assert caught.value.rank == 11
        with pytest.raises(ValueError, match="too small"):
            solve_contrast(rng.normal(size=(9, 100)), rng.normal(size=(12, 100)), 1, loading=0.0)


class TestLoading:
    def test_oas_is_done_in_units_of_the_background(self, rng):
        B = rng.normal(size=(40, 15)) @ random_covariance(rng, 15, 2.0)
        X = rng.normal(size=(50, 15))
        scale = B.std(axis=0)
        shrunk = OAS().fit(B / scale).covariance_ * np.outer(scale, scale)
        found = solve_contrast(X, B, 2, loading="oas")
        np.testing.assert_allclose(loaded(Moments.of(B), found), shrunk, rtol=1e-8, atol=1e-10)

    def test_a_number_is_a_fraction_of_the_mean_eigenvalue(self, rng):
        X, B = rng.normal(size=(50, 5)), rng.normal(size=(50, 5)) * [1, 2, 3, 4, 5]
        found = solve_contrast(X, B, 1, loading=0.3)
        mean_eigenvalue = np.linalg.eigvalsh(np.cov(B.T, ddof=0)).mean()
        np.testing.assert_allclose(found.loading.diagonal, 0.3 * mean_eigenvalue)
        assert found.loading.weight == 1.0

    @pytest.mark.parametrize("spoil", ["copy", "constant", "sum"])
    def test_none_names_the_rank(self, rng, spoil):
        X, B = rng.normal(size=(50, 6)), rng.normal(size=(50, 6)) + 3
        B[:, 5] = {"copy": B[:, 0] * 7, "constant": 0.1, "sum": B[:, :5].sum(axis=1)}[spoil]
        with pytest.raises(SingularBackgroundError, match="its rank is 5 of 6 features"):
            solve_contrast(X, B, 1, loading="none")

    def test_too_little_loading(self, rng):
        X, B = rng.normal(size=(50, 6)), rng.normal(size=(50, 6))
        B[:, 5] = B[:, 0]
        with pytest.raises(ValueError, match=r"loading=1e-18 is too small"):
            solve_contrast(X, B, 1, loading=1e-18)

    def test_a_constant_background_is_an_error(self, rng):
        for loading in ("auto", 0.1):
            with pytest.raises(ValueError, match="does not vary at all"):
                solve_contrast(rng.normal(size=(50, 6)), np.full((50, 6), 0.1), 1, loading=loading)

    def test_a_feature_that_only_the_target_has_wins(self, rng):
        X, B = rng.normal(size=(100, 6)), rng.normal(size=(100, 6))
        B[:, 2] = 7.0
        found = solve_contrast(X, B, 1)
        assert np.abs(found.filters[:, 0]).argmax() == 2
        assert np.isfinite(found.filters).all()

    def test_a_feature_that_is_constant_in_both_is_not_used(self, rng):
        X, B = rng.normal(size=(100, 6)), rng.normal(size=(100, 6))
        X[:, 2] = B[:, 2] = 0.1
        found = solve_contrast(X, B, 3)
        assert np.abs(found.filters[2]).max() < 1e-10

    @pytest.mark.parametrize("loading", ["auto", "oas", "none"])
    def test_features_1e16_apart_in_scale(self, rng, loading):
        mixing = random_covariance(rng, 8)
        X = correlated(rng, 400, mixing)
        X += rng.standard_normal((400, 2)) @ rng.standard_normal((2, 8)) * 3
        B = correlated(rng, 500, mixing)
        units = 10.0 ** np.linspace(-8, 8, 8)
        plain = solve_contrast(X, B, 2, loading=loading)
        scaled = solve_contrast(X * units, B * units, 2, loading=loading)
        np.testing.assert_allclose(scaled.eigenvalues, plain.eigenvalues, rtol=1e-8)
        assert subspace_angle(scaled.filters * units[:, None], plain.filters) < 1e-7


def rule_by_scipy(target, background, bound, k):
    """Solve with the least ridge of the bound, by SciPy's generalized solver."""
    r_f, r_b = target.covariance(), background.covariance()
    units = np.diag((target.variance() + background.variance()) / 2)
    theta = sl.eigh(r_f - bound * r_b, units, eigvals_only=True)[-1]
    of_noise = 0.1 * len(r_b) / background.n_samples
    sigma = r_b + (theta / bound if theta > 0 else of_noise) * units
    values, vectors = sl.eigh(r_f, sigma)
    return values[: -k - 1 : -1], vectors[:, : -k - 1 : -1]


def two_stories(rng, n=2000, m=30, small=0.5):
    """Classes of a contrast of about 5, beside faint directions of a far larger one."""
    X, B = rng.standard_normal((2, n, m))
    labels = rng.random(n) < small
    X[:, 0] = 0.3 * X[:, 0] + 4.5 * (labels - small) / (small * (1 - small)) ** 0.5 / 2
    X[:, -3:] *= 9.0
    basis = np.linalg.qr(rng.standard_normal((m, m))).Q * np.geomspace(3.0, 0.3, m)[:, None]
    return X @ basis, B @ basis, labels


class TestRule:
    @pytest.mark.parametrize("n_features", [12, 250])
    @pytest.mark.parametrize("loud", [1.5, 4.0, 9.0, 30.0])
    def test_against_scipy(self, rng, n_features, loud):
        mixing = random_covariance(rng, n_features)
        X, B = correlated(rng, 3000, mixing), correlated(rng, 3500, mixing)
        X += rng.standard_normal((3000, 2)) @ mixing[:2] * loud
        target, background = Moments.of(X), Moments.of(B)
        found = solve_contrast(target, background, 3)
        assert found.bound == 12.0  # no rows
        values, vectors = rule_by_scipy(target, background, 12.0, 3)
        np.testing.assert_allclose(found.eigenvalues, values, rtol=1e-8)
        assert subspace_angle(found.filters[:, :1], vectors[:, :1]) < 1e-6
        np.testing.assert_allclose(abs(found.filters.T @ found.atoms), np.eye(3), atol=1e-8)
        r_f, r_b = target.covariance(), background.covariance()
        outputs = [np.einsum("ij,ij->j", found.filters, r @ found.filters) for r in (r_f, r_b)]
        np.testing.assert_allclose(found.contrast, outputs[0] / outputs[1], rtol=1e-7)
        if loud > 2.0:
            assert found.eigenvalues[0] == pytest.approx(12.0) and found.contrast[0] > 12.0
        else:
            assert found.eigenvalues[0] < 12.0
            np.testing.assert_allclose(
                found.loading.diagonal,
                0.1
                * n_features
                / 3500
                * np.mean([target.variance(), background.variance()], axis=0),
            )

    def test_the_first_is_that_of_cpca_at_the_bound(self, rng):
        X, B, _ = two_stories(rng)
        found = solve_contrast(X, B, 2)
        scale = np.sqrt((X.var(axis=0) + B.var(axis=0)) / 2)
        _, filters = solve_difference(Moments.of(X / scale), Moments.of(B / scale), 1, found.bound)
        assert subspace_angle(found.filters[:, :1] * scale[:, None], filters[0]) < 1e-6

    @pytest.mark.parametrize("n_features", [30, 260])
    def test_the_bound_is_that_of_least_kurtosis(self, rng, n_features):
        X, B, labels = two_stories(rng, m=n_features)
        found = solve_contrast(X, B, 2)
        target, background = Moments.of(X), Moments.of(B)
        least = [
            kurtosis(X @ rule_by_scipy(target, background, c, 2)[1]).min()
            for c in (3.0, 12.0, 48.0)
        ]
        assert min(least) < -2 * (24 / len(X)) ** 0.5
        assert found.bound == (3.0, 12.0, 48.0)[int(np.argmin(least))] == 3.0
        outputs = found.transform(X)
        correlations = np.corrcoef(np.column_stack([outputs, labels]).T)[-1, :2]
        assert abs(correlations).max() > 0.9
        # Without rows nothing is known of classes.
        assert solve_contrast(target, background, 2).bound == 12.0
        assert solve_contrast(target, background, 2, rows=X).bound == 3.0
        assert solve_contrast(target, background, 2, rows=sp.csr_array(X)).bound == 3.0

    def test_a_gaussian_target_keeps_the_usual_bound(self, rng):
        X, B = rng.standard_normal((2, 900, 20))
        X[:, :2] *= 3.0
        assert solve_contrast(X, B, 2).bound == 12.0

    def test_weights_count_as_copies(self, rng):
        X, B, _ = two_stories(rng, n=700, small=0.3)
        weights = rng.integers(1, 5, len(X))
        target, copies = Moments.of(X, sample_weight=weights), np.repeat(X, weights, axis=0)
        found = solve_contrast(target, Moments.of(B), 2, rows=X, row_weights=weights)
        expected = solve_contrast(Moments.of(copies), Moments.of(B), 2, rows=copies)
        assert found.bound == expected.bound
        np.testing.assert_allclose(found.filters, expected.filters, rtol=1e-6, atol=1e-9)

    def test_many_rows_are_a_sample(self, rng):
        X, B, _ = two_stories(rng, n=12_000)
        found, again = (solve_contrast(X, B, 2) for _ in range(2))
        assert found.bound == 3.0
        np.testing.assert_array_equal(found.filters, again.filters)

    @pytest.mark.parametrize("shape", [(900, 30), (60, 200), (900, 260)])
    def test_no_component_depends_on_how_many_are_asked_for(self, rng, shape):
        X, B, _ = two_stories(rng, *shape)
        many = solve_contrast(X, B, 7)
        for k in range(1, 7):
            few = solve_contrast(X, B, k)
            assert few.bound == many.bound
            np.testing.assert_allclose(few.eigenvalues, many.eigenvalues[:k], rtol=1e-8)
            np.testing.assert_allclose(few.filters, many.filters[:, :k], rtol=1e-6, atol=1e-7)

    def test_units_do_not_matter(self, rng):
        X, B, _ = two_stories(rng)
        units = 10.0 ** rng.uniform(-8, 8, X.shape[1])
        plain, scaled = solve_contrast(X, B, 2), solve_contrast(X * units, B * units, 2)
        assert plain.bound == scaled.bound
        np.testing.assert_allclose(scaled.eigenvalues, plain.eigenvalues, rtol=1e-7)
        assert subspace_angle(scaled.filters * units[:, None], plain.filters) < 1e-6

    def test_a_loading_can_be_used_again(self, rng):
        for X, B, _ in (two_stories(rng), two_stories(rng, 50, 200)):
            found = solve_contrast(X, B, 2)
            again = solve_contrast(X, B, 2, loading=found.loading)
            assert again.bound is None
            np.testing.assert_allclose(again.filters, found.filters, rtol=1e-6, atol=1e-8)
        plain = solve_contrast(X[:, :5], B[:, :5], 2, loading="none")
        again = solve_contrast(X[:, :5], B[:, :5], 2, loading=plain.loading)
        np.testing.assert_array_equal(again.filters, plain.filters)

    def test_copies_of_a_feature_do_no_harm(self, rng):
        X, B, _ = two_stories(rng)
        twice = solve_contrast(np.hstack([X, X]), np.hstack([B, B]), 2)
        once = solve_contrast(X, B, 2)
        outputs = np.hstack([X, X]) @ twice.filters, X @ once.filters
        assert twice.bound == once.bound
        assert abs(np.corrcoef(*(y[:, 0] for y in outputs))[0, 1]) > 0.9999


class TestOas:
    """What training splices relies on, to the last digit; recorded once."""

    @pytest.mark.parametrize(
        ("n", "m", "weight", "eigenvalues", "sums"),
        [
            (
                60,
                8,
                0.884869826727765,
                [94.9241506994, 23.2559526964, 2.40408327298],
                [9.82050077183, 3.76390647548, 13.3962484945],
            ),
            (
                25,
                90,
                0.3189350295180904,
                [75.7845279752, 55.3918027425, 11.5368321515],
                [4961.93857478, 2.89072378858, 185.912557963],
            ),
        ],
    )
    def test_numbers_of_earlier_versions(self, n, m, weight, eigenvalues, sums):
        rng = np.random.default_rng(7)
        mixing = rng.standard_normal((m, m))
        X = rng.standard_normal((n, m)) @ mixing
        X += rng.standard_normal((n, 2)) @ rng.standard_normal((2, m)) * 5
        B = rng.standard_normal((n + 20, m)) @ mixing
        B[:, 2] = 1.0
        X[:, 3] = B[:, 3] = 4.0
        found = solve_contrast(X, B, 3, loading="oas")
        assert found.loading.weight == pytest.approx(weight, rel=1e-10)
        np.testing.assert_allclose(found.eigenvalues, eigenvalues, rtol=1e-10)
        totals = [abs(a).sum() for a in (found.loading.diagonal, found.filters, found.atoms)]
        np.testing.assert_allclose(totals, sums, rtol=1e-9)


class TestContrast:
    @pytest.mark.parametrize("background", [True, False])
    def test_outputs_are_the_paper_s(self, rng, background):
        X, B, _ = two_stories(rng, 300)
        X += 5.0
        found = solve_contrast(X, B if background else None, 2)
        F, W, mean = found.filters, found.atoms, X.mean(axis=0)
        Y = (X - mean) @ F
        np.testing.assert_allclose(found.transform(X), Y, atol=1e-9)
        np.testing.assert_allclose(found.transform(sp.csr_array(X)), Y, atol=1e-9)
        np.testing.assert_allclose(found.inverse_transform(Y), mean + Y @ W.T)
        np.testing.assert_allclose(found.denoise(X), mean + Y @ W.T, atol=1e-9)
        centre = B.mean(axis=0) if background else mean
        np.testing.assert_allclose(found.power(X), (((X - centre) @ F) ** 2).sum(axis=1))
        np.testing.assert_allclose(Y.var(axis=0), found.eigenvalues, rtol=1e-7)
        assert np.isnan(found.contrast).all() == (not background)
        left = X - found.denoise(X)
        np.testing.assert_allclose(found.transform(left + mean), 0.0, atol=1e-7)
        explained = X.var(axis=0).sum() - left.var(axis=0).sum()
        if not background:
            assert found.explained_variance.sum() == pytest.approx(explained)

    def test_float32_stays_and_memory_maps_are_read_in_chunks(self, rng, tmp_path):
        X, B, _ = two_stories(rng, 30_000, 40)
        found = solve_contrast(X, B, 2)
        np.save(tmp_path / "rows.npy", X.astype(np.float32))
        rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
        outputs = found.transform(rows)
        assert outputs.dtype == found.denoise(rows[:9]).dtype == np.float32
        np.testing.assert_allclose(outputs, found.transform(X), atol=1e-4)
        assert found.transform(sp.csr_array(rows[:9])).dtype == np.float32
        assert peak_bytes(lambda: found.transform(rows)) < X.nbytes / 4

    def test_the_first_components(self, rng):
        X, B, _ = two_stories(rng, 300)
        found, few = solve_contrast(X, B, 3).first(2), solve_contrast(X, B, 2)
        assert isinstance(found, Contrast)
        np.testing.assert_allclose(found.transform(X), few.transform(X), rtol=1e-7, atol=1e-9)
        assert found.contrast.shape == found.explained_variance.shape == (2,)

    def test_what_the_background_lacks_has_an_infinite_contrast(self, rng):
        X, B = rng.normal(size=(2, 100, 6))
        B[:, 2] = 7.0
        found = solve_contrast(X, B, 6)
        assert found.eigenvalues[0] == pytest.approx(12.0)
        assert np.isinf(found.contrast[0]) or found.contrast[0] > 100.0
        assert np.isfinite(found.filters).all() and np.isfinite(found.atoms).all()


class TestRank:
    @pytest.mark.parametrize("shape", [(300, 20), (300, 250), (12, 40)])
    @pytest.mark.parametrize("loading", ["auto", "oas", 0.1])
    def test_more_components_than_the_target_has(self, rng, shape, loading):
        n, m = shape
        X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, m)) + 7.0
        B = rng.normal(size=(n + 5, m)) @ random_covariance(rng, m, 5.0)
        for background in (B, None):
            with pytest.raises(InsufficientRankError, match="k=4 must be at most 3") as caught:
                solve_contrast(X, background, 4, loading=loading)
            assert caught.value.rank == 3
            assert np.abs(solve_contrast(X, background, 3, loading=loading).atoms).max() < 1e3

    def test_small_variances_are_not_zero(self, rng):
        scale = np.geomspace(1.0, 1e-7, 6)
        X, B = rng.normal(size=(2, 300, 6)) * scale
        assert solve_contrast(X, B, 6).eigenvalues[-1] > 0.5
        mixed = X @ np.linalg.qr(rng.normal(size=(6, 6))).Q
        assert solve_contrast(mixed, B, 5).eigenvalues.shape == (5,)


class TestCPCA:
    @pytest.mark.parametrize("shape", [(900, 30), (60, 200)])
    def test_is_cpca_in_units_of_both_sets(self, rng, shape):
        X, B, _ = two_stories(rng, *shape)
        target, background = Moments.of(X), Moments.of(B)
        found = solve_cpca(target, background, 3, rows=X)
        units = (X.var(axis=0) + B.var(axis=0)) / 2
        F, W = found.filters, found.atoms
        np.testing.assert_allclose(F.T @ (units[:, None] * F), np.eye(3), atol=1e-8)
        np.testing.assert_allclose(W, units[:, None] * F)
        values, vectors = sl.eigh(
            target.covariance() - found.bound * background.covariance(), np.diag(units)
        )
        np.testing.assert_allclose(found.eigenvalues, values[:-4:-1], rtol=1e-7, atol=1e-9)
        assert subspace_angle(F[:, :1], vectors[:, -1:]) < 1e-6
        first = solve_cpca(target, background, 1, rows=X)
        np.testing.assert_allclose(first.filters, F[:, :1], atol=1e-8)
        assert found.bound == solve_contrast(X, B, 2).bound

    def test_a_given_alpha(self, rng):
        X, B, _ = two_stories(rng)
        found = solve_cpca(Moments.of(X), Moments.of(B), 2, alpha=5.0)
        assert found.bound == 5.0
        assert solve_cpca(Moments.of(X), Moments.of(B), 2).bound == 12.0


@given(seed=st.integers(0, 1000), m=st.integers(2, 10))
def test_eigenvalues_do_not_change_under_invertible_maps(seed, m):
    rng = np.random.default_rng(seed)
    target, background = (random_covariance(rng, m) for _ in "fb")
    A = random_covariance(rng, m) @ np.linalg.qr(rng.standard_normal((m, m))).Q
    plain = solve_contrast(
        Moments.from_covariance(target, 100),
        Moments.from_covariance(background, 100),
        1,
        loading="none",
    )
    mapped = [Moments.from_covariance((c := A @ r @ A.T) + c.T, 100) for r in (target, background)]
    np.testing.assert_allclose(
        solve_contrast(*mapped, 1, loading="none").eigenvalues, plain.eigenvalues, rtol=1e-8
    )


def test_a_background_that_is_the_target_gives_eigenvalues_of_one(rng):
    X = rng.normal(size=(300, 8)) @ rng.normal(size=(8, 8))
    np.testing.assert_allclose(solve_contrast(X, X, 8, loading="none").eigenvalues, 1.0)


class TestDifference:
    def test_against_numpy(self, rng):
        target, background = pair(rng)
        values, filters = solve_difference(target, background, 3, [0.0, 1.5])
        for i, alpha in enumerate([0.0, 1.5]):
            w, v = np.linalg.eigh(target.covariance() - alpha * background.covariance())
            np.testing.assert_allclose(values[i], w[:-4:-1], rtol=1e-10)
            assert subspace_angle(filters[i], v[:, -3:]) < 1e-7

    def test_few_samples(self, rng):
        X, B = rng.normal(size=(20, 90)), rng.normal(size=(30, 90))
        thin = solve_difference(Moments.of(X), Moments.of(B), 3, [0.5])
        full = solve_difference(
            Moments.of(X, form="scatter"), Moments.of(B, form="scatter"), 3, [0.5]
        )
        np.testing.assert_allclose(thin[0], full[0], rtol=1e-9)
        np.testing.assert_allclose(thin[1], full[1], atol=1e-8)


def test_eigenvalues_above(rng):
    target, background = pair(rng)
    every = sl.eigh(target.covariance(), background.covariance(), eigvals_only=True)[::-1]
    threshold = every[:2].mean()
    np.testing.assert_allclose(eigenvalues_above(target, background, threshold), every[:1])


class TestOverwrite:
    def test_gives_the_same_and_empties_the_moments(self, rng):
        target, background = pair(rng)
        kept = solve_contrast(target, background, 2)
        assert target.n_samples == 300
        used = solve_contrast(target, background, 2, overwrite=True)
        np.testing.assert_array_equal(used.filters, kept.filters)
        assert target.n_samples == background.n_samples == 0

    def test_needs_no_more_than_one_matrix_besides(self, rng):
        target, background = pair(rng, 900, 900, 400)
        peak = peak_bytes(lambda: solve_contrast(target, background, 2, overwrite=True))
        assert peak < 1.3 * 400 * 400 * 8


class TestBadArguments:
    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"k": 0}, ValueError, "k=0 must be between 1 and 4"),
            ({"k": 9}, ValueError, "k=9 must be between 1 and 4"),
            ({"k": 1.5}, TypeError, "k=1.5 must be a whole number"),
            ({"k": True}, TypeError, "k=True must be a whole number"),
            (
                {"loading": "much"},
                ValueError,
                "loading='much' must be one of 'auto', 'oas', 'none'",
            ),
            ({"loading": "likelihood"}, ValueError, "no longer a rule; use loading='auto'"),
            ({"loading": "diagonal"}, ValueError, "no longer a rule; use loading='none', or a nu"),
            ({"loading": Loading(1.0, np.ones(3))}, ValueError, "must have 4 values"),
            ({"loading": True}, ValueError, "loading=True must be one of"),
            ({"loading": -1.0}, ValueError, "loading=-1.0 must be a finite number"),
            ({"loading": np.nan}, ValueError, "loading=nan must be a finite number"),
            ({"loading": None}, ValueError, "loading=None must be one of"),
            ({"solver": "fast"}, ValueError, "solver='fast' must be one of 'auto', 'dense'"),
            ({"scaling": "big"}, ValueError, "scaling='big' must be one of 'background', 'unit'"),
        ],
    )
    def test_options(self, rng, options, error, message):
        X, B = rng.normal(size=(50, 4)), rng.normal(size=(50, 4))
        with pytest.raises(error, match=message):
            solve_contrast(X, B, **({"k": 1} | options))

    def test_sizes(self, rng):
        X = rng.normal(size=(50, 4))
        with pytest.raises(ValueError, match="background has 5 features, but the target has 4"):
            solve_contrast(X, rng.normal(size=(50, 5)), 1)
        with pytest.raises(ValueError, match="the background has n_samples=1"):
            solve_contrast(X, X[:1], 1)
        with pytest.raises(ValueError, match="the target has n_samples=1"):
            solve_contrast(X[:1], X, 1)
        with pytest.raises(ValueError, match=r"k=3 must be at most 2 \(the target has n_samples=3"):
            solve_contrast(X[:3], X, 3)
        with pytest.raises(ValueError, match="background: input contains NaN"):
            solve_contrast(X, np.full((5, 4), np.nan), 1)

    def test_rows_of_another_shape(self, rng):
        X = rng.normal(size=(50, 4))
        for rows in (np.ones((9, 3)), sp.csr_array((9, 3)), np.ones(4)):
            with pytest.raises(ValueError, match=r"rows has shape .* each of the 4 features"):
                solve_contrast(Moments.of(X), X, 1, rows=rows)
        with pytest.raises(ValueError, match=r"row_weights has shape \(9,\); it must be \(50,\)"):
            solve_contrast(Moments.of(X), X, 1, rows=X, row_weights=np.ones(9))


class TestSubspaceOverlap:
    @given(n_features=st.integers(1, 12), k=st.integers(1, 12), seed=st.integers(0, 500))
    def test_is_the_mean_of_squared_cosines(self, n_features, k, seed):
        rng = np.random.default_rng(seed)
        k = min(k, n_features)
        covariances = [random_covariance(rng, n_features, spread=2.0) for _ in range(2)]
        target, background = (Moments.from_covariance(c, 100) for c in covariances)
        u_f, u_b = (np.linalg.eigh(c).eigenvectors[:, -k:] for c in covariances)
        expected = np.mean(np.cos(sl.subspace_angles(u_f, u_b)) ** 2)
        found = subspace_overlap(target, background, k)
        assert 0.0 <= found <= 1.0
        assert found == pytest.approx(expected, abs=1e-9)
        # As the paper writes it: the share of the power of U_f that P = U_b U_bᵀ leaves.
        share = np.linalg.norm(u_b @ u_b.T @ u_f) ** 2 / np.linalg.norm(u_f) ** 2
        assert found == pytest.approx(share, abs=1e-9)
        assert subspace_overlap(background, target, k) == pytest.approx(found, abs=1e-9)

    def test_more_dimensions_than_there_are(self, rng):
        thin = Moments.of(rng.normal(size=(50, 2)) @ rng.normal(size=(2, 6)), form="scatter")
        whole = Moments.of(rng.normal(size=(50, 6)))
        for pair in ((thin, whole), (whole, thin)):
            with pytest.raises(ValueError, match="must be at most 2"):
                subspace_overlap(*pair, 3)
        with pytest.raises(ValueError, match="between 1 and 6"):
            subspace_overlap(whole, whole, 7)


class TestScales:
    """Squares of 1e±155 are infinite, or 0."""

    @given(
        seed=st.integers(0, 200),
        # Fewer and more features than samples: the primal and the dual solvers.
        n_features=st.sampled_from([4, 60]),
        exponents=st.lists(st.integers(-150, 150), min_size=60, max_size=60),
        loading=st.sampled_from(["auto", "oas"]),
        kind=st.sampled_from([np.asarray, sp.csr_array]),
    )
    def test_units_do_not_matter(self, seed, n_features, exponents, loading, kind):
        rng = np.random.default_rng(seed)
        X, B = rng.normal(size=(20, n_features)), rng.normal(size=(25, n_features))
        X[:, 0] *= 8
        scale = 10.0 ** np.array(exponents[:n_features])
        plain = solve_contrast(X, B, 2, loading=loading)
        scaled = solve_contrast(kind(X * scale), kind(B * scale), 2, loading=loading)
        np.testing.assert_allclose(scaled.eigenvalues, plain.eigenvalues, rtol=1e-9)
        # Signs depend on the largest coefficient, and so on the units.
        scores, other = X @ plain.filters, (X * scale) @ scaled.filters
        sign = np.sign((scores * other).sum(axis=0))
        np.testing.assert_allclose(other * sign, scores, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(scaled.filters.T @ scaled.atoms, np.eye(2), atol=1e-8)
        np.testing.assert_allclose(scaled.contrast, plain.contrast, rtol=1e-6)

    @given(
        exponent=st.integers(-150, 150),
        n_features=st.sampled_from([4, 60]),
        loading=st.sampled_from(LOADINGS),
    )
    def test_one_unit_for_all(self, exponent, n_features, loading):
        if loading == "none" and n_features == 60:
            return
        rng = np.random.default_rng(n_features)
        X, B = rng.normal(size=(20, n_features)), rng.normal(size=(25, n_features))
        plain = solve_contrast(X, B, 2, loading=loading)
        scale = 10.0**exponent
        scaled = solve_contrast(X * scale, B * scale, 2, loading=loading, scaling="unit")
        np.testing.assert_allclose(scaled.eigenvalues, plain.eigenvalues, rtol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(scaled.filters, axis=0), 1.0)

    @given(exponent=st.integers(-150, 150), n_features=st.sampled_from([4, 60]))
    def test_principal_components_and_differences(self, exponent, n_features):
        rng = np.random.default_rng(n_features)
        X, B = rng.normal(size=(20, n_features)), rng.normal(size=(25, n_features))
        scale = 10.0**exponent
        small, large = solve_contrast(X, None, 2), solve_contrast(X * scale, None, 2)
        np.testing.assert_allclose(large.filters, small.filters, atol=1e-8)
        np.testing.assert_allclose(large.eigenvalues, small.eigenvalues * scale**2, rtol=1e-9)
        sides = (Moments.of(X), Moments.of(B)), (Moments.of(X * scale), Moments.of(B * scale))
        (_, first), (_, second) = (solve_difference(*side, 2, [0.5, 3.0]) for side in sides)
        np.testing.assert_allclose(second, first, atol=1e-7)

    @pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-160, 1e154, 1e200, 1e290])
    @pytest.mark.parametrize("n_features", [4, 60])
    @pytest.mark.parametrize("loading", ["auto", 0.1])
    def test_beyond_what_can_be_squared(self, rng, scale, n_features, loading):
        X, B = rng.normal(size=(20, n_features)), rng.normal(size=(25, n_features))
        X[:, 2] *= scale
        with pytest.raises(FeatureRangeError, match=r"the target .* in column 2; standard") as e:
            solve_contrast(X, B, 2, loading=loading)
        assert "between 1e-150 and 1e150" in str(e.value)
        with pytest.raises(FeatureRangeError, match=r"the background .* in column 2"):
            solve_contrast(B, X, 2, loading=loading)

    def test_zeros_are_no_small_values(self, rng):
        X, B = rng.normal(size=(20, 4)), rng.normal(size=(25, 4))
        X[:, 2] = B[:, 2] = 0.0
        B[:, 3] = 1e-300 * (np.arange(25) == 5)
        X[:, 3] = 0.0
        with pytest.raises(FeatureRangeError, match=r"the background .* in column 3"):
            solve_contrast(X, B, 1)
        B[:, 3] = 0.0
        assert np.abs(solve_contrast(X, B, 1).filters[2:]).max() == 0.0
