from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cpcapp import Moments
from cpcapp.moments.moments import NonFiniteError
from helpers import peak_bytes


def exact_covariance(X):
    """Two passes in extended precision, an independent reference."""
    X = np.asarray(X, dtype=np.longdouble)
    Z = X - X.mean(axis=0)
    return (Z.T @ Z / len(X)).astype(np.float64)


def assert_same(moments, X, rtol=1e-10):
    expected = exact_covariance(X)
    error = np.abs(moments.covariance() - expected).max() / np.abs(expected).max()
    assert error < rtol
    assert moments.n_samples == len(X)
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-12, atol=1e-12)


@given(
    n=st.integers(2, 200),
    m=st.integers(1, 12),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    offset=st.sampled_from([0.0, 3.0, -1e6, 1e8]),
    seed=st.integers(0, 1000),
)
def test_any_chunking_and_order_gives_the_same(n, m, cuts, offset, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(loc=offset, size=(n, m))
    chunks = np.split(X, sorted(min(c, n) for c in cuts))
    order = rng.permutation(len(chunks))
    shuffled = np.concatenate([chunks[i] for i in order])
    streamed = Moments()
    for i in order:
        streamed.update(chunks[i])
    added = sum((Moments().update(chunks[i]) for i in order), start=Moments())
    # The reference is exact; float64 input of mean 1e8 itself carries only 8 digits of a unit.
    tolerance = 1e-10 if abs(offset) <= 1e6 else 1e-8
    assert_same(streamed, shuffled, tolerance)
    assert_same(added, shuffled, tolerance)


def test_no_cancellation_when_the_mean_drifts(rng):
    X = rng.normal(size=(20_000, 5)) + np.linspace(0, 1e6, 20_000)[:, None]
    X[:9000] = rng.normal(size=(9000, 5))
    assert_same(Moments.of(X), X)


def test_an_outlier_in_the_sniffed_rows_does_not_hide_a_large_mean(rng):
    # Row 0 is one of the rows that decide whether centring may be left out.
    X = rng.normal(loc=1000.0, size=(8192, 4))
    X[0] = -1e6
    assert_same(Moments.of(X), X)


def test_numpys_covariance_agrees(rng):
    X = rng.normal(size=(500, 7)) @ rng.normal(size=(7, 7))
    np.testing.assert_allclose(Moments.of(X).covariance(ddof=1), np.cov(X.T), rtol=1e-12)
    np.testing.assert_allclose(Moments.of(X).scatter(), np.cov(X.T, ddof=0) * 500, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, bool, np.float16])
def test_other_kinds_of_numbers(rng, dtype):
    X = rng.integers(0, 2, size=(300, 4)).astype(dtype)
    assert_same(Moments.of(X), X.astype(float))


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order_and_strides_do_not_matter(rng, order):
    X = np.asarray(rng.normal(size=(4000, 12)), order=order)
    assert_same(Moments.of(X), X)
    assert_same(Moments.of(X[::-2, ::3]), X[::-2, ::3])


def test_a_memory_map_is_read_in_pieces(rng, tmp_path):
    n, m = 40_000, 100
    X = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=float, shape=(n, m))
    X[:] = rng.normal(loc=50, size=(n, m))  # far from 0, so that it must be centred
    X.flush()
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    moments = []
    peak = peak_bytes(lambda: moments.append(Moments.of(X)))
    assert peak < X.nbytes / 10
    np.testing.assert_allclose(moments[0].mean, X.mean(axis=0), rtol=1e-12)
    expected = np.cov(X, rowvar=False, ddof=0)
    np.testing.assert_allclose(moments[0].covariance(), expected, rtol=1e-9, atol=1e-9)


def test_iterators_of_chunks(rng):
    X = rng.normal(size=(300, 4))
    assert_same(Moments.of(X[i : i + 7] for i in range(0, 300, 7)), X)
    assert_same(Moments().update(iter([X[:10], sp.csr_array(X[10:])])), X)


