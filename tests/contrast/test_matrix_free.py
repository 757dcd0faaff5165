"""The matrix-free solver against the dense one, on sparse counts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp import Moments, solve_contrast
from cpcapp.contrast.solution import InsufficientRankError
from helpers import peak_bytes, subspace_angle


def counts(rng, n, n_features, *, signal=0.0, rate=0.3):
    """Return sparse counts with a programme that all have, and two more at the given strength."""
    programmes = np.random.default_rng(7).standard_normal((3, n_features))
    cells = rng.standard_normal((n, 3)) * [0.7, signal, signal]
    return sp.csr_array(rng.poisson(rate * np.exp(cells @ programmes)).astype(float))


def pair(rng, n_target=160, n_background=180, n_features=250, signal=0.7):
    """Fewer rows than features: moments of any number of features keep them."""
    target = counts(rng, n_target, n_features, signal=signal)
    return Moments.of(target), Moments.of(counts(rng, n_background, n_features))


@pytest.mark.parametrize("loading", ["auto", "oas", 0.1])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("scaling", ["background", "unit"])
def test_equals_dense(rng, loading, k, scaling):
    target, background = pair(rng)
    dense, free = (
        solve_contrast(target, background, k, loading=loading, solver=solver, scaling=scaling)
        for solver in ("dense", "matrix-free")
    )
    assert free.solver == "matrix-free"
    assert free.bound == dense.bound
    np.testing.assert_allclose(free.eigenvalues, dense.eigenvalues, rtol=1e-6)
    np.testing.assert_allclose(free.contrast, dense.contrast, rtol=1e-3)
    np.testing.assert_allclose(free.loading.diagonal, dense.loading.diagonal, rtol=1e-6)
    assert free.loading.weight == pytest.approx(dense.loading.weight, rel=1e-9)
    assert subspace_angle(free.filters, dense.filters) < 1e-3
    np.testing.assert_allclose(free.filters.T @ free.atoms, np.eye(k), atol=1e-8)


def test_in_noise_the_numbers_are_those_of_the_filters(rng):
    """Where eigenvalues hardly differ, other filters do as well; what is said of them is exact."""
    X, B = (sp.random_array((500, 600), density=0.03, format="csr", rng=rng) for _ in "fb")
    target, background = Moments.of(X), Moments.of(B)
    dense, free = (
        solve_contrast(target, background, 2, solver=solver) for solver in ("dense", "matrix-free")
    )
    assert free.bound == dense.bound
    np.testing.assert_allclose(free.eigenvalues, dense.eigenvalues, rtol=1e-3)
    f, b = (
        np.diag(free.filters.T @ moments.covariance() @ free.filters)
        for moments in (target, background)
    )
    np.testing.assert_allclose(free.contrast, f / b, rtol=1e-8)
    np.testing.assert_allclose(free.eigenvalues, f, rtol=1e-8)


@pytest.mark.parametrize("k", [1, 3])
def test_without_a_background_it_is_pca(rng, k):
    target, _ = pair(rng)
    found = solve_contrast(target, None, k, solver="matrix-free")
    values, vectors = np.linalg.eigh(target.covariance())
    np.testing.assert_allclose(found.eigenvalues, values[: -k - 1 : -1], rtol=1e-6)
    assert subspace_angle(found.filters, vectors[:, -k:]) < 1e-3


@pytest.mark.parametrize("loading", ["auto", "oas"])
def test_units_means_and_features_that_never_vary(rng, loading):
    X, B = (counts(rng, n, 250, signal=s).toarray() for n, s in ((160, 0.7), (180, 0.0)))
    X[:, 3] = B[:, 3] = 0.0
    X[:, 4] = B[:, 4] = 1e6
    expected = solve_contrast(Moments.of(X), Moments.of(B), 2, loading=loading, solver="dense")
    X[:, :5] += 1e7
    B[:, :5] += 1e7
    units = 10.0 ** rng.uniform(-3, 3, 250)
    sides = (Moments.of(sp.csr_array(rows * units)) for rows in (X, B))
    found = solve_contrast(*sides, 2, loading=loading, solver="matrix-free")
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-6)
    np.testing.assert_allclose(found.filters[[3, 4]], 0.0, atol=1e-12)


def test_weights(rng):
    X, B = (counts(rng, n, 250, signal=s) for n, s in ((160, 0.7), (180, 0.0)))
    weights = rng.random(160) + 0.5
    sides = Moments.of(X, sample_weight=weights), Moments.of(B)
    dense, free, dual = (
        solve_contrast(*sides, 2, solver=solver) for solver in ("dense", "matrix-free", "dual")
    )
    for found in (free, dual):
        assert found.bound == dense.bound
        np.testing.assert_allclose(found.eigenvalues, dense.eigenvalues, rtol=1e-6)


def test_more_components_than_the_target_has_are_an_error(rng):
    X = sp.lil_array((100, 130))
    X[:, 0], X[:, 1] = rng.poisson(1.0, size=(2, 100, 1))
    with pytest.raises(InsufficientRankError, match="k=3 must be at most 2"):
        solve_contrast(X.tocsr(), counts(rng, 100, 130), 3, solver="matrix-free")


def test_many_sparse_rows_are_solved_without_a_square_matrix(rng):
    X, B = (sp.random_array((6000, 5000), density=0.005, format="csr", rng=rng) for _ in "fb")
    loud = sp.csr_array(rng.poisson(0.3, size=(6000, 1)) @ np.ones((1, 20)))
    X = sp.csr_array(sp.hstack([X[:, :-20], X[:, -20:] + loud], format="csr"))
    found = []
    peak = peak_bytes(lambda: found.append(solve_contrast(X, B, 1)))
    assert found[0].solver == "matrix-free"
    assert peak < 8 * 5000**2 / 3
    assert set(np.argsort(-np.abs(found[0].filters[:, 0]))[:20]) == set(range(4980, 5000))
    assert found[0].transform(X).shape == (6000, 1)


def test_what_it_does_not_take(rng):
    target, background = pair(rng)
    for loading in ("none", 0.0):
        with pytest.raises(ValueError, match=r"needs sparse rows.*another loading"):
            solve_contrast(target, background, 1, loading=loading, solver="matrix-free")
    X = rng.standard_normal((20, 30))
    for data in (X, Moments.of(sp.csr_array(X), form="scatter")):
        with pytest.raises(ValueError, match="needs sparse rows on both sides"):
            solve_contrast(data, sp.csr_array(X), 1, solver="matrix-free")
