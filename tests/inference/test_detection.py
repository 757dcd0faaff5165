from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from cpcapp import (
    CPCAPlusPlus,
    Moments,
    count_components,
    glrt_detects,
    log_glrt,
    noise_threshold,
    permutation_threshold,
    power_p_value,
    wachter_edge,
)
from cpcapp.datasets import synthetic
from cpcapp.inference.glrt import count_components_by_permutation


class TestGLRT:
    @pytest.mark.parametrize(("m", "k", "n_f", "n_b"), [(2, 1, 4, 6), (3, 1, 3, 8), (3, 2, 4, 9)])
    def test_is_the_ratio_of_maximized_likelihoods(self, rng, m, k, n_f, n_b):
        """Maximize both Gaussian likelihoods numerically; nothing of the closed form is used."""
        Z = rng.normal(size=(n_f + n_b, m))
        Z[:n_f] -= Z[:n_f].mean(axis=0)
        Z[n_f:] -= Z[n_f:].mean(axis=0)
        W = rng.normal(size=(k, m))
        n = n_f + n_b

        def log_likelihood(residual):
            covariance = residual.T @ residual / n  # the maximum-likelihood covariance
            return multivariate_normal(np.zeros(m), covariance).logpdf(residual).sum()

        def negative(y):
            residual = Z.copy()
            residual[:n_f] -= y.reshape(n_f, k) @ W
            return -log_likelihood(residual)

        best = min(
            minimize(negative, rng.normal(size=n_f * k), method="BFGS", tol=1e-10).fun
            for _ in range(3)
        )
        log_ratio = -best - log_likelihood(Z)
        assert log_glrt(Z, W, n_f) * n / 2 == pytest.approx(log_ratio, rel=1e-5)

    def test_against_determinants(self, rng):
        Z, W = rng.normal(size=(40, 5)), rng.normal(size=(2, 5))
        z_f, z_b = Z[:15] - Z[:15].mean(axis=0), Z[15:] - Z[15:].mean(axis=0)
        s_b = z_b.T @ z_b
        s = s_b + z_f.T @ z_f
        direct = np.linalg.det(W @ np.linalg.inv(s_b) @ W.T) / np.linalg.det(
            W @ np.linalg.inv(s) @ W.T
        )
        assert np.exp(log_glrt(Z, W, 15)) == pytest.approx(direct, rel=1e-10)

    def test_does_not_depend_on_the_basis_of_the_atoms(self, rng):
        Z, W = rng.normal(size=(40, 5)), rng.normal(size=(2, 5))
        mixed = np.array([[2.0, 1.0], [0.5, -3.0]]) @ W
        assert log_glrt(Z, mixed, 15) == pytest.approx(log_glrt(Z, W, 15), rel=1e-10)

    def test_the_found_atoms_have_the_largest_statistic(self, rng):
        data = synthetic(random_state=0)
        est = CPCAPlusPlus(2, loading="none").fit(data.target, background=data.background)
        Z = np.vstack([data.target, data.background])
        best = log_glrt(Z, est.atoms_, 400)
        # At the maximum the statistic is Σ log(1 + (n_f/n_b) λ).
        assert best == pytest.approx(np.log1p(est.eigenvalues_).sum(), rel=1e-8)
        for _ in range(20):
            assert log_glrt(Z, rng.normal(size=(2, 30)), 400) < best

    def test_784_features_do_not_overflow(self, rng):
        Z = rng.normal(size=(2000, 784)) * 1e3
        W = rng.normal(size=(300, 784)) * 1e-3
        statistic = log_glrt(Z, W, 500)
        assert np.isfinite(statistic)
        assert statistic > 0

    def test_no_question_no_statistic(self, rng):
        assert log_glrt(rng.normal(size=(40, 5)), np.eye(5)[:2], 0) == 0.0

    def test_decision(self, rng):
        Z, W = rng.normal(size=(60, 5)), np.eye(5)[:1]
        statistic = np.exp(log_glrt(Z, W, 20))
        assert glrt_detects(Z, W, 20, threshold=statistic * 0.999)
        assert not glrt_detects(Z, W, 20, threshold=statistic * 1.001)

    def test_bad_input(self, rng):
        Z = rng.normal(size=(40, 5))
        with pytest.raises(ValueError, match="atoms have 4 features, but X has 5"):
            log_glrt(Z, np.eye(4), 5)
        with pytest.raises(ValueError, match="n_target=40 must be between 0 and 39"):
            log_glrt(Z, np.eye(5), 40)
        with pytest.raises(ValueError, match="X contains NaN"):
            log_glrt(np.full((4, 5), np.nan), np.eye(5), 1)
        with pytest.raises(ValueError, match="atoms has shape"):
            log_glrt(Z, np.ones(5), 5)
        with pytest.raises(ValueError, match="its rank is 3 of 5 features"):
            log_glrt(Z, np.eye(5), 36)
        with pytest.raises(ValueError, match="linearly independent"):
            log_glrt(Z, np.ones((2, 5)), 5)
        with pytest.raises(ValueError, match="threshold=0 must be above 0"):
            glrt_detects(Z, np.eye(5), 5, threshold=0)


