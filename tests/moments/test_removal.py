"""Moving windows and forgetting: as if only what counts had ever been added."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cpcapp import Moments


def assert_equal(found, expected, tolerance=1e-9):
    scale = np.sqrt(np.maximum(expected.variance(), 1e-300))
    off = (found.covariance() - expected.covariance()) / np.outer(scale, scale)
    assert np.abs(off).max() < tolerance
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-10)
    assert found.n_samples == expected.n_samples
    assert found.total_weight == pytest.approx(expected.total_weight, rel=1e-12)


@given(
    m=st.integers(1, 40),
    sizes=st.lists(st.integers(1, 30), min_size=3, max_size=12),
    length=st.integers(1, 4),
    offset=st.sampled_from([0.0, 50.0, 1e6]),
    kind=st.sampled_from(["plain", "weighted", "sparse"]),
    seed=st.integers(0, 1000),
)
def test_a_moving_window_is_a_fresh_fit(m, sizes, length, offset, kind, seed):
    rng = np.random.default_rng(seed)
    chunks = [rng.normal(loc=offset, size=(size + 2, m)) for size in sizes]
    if kind == "sparse":
        chunks = [sp.csr_array(chunk * (rng.random(chunk.shape) < 0.6)) for chunk in chunks]
        chunks = [chunk for chunk in chunks if min(Moments.of(chunk).variance()) > 0]
    weights = [
        rng.uniform(0.5, 2.0, chunk.shape[0]) if kind == "weighted" else None for chunk in chunks
    ]
    window = Moments()
    for i, chunk in enumerate(chunks):
        window.update(chunk, weights[i])
        if i >= length:
            window.remove(chunks[i - length], weights[i - length])
        fresh = Moments()
        for j in range(max(0, i - length + 1), i + 1):
            fresh.update(chunks[j], weights[j])
        assert_equal(window, fresh)


def test_chunks_may_be_removed_in_other_pieces_than_they_came(rng):
    X = rng.normal(size=(400, 5))
    moments = Moments.of(X)
    for start in range(0, 300, 30):
        moments.remove(X[start : start + 30])
    assert_equal(moments, Moments.of(X[300:]))


def test_minus_leaves_both_as_they_were(rng):
    X = rng.normal(size=(100, 4))
    whole, part = Moments.of(X), Moments.of(X[:70])
    assert_equal(whole - part, Moments.of(X[70:]))
    assert (whole.n_samples, part.n_samples) == (100, 70)
    assert_equal((whole - part) + part, whole)


class TestThin:
    @pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
    def test_rows_that_are_kept_are_dropped_exactly(self, rng, kind):
        X = rng.normal(size=(30, 200)) * (rng.random((30, 200)) < 0.3)
        moments = Moments.of(kind(X)).remove(X[5:12])
        assert moments.is_thin
        kept = np.delete(X, np.s_[5:12], axis=0)
        np.testing.assert_allclose(moments.scatter(), Moments.of(kept).scatter(), atol=1e-13)

    def test_one_of_two_equal_rows(self, rng):
        X = np.repeat(rng.normal(size=(3, 20)), 2, axis=0)
        assert Moments.of(X).remove(X[:1]).n_samples == 5

    def test_a_row_that_is_not_kept_is_taken_from_the_scatter(self, rng):
        X = rng.normal(size=(15, 20))
        whole = Moments.of(X)
        mirrored = 2 * X[:5].mean(axis=0) - X[:5]  # the same moments, other rows
        assert_equal(whole - Moments.of(mirrored), Moments.of(X[5:]), 1e-8)


class TestGuard:
    def test_too_few_digits_left_is_an_error_and_changes_nothing(self, rng):
        calm = rng.normal(size=(100, 3))
        loud = rng.normal(size=(100, 3)) * [1.0, 1e7, 1.0]
        moments = Moments.of(np.vstack([calm, loud]))
        before = moments.covariance()
        with pytest.raises(ValueError, match=r"feature 1 varies so much less .* in new Moments"):
            moments.remove(loud)
        np.testing.assert_array_equal(moments.covariance(), before)
        assert moments.n_samples == 200

    def test_what_is_not_refused_is_right(self, rng):
        """Whatever the loudness of what is removed, six digits are right or nothing is given."""
        refused = 0
        for exponent in range(9):
            calm = rng.normal(size=(300, 2))
            loud = rng.normal(size=(500, 2)) * 10.0**exponent
            moments = Moments.of(np.vstack([calm, loud]))
            try:
                moments.remove(loud)
            except ValueError:
                refused += 1
            else:
                np.testing.assert_allclose(moments.variance(), calm.var(axis=0), rtol=1e-6)
        assert 1 < refused < 6

    def test_losses_add_up_over_many_removals(self, rng):
        moments = Moments.of(rng.normal(size=(50, 1)))
        loud = rng.normal(size=(50, 1)) * 3000.0
        with pytest.raises(ValueError, match="fewer than 6 digits"):
            for _ in range(100):
                moments.update(loud).remove(loud)
        np.testing.assert_allclose(moments.n_samples, 100)

    def test_a_feature_that_never_varied_is_no_loss(self, rng):
        X = np.column_stack([rng.normal(size=90), np.full(90, 0.1), np.zeros(90)])
        moments = Moments.of(X).remove(X[:30])
        assert moments.constant_features().tolist() == [False, True, True]
        np.testing.assert_allclose(moments.variance()[0], X[30:, 0].var(), rtol=1e-12)

    def test_all_and_all_but_one(self, rng):
        X = rng.normal(size=(60, 3))
        moments = Moments.of(X)
        np.testing.assert_array_equal((moments - Moments.of(X[1:])).covariance(), np.zeros((3, 3)))
        moments.remove(X)
        assert (moments.n_samples, moments.n_features) == (0, None)
        moments.update(X[:, :2])
        assert moments.n_features == 2

    def test_what_was_never_added(self, rng):
        X = rng.normal(size=(60, 3))
        moments = Moments.of(X)
        with pytest.raises(ValueError, match="samples of weight 61 from a total of 60"):
            moments.remove(np.zeros((61, 3)))
        with pytest.raises(ValueError, match="variance below 0; remove only what was added"):
            moments.remove(1e3 * X[:30])
        with pytest.raises(ValueError, match="moments of 2 features from those of 3"):
            moments.remove(X[:, :2])
        with pytest.raises(ValueError, match="weights other than"):
            moments.remove(X[:2], sample_weight=20.0)
        with pytest.raises(TypeError):
            moments - 1


class TestDecay:
    @pytest.mark.parametrize("m", [3, 60])
    @pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
    def test_forgetting_is_a_weight_of_each_chunk(self, rng, m, kind):
        chunks = [rng.normal(loc=i, size=(10, m)) for i in range(5)]
        moments = Moments()
        for chunk in chunks:
            moments.decay(0.7).update(kind(chunk))
        weights = np.repeat(0.7 ** np.arange(4, -1, -1), 10)
        expected = Moments.of(np.vstack(chunks), sample_weight=weights)
        assert moments.is_thin == (m == 60)
        assert_equal(moments, expected, 1e-12)

    def test_the_effective_number_levels_off(self, rng):
        moments = Moments()
        for _ in range(200):
            moments.decay(0.9).update(rng.normal(size=(10, 2)))
        # n (Σf^t)² / Σf^2t = n (1 + f) / (1 - f)
        assert moments.n_samples == 190

    @pytest.mark.parametrize("factor", [0.0, -0.5, 1.5, np.nan, "half"])
    def test_bad_factors(self, factor):
        with pytest.raises(ValueError, match=r"factor=.* must be above 0 and at most 1"):
            Moments.of(np.eye(3)).decay(factor)

    def test_samples_that_are_all_but_forgotten(self):
        moments = Moments.of(np.eye(3))
        for _ in range(10):
            moments.decay(1e-10)
        with pytest.raises(ValueError, match="would leave a weight of 3e-110"):
            moments.decay(1e-10)
        np.testing.assert_allclose(moments.covariance(), np.cov(np.eye(3), ddof=0), atol=1e-15)

    def test_nothing_yet(self):
        assert Moments().decay(0.5).n_samples == 0
