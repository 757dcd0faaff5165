"""The paper's closed forms and the equivalences that the documentation states."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as sl

from cpcapp import CPCA, CPCAPlusPlus, Moments, solve_contrast
from cpcapp.contrast.difference import solve_difference
from cpcapp.datasets import needle, synthetic
from helpers import random_covariance, subspace_angle


def appendix_a():
    """Population covariances of the synthetic example."""
    ones, eye = np.ones((10, 10)), np.eye(10)
    r_b = np.kron(np.diag([3.0, 1.0, 10.0]), eye)
    r_f = np.kron(np.diag([9.0, 2.25, 0.0]), ones) + np.kron(np.diag([1.0, 1.0, 10.0]), eye)
    return Moments.from_covariance(r_f, 400), Moments.from_covariance(r_b, 400)


class TestAppendixA:
    @pytest.mark.parametrize("solver", ["dense", "iterative"])
    def test_filters_and_eigenvalues(self, solver):
        found = solve_contrast(*appendix_a(), 2, loading="none", scaling="unit", solver=solver)
        np.testing.assert_allclose(found.eigenvalues, [30 + 1 / 3, 23.5], rtol=1e-12)
        expected = np.kron(np.eye(3)[:, :2], np.ones((10, 1)) / np.sqrt(10))
        np.testing.assert_allclose(found.filters, expected, atol=1e-10)

    def test_the_whole_spectrum(self):
        found = solve_contrast(*appendix_a(), 30, loading="none")
        expected = np.r_[30 + 1 / 3, 23.5, np.ones(19), np.full(9, 1 / 3)]
        np.testing.assert_allclose(found.eigenvalues, expected, rtol=1e-10)

    def test_samples_come_close(self):
        data = synthetic(40_000, 40_000, random_state=0)
        est = CPCAPlusPlus().fit(data.target, background=data.background)
        np.testing.assert_allclose(est.eigenvalues_, [30.33, 23.5], rtol=0.03)

    def test_pca_finds_the_classes_at_variance_10_but_not_at_100(self):
        ideal = np.kron(np.eye(3)[:, :2], np.ones((10, 1)))
        for variance, finds in ((10.0, True), (100.0, False)):
            data = synthetic(4000, 10, noise_variance=variance, random_state=0)
            pca = CPCAPlusPlus().fit(data.target)
            assert (subspace_angle(pca.components_.T, ideal) < 0.3) == finds


class TestNeedle:
    """Example 1: the target has c, which both have not, under a, which both have."""

    def test_pca_picks_a(self):
        target, _, a, _ = needle()
        assert abs(solve_contrast(target, None, 1).filters[:, 0] @ a) == pytest.approx(1.0)

    def test_cpca_plus_plus_picks_c(self):
        target, background, a, c = needle()
        found = solve_contrast(target, background, 1, loading="none", scaling="unit")
        assert abs(found.filters[:, 0] @ c) == pytest.approx(1.0)
        assert abs(found.filters[:, 0] @ a) < 1e-8
        assert found.eigenvalues[0] == pytest.approx(1.0 / 1e-3)  # ε/ρ

    def test_cpca_needs_the_right_alpha(self):
        target, background, a, c = needle(beta=50.0)
        _, filters = solve_difference(target, background, 1, [0.0, 0.5, 0.4])
        overlap_a, overlap_c = np.abs(filters[:, :, 0] @ a), np.abs(filters[:, :, 0] @ c)
        np.testing.assert_allclose(overlap_a[[0, 2]], 1.0)
        assert overlap_c[1] == pytest.approx(1.0)  # α = β/γ


@pytest.fixture
def covariances(rng):
    return random_covariance(rng, 12), random_covariance(rng, 12)


@pytest.fixture
def moments(covariances):
    return tuple(Moments.from_covariance(c, 1000) for c in covariances)


class TestEquivalences:
    def test_alpha_zero_is_pca(self, moments):
        _, filters = solve_difference(*moments, 3, [0.0])
        pca = solve_contrast(moments[0], None, 3)
        np.testing.assert_allclose(filters[0], pca.filters, atol=1e-10)

    def test_cpca_without_background_is_pca(self, rng):
        X = rng.normal(size=(100, 5)) * [1, 2, 3, 4, 5]
        a, b = CPCA(2, alpha=3.0).fit(X), CPCAPlusPlus(2).fit(X)
        np.testing.assert_allclose(a.components_, b.components_, atol=1e-10)

    def test_q_is_the_papers(self, covariances, moments):
        """The right eigenvectors of Q = R_b⁻¹R_f, found the naive way."""
        r_f, r_b = covariances
        values, vectors = np.linalg.eig(np.linalg.solve(r_b, r_f))
        order = np.argsort(-values.real)[:3]
        found = solve_contrast(*moments, 3, loading="none", scaling="unit")
        np.testing.assert_allclose(found.eigenvalues, values[order].real, rtol=1e-9)
        overlap = np.abs(np.sum(found.filters * vectors[:, order].real, axis=0))
        np.testing.assert_allclose(overlap, 1.0, rtol=1e-9)

    def test_atoms_are_eigenvectors_of_the_transposed_quotient(self, covariances, moments):
        r_f, r_b = covariances
        found = solve_contrast(*moments, 3, loading="none")
        image = r_f @ np.linalg.solve(r_b, found.atoms)
        np.testing.assert_allclose(image, found.atoms * found.eigenvalues, atol=1e-9)

    @pytest.mark.parametrize("scaling", ["background", "unit"])
    def test_filters_follow_from_atoms(self, covariances, moments, scaling):
        """Equation F(W): F = R_b⁻¹W (WᵀR_b⁻¹W)⁻¹."""
        _, r_b = covariances
        found = solve_contrast(*moments, 3, loading="none", scaling=scaling)
        W = found.atoms
        solved = np.linalg.solve(r_b, W)
        np.testing.assert_allclose(found.filters, solved @ np.linalg.inv(W.T @ solved), atol=1e-10)
        np.testing.assert_allclose(found.filters.T @ W, np.eye(3), atol=1e-10)

    @pytest.mark.parametrize(
        ("numerator", "denominator"),
        [
            (lambda f, b: f, lambda f, b: b),  # gcPCA v2, and dPCA
            (lambda f, b: f - b, lambda f, b: b),  # gcPCA v3
            (lambda f, b: f - b, lambda f, b: f + b),  # gcPCA v4
        ],
    )
    def test_gcpca_and_dpca_share_the_directions(
        self, covariances, moments, numerator, denominator
    ):
        _, vectors = sl.eigh(numerator(*covariances), denominator(*covariances))
        other = vectors[:, ::-1][:, :3]
        found = solve_contrast(*moments, 3, loading="none", scaling="unit")
        overlap = np.abs(np.sum(found.filters * other / np.linalg.norm(other, axis=0), axis=0))
        np.testing.assert_allclose(overlap, 1.0, rtol=1e-9)

    def test_background_outputs_are_white(self, covariances, moments):
        _, r_b = covariances
        F = solve_contrast(*moments, 4, loading="none").filters
        np.testing.assert_allclose(F.T @ r_b @ F, np.eye(4), atol=1e-10)


def test_denoising_keeps_the_pattern_and_drops_the_rest(rng):
    """Appendix B on a case with a known clean signal."""
    n, m = 2000, 40
    loud = rng.normal(size=(3, m)) * 5
    pattern = rng.normal(size=(1, m))
    strength = rng.normal(size=(n, 1)) * 2
    clean = strength * pattern
    X = clean + rng.normal(size=(n, 3)) @ loud + rng.normal(size=(n, m)) * 0.3
    B = rng.normal(size=(n, 3)) @ loud + rng.normal(size=(n, m)) * 0.3
    errors = {
        "none": np.mean((X - clean) ** 2),
        "pca": np.mean((CPCAPlusPlus(1).fit(X).denoise(X) - clean) ** 2),
        "cpca++": np.mean((CPCAPlusPlus(1).fit(X, background=B).denoise(X) - clean) ** 2),
    }
    assert errors["cpca++"] < 0.02 * min(errors["pca"], errors["none"])