class TestPower:
    def test_is_chi_squared_for_white_outputs(self, rng):
        p = power_p_value((rng.normal(size=(20_000, 3)) ** 2).sum(axis=1), np.eye(3))
        for level in (0.01, 0.1, 0.5):
            assert (p < level).mean() == pytest.approx(level, abs=4 * np.sqrt(level / 20_000))

    def test_correlated_outputs(self, rng):
        mixing = np.array([[1.0, 0.0], [0.8, 0.5]])
        p = power_p_value(
            ((rng.normal(size=(50_000, 2)) @ mixing.T) ** 2).sum(1), mixing @ mixing.T
        )
        assert (p < 0.05).mean() == pytest.approx(0.05, rel=0.15)

    def test_no_components(self):
        np.testing.assert_array_equal(power_p_value([0.0, 0.0], np.empty((0, 0))), 1.0)


class TestNoise:
    def test_the_edge_is_where_the_eigenvalues_end(self, rng):
        edge = wachter_edge(2000, 3000, 400)
        X, B = rng.normal(size=(2000, 400)), rng.normal(size=(3000, 400))
        est = CPCAPlusPlus(1, loading="none").fit(X, background=B)
        assert est.eigenvalues_[0] == pytest.approx(edge, rel=0.03)

    def test_the_threshold_closes_in_on_the_edge(self):
        small = noise_threshold(60, 80, 10) / wachter_edge(60, 80, 10)
        large = noise_threshold(60_000, 80_000, 10_000) / wachter_edge(60_000, 80_000, 10_000)
        assert 1.0 < large < 1.01 < small

    @pytest.mark.parametrize(("n_f", "n_b", "m"), [(120, 150, 20), (15, 200, 30), (60, 45, 30)])
    def test_false_alarm_rate(self, rng, n_f, n_b, m):
        """Two samples of one population, of any covariance, are told apart at the stated rate."""
        mixing = rng.normal(size=(m, m))
        runs = 600
        alarms = sum(
            count_components(
                Moments.of(rng.normal(size=(n_f, m)) @ mixing),
                Moments.of(rng.normal(size=(n_b, m)) @ mixing),
                false_alarm_rate=0.1,
            )
            > 0
            for _ in range(runs)
        )
        # Binomial: 60 expected, standard deviation 7.3; Johnstone's law is good to a few percent.
        assert 0.06 < alarms / runs < 0.14

    def test_what_is_there_is_counted(self):
        for seed in range(5):
            data = synthetic(random_state=seed)
            target, background = Moments.of(data.target), Moments.of(data.background)
            assert count_components(target, background) == 2

    def test_bad_input(self):
        with pytest.raises(ValueError, match="target must be Moments with samples"):
            count_components(Moments(), Moments())
        with pytest.raises(ValueError, match="needs more than 31 background samples"):
            noise_threshold(100, 31, 30)
        with pytest.raises(ValueError, match="false_alarm_rate=0 must be between 0 and 1"):
            noise_threshold(100, 100, 30, false_alarm_rate=0)


class TestPermutation:
    def test_sparse_and_repeatable(self, rng):
        X, B = (sp.random_array((60, 100), density=0.2, format="csr", rng=rng) for _ in "fb")
        a, b = (permutation_threshold(X, B, n_permutations=19, random_state=1) for _ in range(2))
        assert a == b > 0

    def test_bad_input(self, rng):
        X = rng.normal(size=(20, 3))
        with pytest.raises(ValueError, match="n_permutations=5 must be at least 19"):
            permutation_threshold(X, X, n_permutations=5)
        with pytest.raises(ValueError, match="false_alarm_rate=2"):
            permutation_threshold(X, X, false_alarm_rate=2)

    @pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
    def test_counts_as_the_estimator_does(self, rng, kind):
        data = synthetic(random_state=1)
        X, B = kind(data.target), kind(data.background)
        est = CPCAPlusPlus("permutation").fit(X, background=B)
        assert count_components_by_permutation(X, B) == est.n_components_ == 2
        assert count_components_by_permutation(B[:200], B[200:], false_alarm_rate=0.02) == 0

    def test_masked_values_are_refused(self, rng):
        X = np.ma.array(rng.normal(size=(30, 4)))
        X[2, 1] = np.ma.masked
        with pytest.raises(ValueError, match="X is a masked array with 1 masked values, in column"):
            permutation_threshold(X, X.data)
        with pytest.raises(ValueError, match="background is a masked array"):
            permutation_threshold(X.data, X)
        with pytest.raises(ValueError, match="X is a masked array"):
            log_glrt(X, np.eye(4)[:1], 5)
