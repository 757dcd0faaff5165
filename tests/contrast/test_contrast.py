from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg as sl
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.covariance import OAS
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from cpcapp import Moments, solve_contrast
from cpcapp.contrast.loading import (
    indistinct_contrast,
    largest_eigenpairs,
    largest_eigenvalue,
    oas_shrinkage,
)
from cpcapp.contrast.shrinkage import likelihood_shrinkage
from cpcapp.contrast.solve import (
    SingularBackgroundError,
    eigenvalues_above,
    solve_difference,
    subspace_overlap,
)
from cpcapp.moments.moments import FeatureRangeError
from helpers import correlated, peak_bytes, random_covariance, subspace_angle

LOADINGS = ["auto", "likelihood", "oas", "none", "diagonal", 0.1]


def loaded(background, found):
    return found.loading.weight * background.covariance() + np.diag(found.loading.diagonal)


def pair(rng, n_target=300, n_background=400, n_features=20):
    mixing = rng.standard_normal((n_features, n_features))
    target = correlated(rng, n_target, mixing)
    target += rng.standard_normal((n_target, 2)) @ rng.standard_normal((2, n_features)) * 5
    return Moments.of(target), Moments.of(correlated(rng, n_background, mixing))


class TestAgainstScipy:
    @pytest.mark.parametrize("loading", ["oas", "none", "diagonal", 0.1])
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
        np.testing.assert_array_equal(a.filters, b.filters)


class TestLargestEigenpairs:
    @pytest.mark.parametrize("n", [20, 60])
    def test_none_is_missed_where_all_are_alike(self, n):
        # LAPACK's bisection loses such clusters now and then, in a few of these matrices.
        for seed in range(60):
            noise = 1e-16 * np.random.default_rng(seed).normal(size=(n, n))
            matrix = np.asfortranarray(np.eye(n) + noise + noise.T)
            values, vectors = largest_eigenpairs(matrix, 2)
            np.testing.assert_allclose(values, [1.0, 1.0], rtol=1e-12)
            np.testing.assert_allclose(vectors.T @ vectors, np.eye(2), atol=1e-12)


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

    def test_auto_falls_back_where_it_converges_too_slowly(self, rng):
        m = 1000
        values = 1.0 + 1e-7 * rng.random(m)
        target = Moments.from_covariance(np.diag(values), 10_000)
        found = solve_contrast(target, Moments.from_covariance(np.eye(m), 10_000), 2, loading=0.1)
        assert found.solver == "dense"
        np.testing.assert_allclose(found.eigenvalues, np.sort(values)[:-3:-1] / 1.1, rtol=1e-12)

    def test_is_repeatable(self, rng):
        target, background = pair(rng)
        a, b = (solve_contrast(target, background, 3, solver="iterative") for _ in range(2))
        np.testing.assert_array_equal(a.filters, b.filters)


