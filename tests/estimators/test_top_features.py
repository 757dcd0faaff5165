"""The features behind a component, by the same weights as ``cpcapp reduce``."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from cpcapp import CPCA, CPCAPlusPlus, Moments
from cpcapp.tables import reduce_tables

NAMES = ["height", "weight", "age", "pulse"]


@pytest.fixture
def frames(rng):
    units = np.array([1e3, 1.0, 1e-4, 1.0])
    X = rng.normal(size=(200, 4)) * [1, 1, 5, 2] * units + 7.0
    B = rng.normal(size=(150, 4)) * units
    return pd.DataFrame(X, columns=NAMES), pd.DataFrame(B, columns=NAMES)


@pytest.mark.parametrize("est", [CPCAPlusPlus(2), CPCA(2, alpha=1.5), CPCA(2)])
def test_they_are_those_of_reduce(tmp_path, frames, est):
    X, B = frames
    X.to_parquet(tmp_path / "x.parquet")
    B.to_parquet(tmp_path / "b.parquet")
    options = {"alpha": est.alpha} if isinstance(est, CPCA) else {}
    method = "cpca" if options else "cpca++"
    paths = tmp_path / "x.parquet", tmp_path / "b.parquet"
    reduced = reduce_tables(*paths, 2, method=method, **options)
    found = est.fit(X, background=B).top_features(3)
    for ours, theirs in zip(found, reduced.top_features(3), strict=True):
        assert [name for name, _ in ours] == [name for name, _ in theirs]
        np.testing.assert_allclose([w for _, w in ours], [w for _, w in theirs], rtol=1e-6)
    assert [len(top) for top in found] == [3, 3]


def test_units_do_not_matter(frames):
    X, B = frames
    (first, *_), *_ = CPCAPlusPlus(1).fit(X, background=B).top_features(1)
    assert first[0] == "age"
    deviation = X["age"].std(ddof=0)
    (scaled, *_), *_ = CPCAPlusPlus(1).fit(X / deviation, background=B / deviation).top_features(1)
    assert scaled == (first[0], pytest.approx(first[1], rel=1e-6))


def test_arrays_moments_and_chunks_have_numbered_features(frames):
    X, B = (frame.to_numpy() for frame in frames)
    whole = CPCAPlusPlus(1).fit(X, background=B).top_features()
    assert whole[0][0][0] == "x2"
    assert len(whole[0]) == 4
    moments = CPCAPlusPlus(1).fit_moments(Moments.of(X), Moments.of(B))
    chunks = CPCAPlusPlus(1).partial_fit(X[:90], background=B).partial_fit(X[90:])
    for other in (moments, chunks, pickle.loads(pickle.dumps(moments))):
        assert [name for name, _ in other.top_features()[0]] == [name for name, _ in whole[0]]
        np.testing.assert_allclose(
            [w for _, w in other.top_features()[0]], [w for _, w in whole[0]], rtol=1e-6
        )


@pytest.mark.parametrize("est", [CPCAPlusPlus(), CPCA()])
def test_bad_requests(est, frames):
    with pytest.raises(NotFittedError):
        est.top_features()
    est.fit(frames[0], background=frames[1])
    with pytest.raises(ValueError, match="n=0 must be at least 1"):
        est.top_features(0)
    with pytest.raises(TypeError, match="n='3' must be a whole number"):
        est.top_features("3")