class TestSparse:
    @pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
    def test_equals_dense(self, rng, kind):
        X = sp.random_array((2000, 30), density=0.1, format=kind, rng=rng)
        assert_same(Moments.of(X), X.toarray())

    def test_full_columns_of_large_mean_keep_their_precision(self, rng):
        dense = sp.random_array((2000, 10), density=0.1, rng=rng).toarray()
        dense[:, 3] = rng.normal(loc=1e6, size=2000)
        assert_same(Moments.of(sp.csr_array(dense)), dense)
        variance = Moments.of(sp.csr_array(dense)).variance()
        np.testing.assert_allclose(variance, dense.var(axis=0), rtol=1e-9)

    def test_is_never_made_dense(self, rng):
        X = sp.random_array((200_000, 50), density=0.001, format="csr", rng=rng)
        dense_bytes = X.shape[0] * X.shape[1] * 8
        assert peak_bytes(lambda: Moments.of(X)) < dense_bytes / 10

    def test_duplicate_entries_are_summed_and_input_is_left_alone(self):
        X = sp.csr_array(
            (np.array([1.0, 2.0, 3.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2)
        )
        assert_same(Moments.of(X), np.array([[3.0, 0.0], [0.0, 3.0]]))
        assert X.nnz == 3


class TestThin:
    def test_rows_are_kept_only_below_the_number_of_features(self, rng):
        X = rng.normal(size=(50, 20))
        moments = Moments().update(X[:10])
        assert moments.is_thin
        assert_same(moments, X[:10])
        moments.update(X[10:19])
        assert moments.is_thin
        assert_same(moments, X[:19])
        moments.update(X[19:])
        assert not moments.is_thin
        assert_same(moments, X)

    def test_keeps_a_copy(self, rng):
        X = rng.normal(size=(5, 20))
        moments = Moments().update(X)
        expected = exact_covariance(X)
        X[:] = 0
        np.testing.assert_allclose(moments.covariance(), expected, atol=1e-14)

    def test_many_features_need_no_square_matrix(self, rng):
        X = rng.normal(size=(20, 30_000))
        assert peak_bytes(lambda: Moments.of(X)) < 5 * X.nbytes

    def test_centred_rows_only_while_thin(self, rng):
        with pytest.raises(ValueError, match="no longer kept"):
            Moments.of(rng.normal(size=(50, 2))).centred_rows()


class TestAdding:
    @pytest.mark.parametrize("sizes", [(5, 4), (5, 60), (60, 5), (60, 70), (0, 9), (9, 0)])
    def test_thin_and_full_in_any_combination(self, rng, sizes):
        X = rng.normal(loc=100, size=(sum(sizes), 20))
        a, b = X[: sizes[0]], X[sizes[0] :]
        left, right = Moments().update(a), Moments().update(b)
        before = (left.n_samples, right.n_samples)
        assert_same(left + right, X)
        assert (left.n_samples, right.n_samples) == before
        left += right
        assert_same(left, X)

    def test_other_features(self, rng):
        with pytest.raises(ValueError, match="add 4 features to moments of 3"):
            Moments.of(rng.normal(size=(9, 3))) + Moments.of(rng.normal(size=(9, 4)))

    def test_only_moments_can_be_added(self, rng):
        with pytest.raises(TypeError):
            Moments.of(rng.normal(size=(9, 3))) + 1


class TestBadInput:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("n", [10, 200])
    def test_a_bad_chunk_is_named_and_changes_nothing(self, rng, bad, n):
        X = rng.normal(size=(100, 30))
        moments = Moments().update(X)
        before = moments.covariance()
        chunk = rng.normal(size=(n, 30))
        chunk[-1, 7] = bad
        for version in (chunk, chunk.astype(np.float32), sp.csr_array(chunk)):
            with pytest.raises(NonFiniteError, match="column 7") as caught:
                moments.update(version)
            assert caught.value.columns.tolist() == [7]
            with pytest.raises(NonFiniteError, match="column 7"):
                Moments.of(version)
        np.testing.assert_array_equal(moments.covariance(), before)
        assert moments.n_samples == 100

    def test_infinities_of_both_signs(self):
        with pytest.raises(NonFiniteError, match="column 1"):
            Moments.of(np.array([[0.0, np.inf], [1.0, -np.inf], [2.0, 0.0]]))

    def test_wrong_shapes_and_kinds(self, rng):
        moments = Moments.of(rng.normal(size=(9, 3)))
        with pytest.raises(ValueError, match="add 4 features to moments of 3"):
            moments.update(rng.normal(size=(9, 4)))
        with pytest.raises(ValueError, match=r"must be \(n_samples, n_features\)"):
            Moments.of(np.arange(3.0))
        with pytest.raises(ValueError, match=r"2 columns of text .*: 0, 1; drop them"):
            Moments.of(np.array([["a", "b"]]))
        with pytest.raises(ValueError, match=r"1 column of text .*: 'name'; drop them"):
            Moments.of(pd.DataFrame({"x": [1.0, 2.0], "name": ["a", "b"]}))
        with pytest.raises(ValueError, match="real numbers"):
            Moments.of(np.array([[1j, 2.0]]))
        with pytest.raises(TypeError, match=r"with \+"):
            moments.update(moments)
        with pytest.raises(ValueError, match="form='x' must be one of 'auto', 'scatter'"):
            Moments(form="x")

    @pytest.mark.parametrize("n", [2, 200])
    def test_masked_values_are_no_values(self, rng, n):
        X = np.ma.array(rng.normal(size=(n, 9)))
        np.testing.assert_array_equal(Moments.of(X).variance(), Moments.of(X.data).variance())
        X[1, 7] = np.ma.masked
        moments = Moments.of(X[:1])
        with pytest.raises(ValueError, match=r"1 masked values, in column 7; fill them in .* drop"):
            moments.update(X)
        assert moments.n_samples == 1

    def test_no_samples_yet(self):
        for ask in (Moments().covariance, Moments().scatter, Moments().variance):
            with pytest.raises(ValueError, match="no samples yet"):
                ask()
        with pytest.raises(ValueError, match="ddof=1 must be below n_samples=1"):
            Moments.of(np.ones((1, 1))).covariance(ddof=1)

    def test_empty_chunks_are_nothing(self):
        assert Moments.of(np.empty((0, 3))).n_samples == 0

    @pytest.mark.parametrize(
        ("covariance", "n", "message"),
        [
            (np.ones((2, 3)), 5, "square"),
            (np.array([[1.0, 2.0], [0.0, 1.0]]), 5, "symmetric"),
            (np.eye(2), 0, "n_samples=0"),
        ],
    )
    def test_from_covariance(self, covariance, n, message):
        with pytest.raises(ValueError, match=message):
            Moments.from_covariance(covariance, n)


def test_constant_features_are_told_from_small_ones(rng):
    X = np.column_stack([np.full(3000, 0.1), rng.normal(scale=1e-8, size=3000), np.zeros(3000)])
    assert Moments.of(X).constant_features().tolist() == [True, False, True]


def test_repr(rng):
    assert repr(Moments.of(rng.normal(size=(50, 2)))) == (
        "Moments(n_samples=50, n_features=2, kept=scatter)"
    )


@pytest.mark.parametrize("n", [4, 60])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_rescaled_moments_are_those_of_rescaled_data(rng, n, kind):
    X = rng.normal(size=(n, 6)) * (rng.random((n, 6)) < 0.5)
    scale = rng.uniform(0.1, 10, 6)
    weights = rng.random(n)
    before = Moments.of(kind(X), sample_weight=weights)
    found, expected = before.rescaled(scale), Moments.of(X / scale, sample_weight=weights)
    assert found.is_thin == expected.is_thin == (n < 6)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-12)
    np.testing.assert_allclose(found.scatter(), expected.scatter(), atol=1e-10)
    np.testing.assert_allclose(found.variance(), expected.variance(), atol=1e-10)
    np.testing.assert_allclose(before.mean, np.average(X, axis=0, weights=weights), atol=1e-12)
    found.update(X / scale)
    assert found.total_weight == pytest.approx(weights.sum() + n)


@pytest.mark.parametrize("scale", [[1.0, 0.0], [1.0, np.nan], [1.0, -2.0], [1.0], 2.0])
def test_a_scale_that_can_not_be(scale):
    with pytest.raises(ValueError, match="scale"):
        Moments.of(np.eye(2)).rescaled(scale)


@pytest.mark.parametrize("scale", [1e-37, 1e-25, 1e-15, 1e15, 1e25, 1e37])
def test_float32_of_any_scale(rng, scale):
    """Squares of float32 are 0 below 1e-23 and infinite above 1e19; nothing is computed in it."""
    X = (rng.normal(loc=9.0, size=(300, 3)) * [1.0, scale, 1.0]).astype(np.float32)
    expected = np.cov(X.T.astype(np.float64), ddof=0)
    deviations = np.sqrt(expected.diagonal())
    off = (Moments.of(X).covariance() - expected) / np.outer(deviations, deviations)
    assert np.abs(off).max() < 1e-12


@pytest.mark.parametrize("n", [40, 1500, 9_000])
@pytest.mark.parametrize("offset", [1e9, 1e12])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_no_cancellation_with_any_mean_that_float64_can_hold(rng, n, offset, kind):
    X = rng.normal(loc=offset, size=(n, 60))
    # Extended precision of the reference is itself good to 1e-10 at 1e12.
    assert_same(Moments.of(kind(X)), X, 1e-10)
    parts = (Moments.of(kind(part)) for part in np.array_split(X, 7))
    assert_same(sum(parts, start=Moments()), X, 1e-10)


class TestSparseRows:
    """Sparse rows of many features stay rows while they are small against the scatter."""

    @staticmethod
    def sparse(rng, n, m=2000, density=0.01):
        return sp.random_array((n, m), density=density, format="csr", rng=rng)

    def test_rows_are_kept_beyond_as_many_samples_as_features(self, rng):
        X = self.sparse(rng, 3000)
        kept = Moments.of(X)
        assert kept.is_thin and kept.n_samples == 3000
        folded = Moments.of(X, form="scatter")
        assert not folded.is_thin
        np.testing.assert_allclose(kept.mean, folded.mean, rtol=1e-12)
        np.testing.assert_allclose(kept.variance(), folded.variance(), rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(kept.covariance(), folded.covariance(), atol=1e-12)

    def test_until_they_store_a_quarter_of_what_the_scatter_has(self, rng):
        X = self.sparse(rng, 2000, density=0.2)
        kept = Moments.of(X)
        assert kept.is_thin
        kept.update(self.sparse(rng, 200, density=0.4))
        assert kept.is_thin
        kept.update(self.sparse(rng, 200, density=0.4))
        assert not kept.is_thin
        assert kept.n_samples == 2400

    def test_few_features_or_a_dense_chunk_give_the_scatter(self, rng):
        assert not Moments.of(self.sparse(rng, 3000, m=1999)).is_thin
        kept = Moments.of(self.sparse(rng, 2500)).update(np.zeros((1, 2000)))
        assert not kept.is_thin

    def test_chunks_of_any_size_in_any_order_give_the_same(self, rng):
        X = self.sparse(rng, 2600)
        cuts = np.sort(rng.choice(np.arange(1, 2600), 120, replace=False))
        chunks = [X[a:b] for a, b in zip([0, *cuts], [*cuts, 2600], strict=True)]
        rng.shuffle(chunks)
        whole, parts = Moments.of(X), Moments.of(iter(chunks))
        halves = Moments.of(iter(chunks[:50])) + Moments.of(iter(chunks[50:]))
        for added in (parts, halves):
            assert added.is_thin
            assert added.kept_rows()[0].shape[0] == 2600
            np.testing.assert_allclose(added.mean, whole.mean, rtol=1e-12)
            np.testing.assert_allclose(added.variance(), whole.variance(), rtol=1e-10)

    def test_a_copy_is_independent(self, rng):
        first = Moments.of(self.sparse(rng, 2100))
        second = first.copy()
        second.update(self.sparse(rng, 2100))
        assert first.n_samples == first.kept_rows()[0].shape[0] == 2100