class TestDual:
    @pytest.mark.parametrize("loading", ["auto", "likelihood", "oas", 0.1, 1e-3])
    @pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
    def test_equals_dense(self, rng, loading, make):
        X = (rng.normal(size=(30, 200)) + 2) * (rng.random((30, 200)) < 0.7)
        B = rng.normal(size=(50, 200)) * (rng.random((50, 200)) < 0.7)
        dual = solve_contrast(make(X), make(B), 4, loading=loading, solver="dual")
        dense = solve_contrast(make(X), make(B), 4, loading=loading, solver="dense")
        np.testing.assert_allclose(dual.eigenvalues, dense.eigenvalues, rtol=1e-9)
        np.testing.assert_allclose(dual.filters, dense.filters, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(dual.atoms, dense.atoms, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(
            dual.output_covariance, dense.output_covariance, rtol=1e-6, atol=1e-9
        )
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
        assert peak_bytes(lambda: solve_contrast(X, B, 2)) < 200 * 20_000 * 8 / 4

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
    def test_oas_is_that_of_scikit_learn(self, rng):
        X = rng.normal(size=(40, 15)) @ random_covariance(rng, 15)
        S = Moments.of(X).covariance()
        mine = oas_shrinkage(np.trace(S), (S**2).sum(), 40, 15)
        assert mine == pytest.approx(OAS().fit(X).shrinkage_, rel=1e-10)

    def test_oas_is_done_in_units_of_the_background(self, rng):
        B = rng.normal(size=(40, 15)) @ random_covariance(rng, 15, 2.0)
        X = rng.normal(size=(50, 15))
        scale = B.std(axis=0)
        shrunk = OAS().fit(B / scale).covariance_ * np.outer(scale, scale)
        found = solve_contrast(X, B, 2, loading="oas")
        np.testing.assert_allclose(loaded(Moments.of(B), found), shrunk, rtol=1e-8, atol=1e-10)

    @pytest.mark.parametrize("loading", ["auto", "likelihood"])
    def test_likelihood_is_done_in_units_of_the_background(self, rng, loading):
        B = rng.normal(size=(40, 15)) @ random_covariance(rng, 15, 2.0)
        B[:, 4] = 3.0
        X = rng.normal(size=(50, 15)) * 2.0
        varying = np.arange(15) != 4
        correlations = np.corrcoef(B[:, varying].T)
        rho = likelihood_shrinkage(np.linalg.eigvalsh(correlations), 40, 14)
        found = solve_contrast(X, B, 2, loading=loading).loading
        assert found.weight == pytest.approx(1.0 - rho)
        np.testing.assert_allclose(found.diagonal[varying], rho * B.var(axis=0)[varying])
        # A feature that the background lacks: as if one of the 40 samples had it.
        np.testing.assert_allclose(found.diagonal[4], X[:, 4].var() / 40)

    def test_auto_fades_with_samples(self, rng):
        mixing = random_covariance(rng, 10, 2.0)
        weights = [
            1
            - solve_contrast(
                rng.normal(size=(50, 10)), correlated(rng, n, mixing), 1
            ).loading.weight
            for n in (20, 200, 20_000)
        ]
        assert weights[0] > weights[1] > weights[2]
        assert weights[2] < 1e-2

    def test_a_number_is_a_fraction_of_the_mean_eigenvalue(self, rng):
        X, B = rng.normal(size=(50, 5)), rng.normal(size=(50, 5)) * [1, 2, 3, 4, 5]
        found = solve_contrast(X, B, 1, loading=0.3)
        mean_eigenvalue = np.linalg.eigvalsh(np.cov(B.T, ddof=0)).mean()
        np.testing.assert_allclose(found.loading.diagonal, 0.3 * mean_eigenvalue)
        assert found.loading.weight == 1.0

    def test_diagonal_loads_only_if_needed(self, rng):
        X, B = rng.normal(size=(50, 5)), rng.normal(size=(50, 5))
        assert (solve_contrast(X, B, 1, loading="diagonal").loading.diagonal == 0).all()
        B[:, 4] = B[:, 3]
        found = solve_contrast(X, B, 1, loading="diagonal")
        np.testing.assert_allclose(found.loading.diagonal, 1e-6 * B.var(axis=0).mean())

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
        for loading in ("auto", 0.1, "diagonal"):
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


def faint_and_loud(rng, n=40_000):
    """Two features that differ little, in the target more, and ten that share a signal there."""
    X, B = rng.standard_normal((2, n, 12))
    for rows, hair in ((X, 1.0), (B, 0.2)):
        rows[:, 1] = rows[:, 0] + hair * rows[:, 1]
    X[:, 2:] += rng.standard_normal((n, 1))
    return X, B


def steered(target, background, found, contrast):
    """Return contrasts and filters of the steered problem, by SciPy's generalized solver."""
    r_f, sigma = target.covariance(), loaded(background, found)
    units = np.diag((target.variance() + background.variance()) / 2)
    ridge = sl.eigh(r_f - contrast * sigma, units, eigvals_only=True)[-1] / contrast
    values, vectors = sl.eigh(r_f, sigma + ridge * units)
    return values[::-1], vectors[:, ::-1]


def loudest(target, background, found, alpha=6.0):
    """Return eigenvalues and filters of cPCA at alpha, by SciPy's generalized solver."""
    r_f, sigma = target.covariance(), loaded(background, found)
    units = np.diag((target.variance() + background.variance()) / 2)
    values, vectors = sl.eigh(r_f - alpha * sigma, units)
    return values[::-1], vectors[:, ::-1]


def same(one, other):
    for name in ("filters", "atoms", "eigenvalues", "output_covariance"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def nuisance(rng, solver):
    """Two loud directions of the target's own, faint ones, and some that are louder in it."""
    m, n, louder = (300, 120, 1.3) if solver == "dual" else (60, 2000, 2.5)
    basis = np.linalg.qr(rng.standard_normal((m, m))).Q
    scale = np.ones(m)
    scale[:5] = 30.0
    X, B = rng.standard_normal((2, n, m)) * scale
    X[:, :5] *= louder**0.5
    X[:, 10:12] += [30.0, 25.0] * rng.standard_normal((n, 2))
    X[:, 12:20] += 4.0 * rng.standard_normal((n, 8))
    return Moments.of(X @ basis.T), Moments.of(B @ basis.T)


class TestSteering:
    """Where the contrast is large, "auto" looks for what is loud."""

    @pytest.mark.parametrize("n_features", [20, 150])
    def test_below_the_bound_only_what_samples_cannot_tell_is_given_up(self, rng, n_features):
        X, B = rng.normal(size=(900, n_features)), rng.normal(size=(1200, n_features))
        X[:, 3] *= 2.0
        target, background = Moments.of(X), Moments.of(B)
        plain, auto = (
            solve_contrast(target, background, 3, loading=name) for name in ("likelihood", "auto")
        )
        least = indistinct_contrast(plain.eigenvalues[0], 900, 1200)
        assert 0.8 * plain.eigenvalues[0] < least < plain.eigenvalues[0] < 6.0
        contrasts, vectors = steered(target, background, auto, least)
        assert contrasts[0] == pytest.approx(least)
        assert subspace_angle(auto.filters, vectors[:, :3]) < 1e-6
        assert least <= auto.eigenvalues[0] < plain.eigenvalues[0]
        assert auto.rare is None
        assert auto.n_steered == 0

    def test_a_direction_that_neither_set_has_gets_no_weight(self, rng):
        """What neither set shows cannot be told apart, so that any weight there is noise."""
        m = 20
        basis = np.linalg.qr(rng.standard_normal((m, m))).Q
        scale = np.ones(m)
        scale[-1] = 1e-3
        X, B = rng.standard_normal((2, 1000, m)) * scale
        X[:, :2] *= 2.0
        for loading in ("likelihood", "auto"):
            found = solve_contrast(X @ basis.T, B @ basis.T, 2, loading=loading)
            q = np.linalg.qr(found.filters).Q
            cosines = np.linalg.svd(basis[:, :2].T @ q, compute_uv=False)
            assert cosines[-1] > 0.97 if loading == "auto" else cosines[-1] < 0.5

    @pytest.mark.parametrize("n_features", [20, 150])
    def test_against_scipy(self, rng, n_features):
        target, background = pair(rng, 3000, 4000, n_features)
        k = 2
        found = solve_contrast(target, background, k)
        assert found.rare.eigenvalues[k - 1] > 6.0
        theta, vectors = loudest(target, background, found)
        span = vectors[:, :k]
        assert theta[k - 1] > 0.0
        assert subspace_angle(found.filters, span) < 1e-6
        # Within that span it is the plain problem ...
        r_f, sigma = target.covariance(), loaded(background, found)
        values = sl.eigh(span.T @ r_f @ span, span.T @ sigma @ span, eigvals_only=True)
        np.testing.assert_allclose(found.eigenvalues, values[::-1], rtol=1e-7)
        assert found.eigenvalues[-1] > 6.0
        F, W = found.filters, found.atoms
        np.testing.assert_allclose(F.T @ sigma @ F, np.eye(k), atol=1e-8)
        np.testing.assert_allclose(F.T @ r_f @ F, np.diag(found.eigenvalues), atol=1e-6)
        # ... with the atoms from which the outputs predict the target best.
        np.testing.assert_allclose(W, r_f @ F / found.eigenvalues, rtol=1e-6, atol=1e-8)

    def test_the_loud_is_preferred_to_the_faint(self, rng):
        X, B = faint_and_loud(rng)
        plain, auto = (solve_contrast(X, B, 1, loading=name) for name in ("likelihood", "auto"))
        faint, loud = slice(0, 2), slice(2, 12)
        assert np.linalg.norm(plain.filters[faint]) > 10 * np.linalg.norm(plain.filters[loud])
        assert np.linalg.norm(auto.filters[loud]) > 10 * np.linalg.norm(auto.filters[faint])
        assert plain.eigenvalues[0] > 15.0
        assert auto.eigenvalues[0] == pytest.approx(1 + 10, rel=0.1)

    def test_the_first_is_that_of_cpca_at_the_bound(self, rng):
        X, B = faint_and_loud(rng, 200_000)
        scale = np.sqrt((X.var(axis=0) + B.var(axis=0)) / 2)
        _, filters = solve_difference(Moments.of(X / scale), Moments.of(B / scale), 1, [6.0])
        found = solve_contrast(X / scale, B / scale, 1)
        assert subspace_angle(found.filters, filters[0]) < 1e-3

    def test_all_components_are_those_of_the_plain_problem(self, rng):
        target, background = pair(rng, n_features=8)
        plain, auto = (
            solve_contrast(target, background, 8, loading=n) for n in ("likelihood", "auto")
        )
        np.testing.assert_allclose(auto.eigenvalues, plain.eigenvalues, rtol=1e-8)

    @pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
    def test_dual(self, rng, make):
        shared = rng.standard_normal((3, 150))
        X, B = (rng.normal(size=(n, 150)) + 3 * rng.normal(size=(n, 3)) @ shared for n in (60, 70))
        X[:, :30] += 5.0 * rng.standard_normal((60, 1))
        X[:, 50:80] += 5.0 * rng.standard_normal((60, 1))
        dense, dual = (solve_contrast(make(X), make(B), 2, solver=s) for s in ("dense", "dual"))
        plain = solve_contrast(X, B, 2, loading="likelihood")
        assert subspace_angle(dense.filters, plain.filters) > 1e-3
        np.testing.assert_allclose(dual.eigenvalues, dense.eigenvalues, rtol=1e-7)
        np.testing.assert_allclose(dual.filters, dense.filters, atol=1e-6)
        np.testing.assert_allclose(dual.atoms, dense.atoms, atol=1e-6)
        np.testing.assert_allclose(dual.output_covariance, dense.output_covariance, rtol=1e-5)
        np.testing.assert_allclose(dual.loading.diagonal, dense.loading.diagonal, rtol=1e-10)

    @pytest.mark.parametrize("solver", ["dense", "iterative", "dual"])
    def test_what_is_merely_louder_in_the_target_is_left_out(self, rng, solver):
        target, background = nuisance(rng, solver)
        found = {k: solve_contrast(target, background, k, solver=solver) for k in (2, 3, 6)}
        assert {k: f.n_steered for k, f in found.items()} == {2: 2, 3: 3, 6: 6}
        assert found[6].eigenvalues[-1] > 6.0
        plain = solve_contrast(target, background, 3, loading="likelihood", solver=solver)
        for name in ("filters", "atoms", "eigenvalues", "output_covariance"):
            np.testing.assert_allclose(
                getattr(found[3].rare, name), getattr(plain, name), rtol=1e-6, atol=1e-9
            )

    @pytest.mark.parametrize("solver", ["dense", "iterative", "dual"])
    def test_spans_grow_with_the_number_of_components(self, rng, solver):
        target, background = nuisance(rng, solver)
        spans = [solve_contrast(target, background, k, solver=solver).filters for k in range(1, 7)]
        for small, large in itertools.pairwise(spans):
            coefficients = np.linalg.lstsq(large, small, rcond=None)[0]
            np.testing.assert_allclose(large @ coefficients, small, atol=1e-6 * abs(small).max())

    @pytest.mark.parametrize(("louder", "n_steered"), [(4.5, 4), (2.5, 2)])
    def test_what_fills_up_is_loud_if_it_keeps_its_contrast(self, rng, louder, n_steered):
        """Two contrasts are above the bound. Below it loud directions compete with faint ones."""
        m, n = 30, 3000
        basis = np.linalg.qr(rng.standard_normal((m, m))).Q
        X, B = rng.standard_normal((2, n, m))
        for rows in (X, B):
            rows[:, 2:4] *= 10.0
        X[:, :2] *= [9.0, 8.0]
        X[:, 2:4] *= louder**0.5
        X[:, 4:6] *= 5.2**0.5
        target, background = Moments.of(X @ basis.T), Moments.of(B @ basis.T)
        two, four = (solve_contrast(target, background, k) for k in (2, 4))
        assert (two.n_steered, four.n_steered) == (2, n_steered)
        r_f, sigma = target.covariance(), loaded(background, two)
        beside = sl.null_space((r_f @ two.filters).T)
        units = np.diag((target.variance() + background.variance()) / 2)
        ridge = 0.0 if n_steered == 2 else loudest(target, background, two)[0][0] / 6.0
        within = (beside.T @ matrix @ beside for matrix in (r_f, sigma + ridge * units))
        best = sl.eigh(*within)[1][:, -2:]
        assert subspace_angle(four.filters, np.c_[two.filters, beside @ best]) < 1e-6
        F, W = four.filters, four.atoms
        np.testing.assert_allclose(F.T @ sigma @ F, np.eye(4), atol=1e-8)
        np.testing.assert_allclose(W, r_f @ F / four.eigenvalues, rtol=1e-6, atol=1e-7)

    def test_solvers_agree_where_filters_are_filled_up(self, rng):
        target, background = nuisance(rng, "dual")
        dense, dual = (solve_contrast(target, background, 14, solver=s) for s in ("dense", "dual"))
        assert 2 <= dense.n_steered == dual.n_steered < 14
        for one, other in ((dense, dual), (dense.rare, dual.rare)):
            np.testing.assert_allclose(other.eigenvalues, one.eigenvalues, rtol=1e-6)
            assert subspace_angle(other.filters, one.filters) < 1e-5
            np.testing.assert_allclose(other.atoms, one.atoms, atol=1e-5 * abs(one.atoms).max())
            np.testing.assert_allclose(
                other.output_covariance.diagonal(), one.output_covariance.diagonal(), rtol=1e-4
            )

    @pytest.mark.parametrize(("n_features", "n_background"), [(40, 500), (80, 1500)])
    def test_a_needle_is_found(self, rng, n_features, n_background):
        """Classes along rotated directions with a hundredth of the variance of the others."""
        basis = np.linalg.qr(rng.standard_normal((n_features, n_features))).Q
        deviation = np.where(np.arange(n_features) < 4, 0.1, 1.0)
        labels = rng.integers(4, size=500)
        X = rng.standard_normal((500, n_features)) * deviation
        X[:, :2] += 0.8 * np.stack([labels % 2, labels // 2], axis=1)
        B = rng.standard_normal((n_background, n_features)) * deviation
        found = solve_contrast(X @ basis.T, B @ basis.T, 2)
        outputs = X @ basis.T @ found.filters
        clusters = KMeans(4, n_init=10, random_state=0).fit_predict(outputs / outputs.std(axis=0))
        assert adjusted_rand_score(labels, clusters) >= 0.95

    def test_many_samples_of_a_feature_that_the_background_lacks(self, rng):
        """A constant feature counts as if one background sample in n had it."""
        X, B = rng.standard_normal((2, 5000, 4))
        B[:, 2] = 7.0
        found = solve_contrast(X, B, 1, loading="likelihood")
        assert abs(found.filters[:, 0]).argmax() == 2
        assert found.eigenvalues[0] == pytest.approx(5000.0, rel=0.01)

    @pytest.mark.parametrize("solver", ["dense", "iterative"])
    def test_many_components_do_not_bring_back_what_both_sets_share(self, rng, solver):
        """A loud common part, two loud directions of the target's own, and faint ones."""
        m, n = 120, 4000
        basis = np.linalg.qr(rng.standard_normal((m, m))).Q
        common, own, faint = basis[:20] * 20.0, basis[20:22] * 10.0, basis[22:40] * 3.0

        def grass():
            return rng.standard_normal((n, 20)) @ common + rng.standard_normal((n, m))

        def special():
            return rng.standard_normal((n, 2)) @ own + rng.standard_normal((n, 18)) @ faint

        fitted, clean, background = grass() + special(), special(), grass()
        new = grass() + clean
        for k in (2, 10, 20, 30):
            errors = []
            for loading in ("auto", "likelihood"):
                found = solve_contrast(fitted, background, k, loading=loading, solver=solver)
                denoised = (new - fitted.mean(axis=0)) @ found.filters @ found.atoms.T
                errors.append(((denoised - clean) ** 2).mean() / (clean**2).mean())
            assert errors[0] <= 1.15 * errors[1]
            assert errors[0] < 0.6 or k > 20

    def test_does_not_depend_on_units(self, rng):
        X, B = faint_and_loud(rng, 1000)
        units = 10.0 ** rng.uniform(-8, 8, 12)
        plain, scaled = solve_contrast(X, B, 2), solve_contrast(X * units, B * units, 2)
        np.testing.assert_allclose(scaled.eigenvalues, plain.eigenvalues, rtol=1e-7)
        assert subspace_angle(scaled.filters * units[:, None], plain.filters) < 1e-6

    def test_background_comes_out_as_expected(self, rng):
        """The output covariance is that of new samples, also along steered filters."""
        X, B = faint_and_loud(rng, 300)
        found = solve_contrast(X, B, 2)
        _, fresh = faint_and_loud(rng, 100_000)
        outputs = (fresh - B.mean(axis=0)) @ found.filters
        np.testing.assert_allclose(
            np.diag(np.cov(outputs.T)), np.diag(found.output_covariance), rtol=0.25
        )


@pytest.mark.parametrize("n", [20, 150])
@pytest.mark.parametrize("largest", [5.0, 1e-3, -0.5])
def test_the_largest_eigenvalue(rng, n, largest):
    basis = np.linalg.qr(rng.standard_normal((n, n))).Q
    values = -(10.0 ** rng.uniform(0.5, 2, n))
    values[-1] = largest
    found = largest_eigenvalue(np.asfortranarray(basis * values @ basis.T))
    assert found == pytest.approx(largest, rel=1e-6, abs=1e-9)


def test_the_largest_of_a_crowd_of_eigenvalues(rng):
    values = 1.0 + 1e-9 * rng.random(200)
    found = largest_eigenvalue(np.asfortranarray(np.diag(values)))
    assert found == pytest.approx(values.max(), rel=1e-8)


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
            ({"loading": "much"}, ValueError, "loading='much' must be one of 'auto', 'likel"),
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

    def test_more_components_than_the_target_has_rank(self, rng):
        X = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 6))
        for background in (rng.normal(size=(50, 6)), None):
            with pytest.raises(ValueError, match="must be at most 2"):
                solve_contrast(X, background, 3)


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

    def test_orthogonal_and_equal(self):
        first, second = (
            Moments.from_covariance(np.diag(d), 100) for d in ([9.0, 8, 2, 1], [1.0, 2, 8, 9])
        )
        assert subspace_overlap(first, second, 2) == pytest.approx(0.0, abs=1e-12)
        assert subspace_overlap(first, second, 3) == pytest.approx(2 / 3)
        assert subspace_overlap(first, second, 4) == pytest.approx(1.0)
        for k in (1, 2, 3):
            assert subspace_overlap(first, first, k) == pytest.approx(1.0)

    def test_of_data(self, rng):
        X, B = rng.normal(size=(300, 8)) * np.arange(1, 9), rng.normal(size=(200, 8))
        u_f, u_b = (PCA(3).fit(rows).components_.T for rows in (X, B))
        expected = np.mean(np.cos(sl.subspace_angles(u_f, u_b)) ** 2)
        assert subspace_overlap(Moments.of(X), Moments.of(B), 3) == pytest.approx(expected)

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
        outputs = scaled.output_covariance * np.outer(sign, sign)
        np.testing.assert_allclose(outputs, plain.output_covariance, atol=1e-6)

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
    @pytest.mark.parametrize("loading", ["auto", "oas", "diagonal", 0.1])
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


@pytest.mark.parametrize("n_features", [6, 200])
@pytest.mark.parametrize("loading", ["auto", "oas", 0.1])
def test_variances_are_computed_once(rng, n_features, loading, monkeypatch):
    asked = []
    computed = Moments.variance
    monkeypatch.setattr(Moments, "variance", lambda self: asked.append(self) or computed(self))
    target = Moments.of(rng.normal(size=(50, n_features)) * 3)
    background = Moments.of(rng.normal(size=(60, n_features)))
    solve_contrast(target, background, 2, loading=loading)
    assert asked == [target, background]
