from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from cpcapp import CPCAPlusPlus, glrt_detects, log_glrt
from cpcapp.datasets import synthetic


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


def test_units_do_not_matter(rng):
    X, atoms, units = rng.normal(size=(90, 4)), rng.normal(size=(2, 4)), [1e9, 1.0, 1e-9, 1e3]
    assert log_glrt(X * units, atoms * units, 30) == pytest.approx(log_glrt(X, atoms, 30))
