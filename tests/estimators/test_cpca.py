from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from cpcapp import CPCA, Moments
from cpcapp.datasets import synthetic
from cpcapp.estimators.cpca import subspace_affinity
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


class TestSweep:
    def test_all_subspaces_are_kept(self, data):
        est = CPCA(alpha="clustering").fit(data.target, background=data.background)
        assert est.alphas_.shape == (41,)
        assert est.alphas_[[0, 1, -1]] == pytest.approx([0.0, 0.1, 1000.0])
        for i in (0, 7, 40):
            single = CPCA(alpha=est.alphas_[i]).fit(data.target, background=data.background)
            np.testing.assert_allclose(est.subspaces_[i], single.components_, atol=1e-8)
            np.testing.assert_allclose(est.subspace_eigenvalues_[i], single.eigenvalues_)
            np.testing.assert_allclose(
                est.transform_at(data.target, est.alphas_[i]),
                single.transform(data.target),
                atol=1e-8,
            )

    def test_offers_views_of_which_one_shows_the_classes(self, data):
        est = CPCA(alpha="clustering").fit(data.target, background=data.background)
        assert len(est.selected_alphas_) == 4
        assert set(est.selected_alphas_) <= set(est.alphas_)
        assert est.alpha_ in est.selected_alphas_
        ideal = np.kron(np.eye(3)[:, :2], np.ones((10, 1)))
        angles = [
            subspace_angle(est.subspaces_[list(est.alphas_).index(a)].T, ideal)
            for a in est.selected_alphas_
        ]
        assert min(angles) < 0.2

    def test_alpha_is_not_that_of_plain_pca(self, data):
        est = CPCA(alpha="clustering").fit(data.target, background=data.background)
        chosen = np.flatnonzero(est.alphas_ == est.alpha_)[0]
        assert est.labels_[chosen] != est.labels_[0]
        np.testing.assert_array_equal(est.components_, est.subspaces_[chosen])

    def test_own_alphas(self, data):
        est = CPCA(alpha="clustering", alphas=[3, 1, 2], n_clusters=3).fit(
            data.target, background=data.background
        )
        assert est.alphas_.tolist() == [1.0, 2.0, 3.0]
        assert est.selected_alphas_.tolist() == [1.0, 2.0, 3.0]

    def test_is_repeatable(self, data):
        a, b = (
            CPCA(alpha="clustering").fit(data.target, background=data.background) for _ in range(2)
        )
        assert a.selected_alphas_.tolist() == b.selected_alphas_.tolist()

    def test_moments_few_samples_and_masks(self, rng):
        X, B = rng.normal(size=(20, 90)), rng.normal(size=(30, 90))
        a = CPCA(alpha=1.0).fit(X, background=B)
        b = CPCA(alpha=1.0).fit(X, background=Moments.of(B))
        c = CPCA(alpha=1.0).fit(np.vstack([X, B]), is_background=np.arange(50) >= 20)
        np.testing.assert_allclose(a.components_, b.components_, atol=1e-10)
        np.testing.assert_allclose(a.components_, c.components_, atol=1e-8)


class TestChosenAlpha:
    def test_auto_is_the_bound_of_the_contrast(self, data):
        est = CPCA().fit(data.target, background=data.background)
        assert est.alpha_ == 6.0
        single = CPCA(alpha=6.0).fit(data.target, background=data.background)
        np.testing.assert_allclose(est.components_, single.components_, atol=1e-10)
        # The sweep is there as well, for other views.
        assert est.alphas_.shape == (42,)
        assert (np.diff(est.alphas_) > 0.0).all()
        np.testing.assert_array_equal(est.components_, est.subspaces_[list(est.alphas_).index(6.0)])

    def test_auto_is_above_noise(self, rng):
        X, B = rng.normal(size=(40, 90)), rng.normal(size=(60, 90))
        assert CPCA().fit(X, background=B).alpha_ == pytest.approx((1.0 + 1.5) ** 2)

    def test_own_alphas_stay(self, data):
        est = CPCA(alphas=[3, 6, 2]).fit(data.target, background=data.background)
        assert est.alphas_.tolist() == [2.0, 3.0, 6.0]

    def test_uca_minimises_its_dual(self, rng):
        X = rng.normal(size=(300, 12)) * np.linspace(1.0, 4.0, 12)
        B = rng.normal(size=(300, 12)) * np.linspace(0.5, 5.0, 12)
        alpha = CPCA(alpha="uca").fit(X, background=B).alpha_
        r_f, r_b = np.cov(X.T, ddof=0), np.cov(B.T, ddof=0)
        limit = np.median(np.linalg.eigvalsh(r_b))

        def dual(a):
            return np.linalg.eigvalsh(r_f - a * r_b)[-1] + a * limit

        grid = alpha * np.geomspace(0.2, 5.0, 401)
        assert alpha > 0.0
        assert dual(alpha) <= min(map(dual, grid)) * (1.0 + 1e-4)

    def test_uca_is_pca_where_the_background_is_no_limit(self, rng):
        X = rng.normal(size=(300, 5)) * [5, 1, 1, 1, 1]
        B = rng.normal(size=(300, 5)) * [0.1, 1, 1, 1, 1]
        assert CPCA(alpha="uca").fit(X, background=B).alpha_ == 0.0

    def test_uca_of_few_samples(self, rng):
        X, B = rng.normal(size=(20, 90)), rng.normal(size=(30, 90))
        thin = CPCA(alpha="uca").fit(X, background=B).alpha_
        full = CPCA(alpha="uca").fit_moments(
            *(Moments(form="scatter").update(rows) for rows in (X, B))
        )
        assert full.alpha_ == pytest.approx(thin, rel=1e-6)


def test_affinity_is_the_product_of_cosines(rng):
    from scipy.linalg import subspace_angles

    subspaces = np.linalg.qr(rng.normal(size=(5, 8, 3))).Q.transpose(0, 2, 1)
    affinity = subspace_affinity(subspaces)
    for i in range(5):
        for j in range(5):
            angles = subspace_angles(subspaces[i].T, subspaces[j].T)
            assert affinity[i, j] == pytest.approx(np.cos(angles).prod(), abs=1e-10)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alpha": -1.0}, ValueError, "at least 0"),
        ({"alpha": np.inf}, ValueError, "finite"),
        (
            {"alpha": "best"},
            ValueError,
            "alpha='best' must be one of 'auto', 'uca'",
        ),
        ({"alpha": None}, TypeError, "alpha=None must be one of 'auto', 'uca'"),
        ({"alphas": []}, ValueError, "finite numbers"),
        ({"n_clusters": 0}, ValueError, "n_clusters=0 must be at least 1"),
        ({"n_components": 99}, ValueError, "n_components=99 must be between 1 and 30"),
    ],
)
def test_bad_options(data, options, error, message):
    with pytest.raises(error, match=message):
        CPCA(**options).fit(data.target, background=data.background)


@pytest.mark.parametrize("alpha", ["auto", "uca", "clustering", 2.5])
def test_moments_give_what_the_data_give(rng, alpha):
    X, B = rng.normal(size=(80, 6)) * [3, 1, 1, 1, 1, 1], rng.normal(size=(50, 6))
    whole = CPCA(alpha=alpha).fit(X, background=B)
    target = Moments().update(X[:30]).update(X[30:])
    found = CPCA(alpha=alpha).fit_moments(target, Moments.of(B))
    assert found.alpha_ == whole.alpha_
    np.testing.assert_allclose(found.transform(X), whole.transform(X), atol=1e-10)
    assert target.n_samples == 80
    alone = CPCA(alpha=alpha).fit_moments(target)
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
