from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression

from cpcapp import Moments, partial_out
from cpcapp.moments.covariates import CovariateCoder, regress_out


def residuals(X, Z, weights=None):
    # In units of 1: scikit-learn drops a covariate that is a million times smaller than another.
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    fitted = LinearRegression().fit(Z, X, sample_weight=weights)
    return X - fitted.predict(Z)


@given(
    n=st.integers(12, 200),
    m=st.integers(1, 30),
    q=st.integers(1, 4),
    weighted=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_equals_the_residuals_of_least_squares(n, m, q, weighted, seed):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, q)) * np.exp(3 * rng.normal(size=q)) + 5.0
    X = rng.normal(size=(n, m)) + Z @ rng.normal(size=(q, m)) + 3.0
    weights = rng.uniform(0.1, 2, n) if weighted else None
    both = Moments.of(np.hstack([X, Z]), sample_weight=weights)
    found = partial_out(both, np.arange(m, m + q))
    expected = Moments.of(residuals(X, Z, weights), sample_weight=weights)
    assert found.is_thin == both.is_thin
    # A Schur complement is exact to the rounding of what it is taken from.
    tolerance = 1e-13 * both.variance()[:m].max() + 1e-12
    # Kish's number of rows, less a degree of freedom for each covariate.
    effective = n if weights is None else weights.sum() ** 2 / (weights @ weights)
    left = 1.0 - q / effective
    np.testing.assert_allclose(found.covariance() * left, expected.covariance(), atol=tolerance)
    np.testing.assert_allclose(found.mean, np.average(X, axis=0, weights=weights), rtol=1e-10)
    assert found.n_samples == expected.n_samples


@pytest.mark.parametrize("m", [4, 400])
def test_batches_are_means_of_batches(rng, m):
    batch = rng.integers(0, 5, 200)
    X = rng.normal(size=(200, m)) + 10.0 * rng.normal(size=(5, m))[batch]
    code = np.eye(5)[batch]  # collinear with the intercept
    found = partial_out(Moments.of(np.hstack([code, X])), np.arange(5))
    centred = X - np.array([X[batch == b].mean(axis=0) for b in range(5)])[batch]
    expected = centred.T @ centred / (200 - 4)  # four columns, and the mean as ever
    np.testing.assert_allclose(found.covariance(), expected, atol=1e-9)


def test_coefficients_are_those_of_least_squares(rng):
    Z = rng.normal(size=(90, 2)) * [1.0, 1e4]
    X = rng.normal(size=(90, 3)) + Z @ rng.normal(size=(2, 3))
    _, effect = regress_out(Moments.of(np.hstack([X, Z])), [3, 4])
    np.testing.assert_allclose(effect.coef, LinearRegression().fit(Z, X).coef_.T, rtol=1e-9)
    np.testing.assert_allclose(X - X.mean(0) - effect.predict(Z), residuals(X, Z), atol=1e-10)


def test_a_feature_that_covariates_explain_is_constant(rng):
    Z = rng.normal(size=(90, 2))
    both = np.hstack([rng.normal(size=(90, 2)), Z @ [[3.0], [-1.0]], Z])
    found = partial_out(Moments.of(both), [3, 4])
    assert found.constant_features().tolist() == [False, False, True]


@pytest.mark.parametrize("value", [1.0, 0.1, 1 / 3, 1e9])
def test_a_constant_covariate_changes_nothing(rng, value):
    X = rng.normal(size=(300, 3))  # 300 times .1 has a variance that is rounding
    found = partial_out(Moments.of(np.column_stack([X, np.full(300, value)])), [3])
    np.testing.assert_allclose(found.scatter(), Moments.of(X).scatter(), rtol=1e-12)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([7], "must be between 0 and 3"),
        ([], "must be indices"),
        (np.zeros(0, dtype=int), "marks 0 of 4"),
        ([0, 1, 2, 3], "marks 4 of 4 columns"),
        ([0.5], "must be indices of columns, or a mask"),
        (np.ones(3, dtype=bool), r"a mask must be \(4,\)"),
    ],
)
def test_bad_columns(columns, message):
    with pytest.raises(ValueError, match=message):
        partial_out(Moments.of(np.eye(9, 4)), columns)


def test_the_variance_of_residuals_is_unbiased(rng):
    """40 covariates of noise on 100 rows, and 12 batches: whatever is taken out, variance 1."""
    for code in (rng.normal(size=(100, 40)), np.eye(12)[rng.integers(0, 12, 100)]):
        X = rng.normal(size=(100, 3000))
        found = partial_out(Moments.of(np.hstack([X, code])), np.arange(3000, 3000 + code.shape[1]))
        assert found.variance().mean() == pytest.approx(0.99, abs=0.01)  # ddof=0 for the mean


def test_too_few_rows_for_the_covariates(rng):
    both = rng.normal(size=(6, 8))
    for n_given in (5, 7):  # more than there can be of use: as many as were given
        with pytest.raises(ValueError, match=f"6 samples are too few for {n_given} columns of"):
            partial_out(Moments.of(both), np.arange(n_given))


def test_only_moments_with_samples():
    with pytest.raises(ValueError, match="must be Moments with samples"):
        partial_out(Moments(), [0])


class TestCoder:
    def test_a_data_frame_of_numbers_text_and_categories(self):
        table = pd.DataFrame(
            {"age": [30, 40, 50], "site": ["x", "y", "x"], "lane": pd.Categorical([2, 1, 2])}
        )
        coder = CovariateCoder.learn(table)
        expected = [[30, 1, 0, 0, 1], [40, 0, 1, 1, 0], [50, 1, 0, 0, 1]]
        np.testing.assert_array_equal(coder.encode(table), expected)

    def test_categories_of_both_sides_are_known(self):
        coder = CovariateCoder.learn(["a", "b"], None, ["c", "a"])
        assert coder.encode(["c", "b"]).tolist() == [[0, 0, 1], [0, 1, 0]]

    def test_a_pandas_series_of_categories(self):
        coder = CovariateCoder.learn(pd.Series([1, 2, 1], dtype="category"))
        assert coder.encode(pd.Series([2, 1], dtype="category")).tolist() == [[0, 1], [1, 0]]

    @pytest.mark.parametrize(
        "kind", [np.array, lambda v: np.array(v, object), pd.Series, lambda v: np.array(v, "S")]
    )
    def test_text_of_digits_is_labels_in_whatever_it_comes(self, kind):
        labels = kind(["1", "10", "2"])
        assert CovariateCoder.learn(labels).encode(labels).tolist() == np.eye(3).tolist()

    def test_bad_input(self):
        with pytest.raises(ValueError, match="column 0 of the covariates is text or categories in"):
            CovariateCoder.learn(["a", "b"], [1.0, 2.0])
        coder = CovariateCoder.learn(["a", "b"])
        with pytest.raises(ValueError, match="has 'z' in column 0, which was not there in fit"):
            coder.encode(["z"])
        with pytest.raises(ValueError, match="has 2 columns, not 1"):
            coder.encode([["a", "b"]])
        with pytest.raises(ValueError, match="has 2 rows, but there are 3 samples"):
            coder.encode(["a", "b"], 3)
        with pytest.raises(ValueError, match="have 1 and 2 columns"):
            CovariateCoder.learn([1.0], [[1.0, 2.0]])
        with pytest.raises(ValueError, match="covariates has shape"):
            CovariateCoder.learn(np.ones((2, 2, 2)))
        with pytest.raises(ValueError, match="infinite"):
            CovariateCoder.learn([1.0]).encode([np.inf])
