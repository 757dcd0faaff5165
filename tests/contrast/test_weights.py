"""Weights of samples in the solvers: whole numbers are copies."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp import CPCA, Moments, solve_contrast

KINDS = [np.asarray, sp.csr_array]


class TestSolving:
    """Solvers see copies where weights are whole numbers, but for the number of samples."""

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(("n", "m"), [(40, 100), (60, 100), (300, 20)])
    def test_with_a_fixed_loading_weights_are_copies(self, rng, kind, n, m):
        X, B = (kind(rng.normal(size=(n, m))) for _ in range(2))
        w, v = rng.integers(1, 4, n), rng.integers(1, 4, n)
        found = solve_contrast(
            Moments.of(X, sample_weight=w), Moments.of(B, sample_weight=v), 3, loading=0.1
        )
        copies = (
            Moments.of(kind(np.repeat(rows.toarray() if sp.issparse(rows) else rows, its, axis=0)))
            for rows, its in ((X, w), (B, v))
        )
        expected = solve_contrast(*copies, 3, loading=0.1)
        np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-9)
        np.testing.assert_allclose(found.filters, expected.filters, atol=1e-7)

    def test_shrinkage_goes_by_the_effective_number(self, rng):
        X, B = rng.normal(size=(200, 20)), rng.normal(size=(200, 20))
        plain = solve_contrast(X, B, 1, loading="oas").loading
        doubled = solve_contrast(X, Moments.of(B, sample_weight=2.0), 1, loading="oas").loading
        assert doubled.weight == pytest.approx(plain.weight, rel=1e-12)
        few = np.r_[np.ones(60), np.full(140, 1e-6)]
        weighted = solve_contrast(X, Moments.of(B, sample_weight=few), 1, loading="oas").loading
        cut = solve_contrast(X, B[:60], 1, loading="oas").loading
        assert weighted.weight == pytest.approx(cut.weight, rel=1e-3)

    def test_the_difference_of_covariances_too(self, rng):
        X, B = rng.normal(size=(10, 40)), rng.normal(size=(12, 40))
        w, v = rng.integers(1, 3, 10), rng.integers(1, 3, 12)
        est = CPCA(2, alpha=1.5)
        found = est.fit_moments(Moments.of(X, sample_weight=w), Moments.of(B, sample_weight=v))
        found = found.eigenvalues_
        r_f, r_b = np.cov(X.T, fweights=w, ddof=0), np.cov(B.T, fweights=v, ddof=0)
        expected = np.linalg.eigvalsh(r_f - 1.5 * r_b)[::-1][:2]
        np.testing.assert_allclose(found, expected, rtol=1e-10)
