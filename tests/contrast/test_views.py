"""The loud and the rare view of one fit, and when they are said to disagree."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cross_decomposition import CCA

from cpcapp import CPCAPlusPlus, Moments, ViewsDisagreeWarning
from helpers import subspace_angle


def two_stories(rng, n=800, m=30):
    """Loud classes, and a far larger contrast along faint directions that know nothing of them."""
    basis = np.linalg.qr(rng.standard_normal((m, m))).Q
    deviation = np.geomspace(3.0, 0.03, m)
    X, B = rng.standard_normal((2, n, m)) * deviation
    X[:, 10:12] += 6.0 * rng.integers(0, 2, (n, 2))
    X[:, -3:] *= 8.0
    return X @ basis.T, B @ basis.T


class TestViews:
    def test_are_the_default_and_the_plain_ratio(self, rng):
        X, B = two_stories(rng)
        with pytest.warns(ViewsDisagreeWarning, match="show different things"):
            est = CPCAPlusPlus().fit(X, background=B)
        plain = CPCAPlusPlus(loading="likelihood").fit(X, background=B)
        views = est.views_
        assert views.n_loud == 2
        np.testing.assert_array_equal(views.loud.components, est.components_)
        np.testing.assert_array_equal(views.loud.transform(X), est.transform(X))
        np.testing.assert_allclose(views.rare.components, plain.components_, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(views.rare.eigenvalues, plain.eigenvalues_, rtol=1e-7)
        np.testing.assert_allclose(views.rare.atoms, plain.atoms_, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(
            views.rare.transform(sp.csr_array(X)), plain.transform(X), rtol=1e-6, atol=1e-8
        )

    @pytest.mark.parametrize("scaling", ["background", "unit"])
    @pytest.mark.parametrize("shape", [(800, 30), (60, 200)])
    @pytest.mark.filterwarnings("ignore::cpcapp.ViewsDisagreeWarning")
    def test_correlations_are_the_canonical_ones_of_the_outputs(self, rng, shape, scaling):
        X, B = two_stories(rng, *shape)
        views = CPCAPlusPlus(scaling=scaling).fit(X, background=B).views_
        outputs = [view.transform(X) for view in (views.loud, views.rare)]
        scores = CCA(2, tol=1e-12, max_iter=10_000).fit(*outputs).transform(*outputs)
        expected = [abs(np.corrcoef(scores[0][:, i], scores[1][:, i])[0, 1]) for i in range(2)]
        np.testing.assert_allclose(views.correlations, expected, atol=1e-4)

    def test_are_one_where_nothing_is_steered(self, rng):
        X, B = rng.normal(size=(300, 6)) * [2, 1, 1, 1, 1, 1], rng.normal(size=(300, 6))
        for est in (CPCAPlusPlus(), CPCAPlusPlus(loading=0.1)):
            views = est.fit(X, background=B).views_
            assert views.loud is views.rare
            np.testing.assert_array_equal(views.correlations, [1.0, 1.0])
            assert not views.disagree
        assert CPCAPlusPlus().fit(X).views_.n_loud == 0

    @pytest.mark.filterwarnings("ignore::cpcapp.ViewsDisagreeWarning")
    def test_come_from_moments_chunks_and_pickles_alike(self, rng):
        X, B = two_stories(rng)
        fitted = CPCAPlusPlus().fit(X, background=B)
        others = (
            CPCAPlusPlus().fit_moments(Moments.of(X), Moments.of(B)),
            CPCAPlusPlus().partial_fit(X[:500], background=B).partial_fit(X[500:]),
            pickle.loads(pickle.dumps(fitted)),
        )
        for other in others:
            for name in ("loud", "rare"):
                one, two = (getattr(est.views_, name).components.T for est in (fitted, other))
                assert subspace_angle(one, two) < 1e-6


class TestDisagreement:
    def test_is_silent_where_both_show_the_same(self, rng):
        X, B = rng.standard_normal((2, 500, 20))
        X[:, :2] += 6.0 * rng.integers(0, 2, (500, 2))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            est = CPCAPlusPlus().fit(X, background=B)
        assert est.views_.n_loud == 2
        assert est.views_.correlations[0] > 0.9

    def test_is_silent_where_the_user_chose(self, rng):
        X, B = two_stories(rng)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            CPCAPlusPlus(loading="likelihood").fit(X, background=B)

    def test_points_at_the_line_that_fits(self, rng):
        X, B = two_stories(rng)
        with pytest.warns(ViewsDisagreeWarning) as caught:
            CPCAPlusPlus().fit(X, background=B)
        assert caught[0].filename == __file__
