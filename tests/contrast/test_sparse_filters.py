from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import eigh
from sklearn.decomposition import PCA

from cpcapp import Moments, find_sparse_filters, solve_contrast
from helpers import peak_bytes


@pytest.fixture
def problem(rng):
    """A shared signal in features 2, 5 and 7, beside correlated noise of both sets."""
    mixing = rng.normal(size=(10, 10))
    X, B = rng.normal(size=(3000, 10)) @ mixing, rng.normal(size=(3000, 10)) @ mixing
    X[:, [2, 5, 7]] += 6.0 * rng.normal(size=(3000, 1))
    return X, B


def ratio(f, X, B):
    return f @ np.cov(X.T, ddof=0) @ f / (f @ np.cov(B.T, ddof=0) @ f)


def test_all_features_give_the_full_filters(problem):
    X, B = problem
    found = find_sparse_filters(X, B, 10, k=3, loading="none")
    full = solve_contrast(X, B, 3, loading="none")
    np.testing.assert_allclose(found.filters, full.filters, atol=1e-8)
    np.testing.assert_allclose(found.eigenvalues, full.eigenvalues, rtol=1e-10)
    np.testing.assert_allclose(found.kept, 1.0, rtol=1e-10)


@pytest.mark.parametrize("n_nonzero", [3, 4, 6])
def test_few_features_and_the_contrast_that_is_said(problem, n_nonzero):
    X, B = problem
    found = find_sparse_filters(Moments.of(X), Moments.of(B), n_nonzero, k=2, loading="none")
    full = solve_contrast(X, B, 2, loading="none").eigenvalues
    for j in range(2):
        f = found.filters[:, j]
        assert (f != 0).sum() == n_nonzero == len(found.support(j))
        assert found.eigenvalues[j] == pytest.approx(ratio(f, X, B), rel=1e-9)
    np.testing.assert_allclose(found.kept, found.eigenvalues / full, rtol=1e-12)
    assert found.kept[0] <= 1 + 1e-12
    # outputs have variance 1 and are uncorrelated in the background
    inner = found.filters.T @ np.cov(B.T, ddof=0) @ found.filters
    np.testing.assert_allclose(inner, np.eye(2), atol=1e-9)


def test_within_the_chosen_features_nothing_is_better(problem):
    X, B = problem
    found = find_sparse_filters(X, B, 3, k=1, loading="none")
    chosen = np.sort(found.support(0))
    square = np.ix_(chosen, chosen)
    r_f, r_b = np.cov(X.T, ddof=0), np.cov(B.T, ddof=0)
    best = eigh(r_f[square], r_b[square], eigvals_only=True)[-1]
    assert found.eigenvalues[0] == pytest.approx(best, rel=1e-10)


def test_it_is_close_to_the_best_of_all_choices(rng):
    """Where features are not correlated by noise the choice is the best there is."""
    X, B = rng.normal(size=(2, 4000, 9))
    X[:, [1, 4, 6]] += 2.0 * rng.normal(size=(4000, 1))
    r_f, r_b = np.cov(X.T, ddof=0), np.cov(B.T, ddof=0)
    best = max(
        eigh(r_f[np.ix_(c, c)], r_b[np.ix_(c, c)], eigvals_only=True)[-1]
        for c in combinations(range(9), 3)
    )
    found = find_sparse_filters(X, B, 3, k=1, loading="none")
    assert sorted(found.support(0).tolist()) == [1, 4, 6]
    assert found.eigenvalues[0] == pytest.approx(best, rel=1e-10)


def test_without_a_background_these_are_sparse_principal_components(rng):
    X = rng.normal(size=(500, 8)) * np.r_[5, 4, np.ones(6)]
    found = find_sparse_filters(X, None, 8, k=2)
    pca = PCA(2).fit(X)
    np.testing.assert_allclose(np.abs(found.filters.T), np.abs(pca.components_), atol=1e-8)
    found = find_sparse_filters(X, None, 2, k=2)
    assert found.support(0).tolist()[0] == 0
    assert found.kept[0] > 0.99


def test_loading_is_part_of_the_contrast(problem):
    X, B = problem
    full = solve_contrast(X, B, 2, loading="oas")
    found = find_sparse_filters(X, B, 10, k=2, loading="oas")
    np.testing.assert_allclose(found.eigenvalues, full.eigenvalues, rtol=1e-9)


def test_bad_input(problem):
    X, B = problem
    with pytest.raises(ValueError, match=r"n_nonzero=1 must be between 2 \(components\) and 10"):
        find_sparse_filters(X, B, 1)
    with pytest.raises(ValueError, match="n_nonzero=11"):
        find_sparse_filters(X, B, 11)
    with pytest.raises(TypeError, match=r"n_nonzero=2\.5 must be a whole number"):
        find_sparse_filters(X, B, 2.5)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_many_features_never_become_a_square_matrix(rng, make):
    X, B = (rng.normal(size=(60, 5000)) * (rng.random((60, 5000)) < 0.05) for _ in "fb")
    X[:, [3, 900]] += 5.0 * rng.normal(size=(60, 1))
    found = []
    peak = peak_bytes(
        lambda: found.append(find_sparse_filters(make(X), make(B), 4, k=2, loading=0.1))
    )
    assert {3, 900} <= set(found[0].support(0).tolist())
    assert peak < 8 * 5000**2 / 8
