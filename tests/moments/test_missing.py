from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cpcapp import Moments, pairwise_moments
from cpcapp.moments.missing import nearest_positive_semidefinite
from cpcapp.moments.moments import NonFiniteError


def with_holes(rng, X, share):
    return np.where(rng.random(X.shape) < share, np.nan, X)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_pandas_agrees_where_no_repair_is_needed(rng, offset):
    X = with_holes(rng, rng.normal(size=(9000, 6)) @ rng.normal(size=(6, 6)) + offset, 0.2)
    found = pairwise_moments(X)
    frame = pd.DataFrame(X)
    known = frame.notna().to_numpy().astype(float)
    shared = known.T @ known
    expected = frame.cov() * (shared - 1) / shared  # pandas divides by n - 1
    np.testing.assert_allclose(found.covariance(), expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.mean, frame.mean(), rtol=1e-12)


def test_weights_are_copies(rng):
    X = with_holes(rng, rng.normal(size=(400, 4)), 0.1)
    weights = rng.integers(0, 4, 400)
    found = pairwise_moments(X, sample_weight=weights)
    copies = pairwise_moments(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(found.covariance(), copies.covariance(), atol=1e-12)
    np.testing.assert_allclose(found.mean, copies.mean, atol=1e-13)
    assert found.n_samples < copies.n_samples


def test_nothing_missing_is_plain_moments(rng):
    X = rng.normal(size=(5, 30))
    found = pairwise_moments(X)
    assert found.is_thin
    np.testing.assert_allclose(found.scatter(), Moments.of(X).scatter(), atol=1e-13)


def test_the_number_of_samples_is_that_of_the_mean_error(rng):
    X = rng.normal(size=(1000, 2))
    X[:600, 1] = np.nan
    # pairs share 1000, 400, 400 and 400 rows
    assert pairwise_moments(X).n_samples == round(4 / (1 / 1000 + 3 / 400))


@given(n=st.integers(4, 40), m=st.integers(2, 8), seed=st.integers(0, 200))
def test_the_repaired_covariance_has_no_negative_eigenvalue(n, m, seed):
    rng = np.random.default_rng(seed)
    X = with_holes(rng, rng.normal(size=(n, m)), 0.3)
    try:
        found = pairwise_moments(X)
    except ValueError as error:
        assert "fewer than 2 rows" in str(error) or "no value in any row" in str(error)
        return
    values = np.linalg.eigvalsh(found.covariance())
    assert values[0] >= -1e-12 * values[-1]


@given(m=st.integers(1, 9), seed=st.integers(0, 500))
def test_the_repair_is_the_nearest(m, seed):
    """By the conditions of optimality: what is added is positive semidefinite and orthogonal."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(m, m))
    matrix = (matrix + matrix.T) / 2
    matrix[np.diag_indices(m)] = 1.0
    scale = np.exp(rng.normal(size=m))
    found = nearest_positive_semidefinite(matrix * np.outer(scale, scale)) / np.outer(scale, scale)
    added = found - matrix
    assert np.linalg.eigvalsh(found)[0] > -1e-12
    assert np.linalg.eigvalsh(added)[0] > -1e-12
    assert abs(np.vdot(added, found)) < 1e-11


def test_bad_input(rng):
    X = rng.normal(size=(20, 3))
    X[0, 1] = np.inf
    with pytest.raises(NonFiniteError, match="column 1"):
        pairwise_moments(X)
    X[:, 1] = np.nan
    with pytest.raises(ValueError, match="feature 1 has no value in any row; drop it"):
        pairwise_moments(X)
    X[:10, 1] = 1.0
    X[:9, 2] = np.nan
    with pytest.raises(ValueError, match=r"features 1 and 2 have fewer than 2 rows .* drop one"):
        pairwise_moments(X)
    with pytest.raises(ValueError, match="need a dense array"):
        pairwise_moments(sp.csr_array(np.eye(3)))
