"""The matrix-free solver against SciPy and against the dense one, on sparse counts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as sl
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cpcapp import CPCAPlusPlus, Moments, _accumulator, matrix_free, solve_contrast
from cpcapp.contrast import loading as loading_rules
from cpcapp.contrast.loading import LoadingRule
from cpcapp.contrast.matrix_free import (
    CentredRows,
    LoadedBackground,
    estimate_spectrum,
    sketch_covariance,
)
from cpcapp.contrast.solve import InsufficientRankError
from helpers import peak_bytes, subspace_angle


@pytest.fixture
def keep_rows(monkeypatch):
    """Keep sparse rows of any number of features, so that small problems are sparse too."""
    monkeypatch.setattr(_accumulator, "_SPARSE_ROWS_FROM", 1)
    monkeypatch.setattr(_accumulator, "_SPARSE_ROWS_SHARE", np.inf)


@pytest.fixture
def shrink_alike(monkeypatch):
    """Let both solvers shrink by the same, which one of them estimates otherwise."""
    monkeypatch.setattr(loading_rules, "likelihood_shrinkage", lambda *_: 0.01)


def counts(rng, n, n_features, *, signal=0.0, rate=0.08):
    """Return sparse counts with a programme that all have, and two more at the given strength."""
    programmes = np.random.default_rng(7).standard_normal((3, n_features))
    cells = rng.standard_normal((n, 3)) * [0.7, signal, signal]
    return sp.csr_array(rng.poisson(rate * np.exp(cells @ programmes)).astype(float))


def pair(rng, n_target=260, n_background=300, n_features=90, signal=0.5):
    target = counts(rng, n_target, n_features, signal=signal)
    return Moments.of(target), Moments.of(counts(rng, n_background, n_features))


def rows_of(data):
    kept = Moments.of(data)
    assert kept.is_thin
    return CentredRows(kept, kept.spread())


@pytest.mark.usefixtures("keep_rows")
class TestAgainstDense:
    @pytest.mark.parametrize("loading", ["oas", 0.1, 1e-3])
    @pytest.mark.parametrize("k", [1, 2, 7])
    def test_eigenvalues_filters_and_atoms_are_those_of_scipy(self, rng, loading, k):
        target, background = pair(rng)
        found = solve_contrast(target, background, k, loading=loading, solver="matrix-free")
        assert found.solver == "matrix-free"
        sigma = found.loading.weight * background.covariance() + np.diag(found.loading.diagonal)
        values, vectors = sl.eigh(target.covariance(), sigma, subset_by_index=(90 - k, 89))
        np.testing.assert_allclose(found.eigenvalues, values[::-1], rtol=1e-6)
        assert subspace_angle(found.filters, vectors) < 1e-3
        np.testing.assert_allclose(found.atoms, sigma @ found.filters, atol=1e-8)
        np.testing.assert_allclose(found.filters.T @ found.atoms, np.eye(k), atol=1e-8)

    @pytest.mark.usefixtures("shrink_alike")
    @pytest.mark.parametrize("signal", [0.0, 0.3, 1.0], ids=["none", "some", "much"])
    @pytest.mark.parametrize("k", [1, 3])
    @pytest.mark.parametrize("scaling", ["background", "unit"])
    def test_the_default_rule_gives_the_same_with_either_solver(self, rng, signal, k, scaling):
        target, background = pair(rng, signal=signal)
        dense, free = (
            solve_contrast(target, background, k, solver=solver, scaling=scaling)
            for solver in ("dense", "matrix-free")
        )
        np.testing.assert_allclose(free.eigenvalues, dense.eigenvalues, rtol=1e-6)
        np.testing.assert_allclose(free.loading.diagonal, dense.loading.diagonal, rtol=1e-9)
        assert free.loading.weight == pytest.approx(dense.loading.weight, rel=1e-9)
        assert subspace_angle(free.filters, dense.filters) < 1e-3
        np.testing.assert_allclose(
            free.output_covariance, dense.output_covariance, rtol=0.2, atol=0.1
        )

    @pytest.mark.usefixtures("shrink_alike")
    @pytest.mark.parametrize(("k", "n_steered"), [(1, 1), (2, 1), (4, 1)])
    def test_filters_that_steering_leaves_are_filled_up_alike(self, rng, k, n_steered):
        """One direction is loud in the target alone, three in both, and four are faint."""
        turn = np.linalg.qr(rng.standard_normal((60, 60))).Q
        of_target, of_background = np.ones(60), np.ones(60)
        of_target[:4], of_background[1:4] = [4.0, 9.0, 8.0, 7.0], [6.0, 5.5, 5.0]
        of_target[5:9], of_background[5:9] = [0.4, 0.38, 0.36, 0.34], 0.1
        X, B = (rng.standard_normal((900, 60)) * sd @ turn for sd in (of_target, of_background))
        target, background = (Moments.of(sp.csr_array(rows)) for rows in (X, B))
        dense, free = (
            solve_contrast(target, background, k, solver=s) for s in ("dense", "matrix-free")
        )
        assert free.n_steered == dense.n_steered == n_steered
        for one, other in ((free, dense), (free.rare, dense.rare)):
            np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-5)
            assert subspace_angle(one.filters, other.filters) < 1e-3
            np.testing.assert_allclose(one.filters.T @ one.atoms, np.eye(k), atol=1e-6)

    @given(
        n_features=st.integers(2, 40),
        n_target=st.integers(5, 60),
        n_background=st.integers(5, 60),
        k=st.integers(1, 4),
        seed=st.integers(0, 300),
    )
    def test_any_shape(self, n_features, n_target, n_background, k, seed):
        rng = np.random.default_rng(seed)
        X = counts(rng, n_target, n_features, signal=0.5, rate=1.0)
        B = counts(rng, n_background, n_features, rate=1.0)
        # What the fixture changes lasts for all examples.
        target, background = Moments.of(X), Moments.of(B)
        k = min(k, n_features, n_target - 1)
        try:
            dense = solve_contrast(target, background, k, loading="oas", solver="dense")
        except InsufficientRankError:
            with pytest.raises(InsufficientRankError):
                solve_contrast(target, background, k, loading="oas", solver="matrix-free")
            return
        free = solve_contrast(target, background, k, loading="oas", solver="matrix-free")
        np.testing.assert_allclose(free.eigenvalues, dense.eigenvalues, rtol=1e-6)

    def test_without_a_background_it_is_pca(self, rng):
        target, _ = pair(rng)
        found = solve_contrast(target, None, 3, solver="matrix-free")
        values, vectors = np.linalg.eigh(target.covariance())
        np.testing.assert_allclose(found.eigenvalues, values[:-4:-1], rtol=1e-6)
        assert subspace_angle(found.filters, vectors[:, -3:]) < 1e-3
        np.testing.assert_allclose(found.atoms, found.filters, atol=1e-10)

    def test_features_that_never_vary_get_no_weight(self, rng):
        X, B = counts(rng, 200, 60, signal=0.5), counts(rng, 250, 60)
        X, B = X.tolil(), B.tolil()
        X[:, 3] = B[:, 3] = 0.0
        X[:, 4] = B[:, 4] = 1e6
        target, background = Moments.of(X.tocsr()), Moments.of(B.tocsr())
        dense, free = (
            solve_contrast(target, background, 2, loading="oas", solver=s)
            for s in ("dense", "matrix-free")
        )
        np.testing.assert_allclose(free.eigenvalues, dense.eigenvalues, rtol=1e-6)
        np.testing.assert_allclose(free.filters[[3, 4]], 0.0, atol=1e-12)

    @pytest.mark.usefixtures("shrink_alike")
    def test_large_means_of_full_columns_do_no_harm(self, rng):
        X, B = counts(rng, 200, 60, signal=0.5).toarray(), counts(rng, 250, 60).toarray()
        expected = solve_contrast(Moments.of(X), Moments.of(B), 2, solver="dense")
        X[:, :5] += 1e7
        B[:, :5] += 1e7
        target, background = Moments.of(sp.csr_array(X)), Moments.of(sp.csr_array(B))
        free = solve_contrast(target, background, 2, solver="matrix-free")
        np.testing.assert_allclose(free.eigenvalues, expected.eigenvalues, rtol=1e-6)

    def test_units_of_features_do_not_matter(self, rng):
        X, B = counts(rng, 200, 60, signal=0.5), counts(rng, 250, 60)
        units = 10.0 ** rng.uniform(-6, 6, 60)
        plain, scaled = (
            solve_contrast(
                Moments.of(sp.csr_array(X * u)),
                Moments.of(sp.csr_array(B * u)),
                2,
                solver="matrix-free",
            )
            for u in (np.ones(60), units)
        )
        np.testing.assert_allclose(scaled.eigenvalues, plain.eigenvalues, rtol=1e-6)

    def test_more_components_than_the_target_has_are_an_error(self, rng):
        X = sp.csr_array((200, 30))
        X = X.tolil()
        X[:, 0] = rng.poisson(1.0, size=(200, 1))
        X[:, 1] = rng.poisson(1.0, size=(200, 1))
        with pytest.raises(InsufficientRankError, match="k=3 must be at most 2"):
            solve_contrast(X.tocsr(), counts(rng, 100, 30), 3, solver="matrix-free")


class TestSpectrum:
    """What the likelihood of left-out samples takes of the spectrum can be estimated."""

    @pytest.mark.usefixtures("keep_rows")
    @pytest.mark.parametrize(("n", "n_features"), [(900, 300), (420, 400), (250, 500)])
    @pytest.mark.parametrize("loading", ["auto", "likelihood"])
    def test_solvers_shrink_nearly_alike(self, rng, n, n_features, loading):
        target, background = pair(rng, 300, n, n_features, signal=1.0)
        dense, free = (
            solve_contrast(target, background, 2, loading=loading, solver=s)
            for s in ("dense", "matrix-free")
        )
        assert 1 - free.loading.weight == pytest.approx(1 - dense.loading.weight, rel=0.2)
        np.testing.assert_allclose(free.eigenvalues, dense.eigenvalues, rtol=0.1)

    @pytest.mark.usefixtures("keep_rows")
    @pytest.mark.parametrize("shape", [(300, 60), (50, 120)])
    def test_sums_over_eigenvalues(self, rng, shape):
        X = counts(rng, *shape)
        X = X[:, X.toarray().std(axis=0) > 0].tolil()
        X[:, 3] = 2.0  # does not vary
        rows, units = rows_of(X.tocsr()), rng.uniform(0.5, 2.0, X.shape[1])
        values, weights = estimate_spectrum(rows, units)
        covariance = np.cov(X.toarray().T, ddof=0) / np.sqrt(np.outer(units, units))
        true = np.linalg.eigvalsh(covariance)
        true = true[true > 1e-9 * true[-1]]
        assert weights.sum() == pytest.approx(len(true))
        assert values @ weights == pytest.approx(true.sum(), rel=0.3)
        ridge = true.mean() / 10
        logarithms = np.log(values + ridge) @ weights, np.log(true + ridge).sum()
        assert logarithms[0] == pytest.approx(logarithms[1], abs=0.1 * len(true))

    @pytest.mark.usefixtures("keep_rows")
    def test_a_space_that_is_complete_early(self):
        """Lanczos from signs ends after two steps where there are two eigenvalues."""
        rows = rows_of(sp.csr_array(np.kron(np.eye(40), [[1.0, 1.0]] * 3)))
        values, weights = estimate_spectrum(rows, rows.variance)
        assert np.isfinite(values).all()
        assert weights.sum() == pytest.approx(80.0)


class TestSketch:
    @pytest.mark.usefixtures("keep_rows")
    def test_traces_of_a_covariance_in_units(self, rng):
        X = counts(rng, 300, 80)
        X = X.tolil()
        X[:, 5] = 3.0
        rows = rows_of(iter([X.tocsr()[:100], X.tocsr()[100:]]))
        units = rng.uniform(0.5, 2.0, 80)
        covariance = np.cov(X.toarray().T, ddof=0) / np.sqrt(np.outer(units, units))
        found = sketch_covariance(rows, units)
        assert found.standard_error == 0.0
        assert found.trace == pytest.approx(covariance.trace(), rel=1e-10)
        assert found.trace_of_square == pytest.approx((covariance**2).sum(), rel=1e-10)

    def test_an_estimated_trace_is_within_its_error(self, rng):
        rows = rows_of(counts(rng, 400, 1500))
        units = rows.variance + (rows.variance == 0.0)
        exact = sketch_covariance(rows, units)
        rough = sketch_covariance(rows, units, most_products=0)
        assert rough.trace_of_square != exact.trace_of_square
        assert 0.0 < rough.standard_error < 0.03 * exact.trace_of_square
        off = abs(rough.trace_of_square - exact.trace_of_square)
        assert off < 4.0 * rough.standard_error

    def test_loud_directions_are_those_of_the_covariance(self, rng):
        X = counts(rng, 300, 400, signal=0.6)
        rows = rows_of(X)
        units = np.ones(400)
        found = sketch_covariance(rows, units)
        values, vectors = np.linalg.eigh(np.cov(X.toarray().T, ddof=0))
        assert found.values.max() + found.rest == pytest.approx(values[-1], rel=1e-3)
        assert subspace_angle(found.directions, vectors[:, -1:]) < 0.1

    def test_degrees_of_freedom(self, rng):
        X = counts(rng, 900, 1000)
        rows = rows_of(X)
        units = rows.variance + (rows.variance == 0.0)
        sketch = sketch_covariance(rows, units)
        covariance = np.cov(X.toarray().T, ddof=0)
        for weight, ridge in ((1.0, 0.1), (0.6, 0.4), (0.0, 1.0)):
            rule = LoadingRule(weight, ridge, units)
            sigma = weight * covariance + np.diag(ridge * units)
            exact = np.trace(np.linalg.solve(sigma, weight * covariance))
            found = LoadedBackground(rows, rule, sketch).degrees_of_freedom()
            # The standard error is √(1000 / 2), or less with what is known.
            assert abs(found - exact) < 4 * 500**0.5
        assert found == 0.0


class TestChoice:
    def test_many_sparse_rows_are_solved_without_a_square_matrix(self, rng):
        X = sp.random_array((6000, 5000), density=0.005, format="csr", rng=rng)
        B = sp.random_array((6000, 5000), density=0.005, format="csr", rng=rng)
        loud = sp.csr_array(rng.poisson(0.3, size=(6000, 1)) @ np.ones((1, 20)))
        X = sp.csr_array(sp.hstack([X[:, :-20], X[:, -20:] + loud], format="csr"))
        fitted = CPCAPlusPlus(1)
        peak = peak_bytes(lambda: fitted.fit(X, background=B))
        assert fitted.solver_ == "matrix-free"
        assert peak < 8 * 5000**2 / 3
        weights = np.abs(fitted.components_[0])
        assert set(np.argsort(-weights)[:20]) == set(range(4980, 5000))
        assert fitted.transform(X).shape == (6000, 1)

    @pytest.mark.usefixtures("keep_rows", "shrink_alike")
    def test_where_it_does_not_converge_auto_takes_matrices(self, rng, monkeypatch):
        monkeypatch.setattr("cpcapp.contrast.solve._MATRIX_FREE_FROM", 10)
        target, background = pair(rng, n_features=200)
        found = solve_contrast(target, background, 2)
        assert found.solver == "matrix-free"
        monkeypatch.setattr(matrix_free, "_MOST_STEPS", 1)
        other = solve_contrast(target, background, 2)
        assert other.solver == "iterative"
        np.testing.assert_allclose(other.eigenvalues, found.eigenvalues, rtol=1e-6)
        with pytest.raises(ValueError, match="solver='matrix-free' did not converge"):
            solve_contrast(target, background, 2, solver="matrix-free")

    @pytest.mark.usefixtures("keep_rows")
    @pytest.mark.parametrize("loading", ["none", "diagonal", 0.0])
    def test_rules_that_may_leave_the_background_singular_are_refused(self, rng, loading):
        target, background = pair(rng)
        with pytest.raises(ValueError, match=r"needs sparse rows.*another loading"):
            solve_contrast(target, background, 1, loading=loading, solver="matrix-free")
        solve_contrast(target, background, 1, loading=0.1, solver="matrix-free")

    def test_dense_rows_and_scatters_are_refused(self, rng):
        X = rng.standard_normal((20, 30))
        for data in (X, Moments.of(sp.csr_array(X), form="scatter")):
            with pytest.raises(ValueError, match="needs sparse rows on both sides"):
                solve_contrast(data, sp.csr_array(X), 1, solver="matrix-free")

    @pytest.mark.usefixtures("keep_rows")
    def test_dual_still_needs_fewer_samples_than_features(self, rng):
        target, background = pair(rng)
        assert target.is_thin and target.n_samples > target.n_features
        with pytest.raises(ValueError, match="solver='dual' needs fewer samples than features"):
            solve_contrast(target, background, 1, solver="dual")
