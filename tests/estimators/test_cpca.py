from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from scipy.stats import kurtosis
from sklearn.decomposition import PCA

from cpcapp import CPCA, Moments
from cpcapp.datasets import synthetic
from helpers import subspace_angle


@pytest.fixture
def data():
    return synthetic(noise_variance=100.0, random_state=0)


class TestOneAlpha:
    @pytest.mark.parametrize("alpha", [0, 0.5, 2.7])
    def test_against_numpy(self, data, alpha):
        est = CPCA(alpha=alpha).fit(data.target, background=data.background)
        difference = np.cov(data.target.T, ddof=0) - alpha * np.cov(data.background.T, ddof=0)
        values, vectors = np.linalg.eigh(difference)
        np.testing.assert_allclose(est.eigenvalues_, values[:-3:-1], rtol=1e-10)
        assert subspace_angle(est.components_.T, vectors[:, -2:]) < 1e-7
        assert est.alpha_ == alpha

    def test_in_units_of_the_features_variance(self, data):
        est = CPCA(alpha=2.0, standardize=True).fit(data.target, background=data.background)
        r_f, r_b = np.cov(data.target.T, ddof=0), np.cov(data.background.T, ddof=0)
        units = np.diag((r_f.diagonal() + r_b.diagonal()) / 2.0)
        values, vectors = scipy.linalg.eigh(r_f - 2.0 * r_b, units)
        np.testing.assert_allclose(est.eigenvalues_, values[:-3:-1], rtol=1e-9)
        assert subspace_angle(est.components_.T, vectors[:, -2:]) < 1e-7
        np.testing.assert_allclose(est.components_ @ est.atoms_.T, np.eye(2), atol=1e-10)

    def test_zero_is_pca(self, data):
        est, pca = CPCA(alpha=0.0).fit(data.target, background=data.background), PCA(2)
        pca.fit(data.target)
        np.testing.assert_allclose(
            np.abs(est.components_ @ pca.components_.T), np.eye(2), atol=1e-7
        )

    def test_orthonormal_there_and_back(self, data):
        est = CPCA(alpha=1.0).fit(data.target, background=data.background)
        np.testing.assert_allclose(est.components_ @ est.components_.T, np.eye(2), atol=1e-10)
        Y = est.transform(data.target)
        np.testing.assert_allclose(est.transform(est.inverse_transform(Y)), Y, atol=1e-9)

    def test_few_samples_and_masks(self, rng):
        X, B = rng.normal(size=(20, 90)), rng.normal(size=(30, 90))
        a = CPCA(alpha=1.0).fit(X, background=B)
        b = CPCA(alpha=1.0).fit(X, background=Moments.of(B))
        c = CPCA(alpha=1.0).fit(np.vstack([X, B]), is_background=np.arange(50) >= 20)
        np.testing.assert_allclose(a.components_, b.components_, atol=1e-10)
        np.testing.assert_allclose(a.components_, c.components_, atol=1e-8)


class TestChosenAlpha:
    def test_the_one_whose_outputs_show_classes_best(self, data):
        est = CPCA().fit(data.target, background=data.background)
        least = {}
        for alpha in (3.0, 12.0, 48.0):
            one = CPCA(alpha=alpha, standardize=True).fit(data.target, background=data.background)
            least[alpha] = kurtosis(one.transform(data.target)).min()
        assert est.alpha_ == min(least, key=least.get)
        assert least[est.alpha_] < -2.0 * np.sqrt(24 / 400)

    def test_gaussian_outputs_leave_the_middle_one(self, rng):
        X, B = rng.normal(size=(400, 10)) * np.r_[9.0, np.ones(9)], rng.normal(size=(400, 10))
        assert CPCA().fit(X, background=B).alpha_ == 12.0

    def test_units_of_features_do_not_matter(self, data):
        units = np.geomspace(1e-6, 1e6, 30)
        plain = CPCA().fit(data.target, background=data.background)
        other = CPCA().fit(data.target * units, background=data.background * units)
        assert other.alpha_ == plain.alpha_
        np.testing.assert_allclose(other.eigenvalues_, plain.eigenvalues_, rtol=1e-6)
        np.testing.assert_allclose(
            np.abs(other.transform(data.target * units)),
            np.abs(plain.transform(data.target)),
            atol=1e-6,
        )

    def test_contrast_is_the_ratio_of_variances(self, data):
        est = CPCA().fit(data.target, background=data.background)
        ratio = est.transform(data.target).var(axis=0) / est.transform(data.background).var(axis=0)
        np.testing.assert_allclose(est.contrast_, ratio, rtol=1e-8)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alpha": -1.0}, ValueError, "at least 0"),
        ({"alpha": np.inf}, ValueError, "at least 0"),
        ({"alpha": "clustering"}, TypeError, "alpha='clustering' must be 'auto' or a number"),
        ({"alpha": None}, TypeError, "alpha=None must be 'auto' or a number"),
        ({"standardize": "yes"}, ValueError, "standardize='yes' must be True, False or None"),
        ({"n_components": 99}, ValueError, "n_components=99 must be between 1 and 30"),
    ],
)
def test_bad_options(data, options, error, message):
    with pytest.raises(error, match=message):
        CPCA(**options).fit(data.target, background=data.background)


def test_moments_give_what_the_data_give(rng):
    X, B = rng.normal(size=(80, 6)) * [3, 1, 1, 1, 1, 1], rng.normal(size=(50, 6))
    whole = CPCA(alpha=2.5).fit(X, background=B)
    target = Moments().update(X[:30]).update(X[30:])
    found = CPCA(alpha=2.5).fit_moments(target, Moments.of(B))
    np.testing.assert_allclose(found.transform(X), whole.transform(X), atol=1e-10)
    assert target.n_samples == 80
    alone = CPCA(alpha=2.5).fit_moments(target)
    np.testing.assert_allclose(alone.components_, CPCA().fit(X).components_, atol=1e-10)


def test_fit_moments_refuses_what_are_none(rng):
    good = Moments.of(rng.normal(size=(9, 3)))
    for given, message in (
        ((np.eye(3),), "target must be Moments, not ndarray"),
        ((good, np.eye(3)), "background must be Moments"),
        ((Moments(),), "target holds no samples"),
        ((good, Moments.of(np.eye(4))), "background has 4 features, but X has 3"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            CPCA().fit_moments(*given)
