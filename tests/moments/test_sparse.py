"""Indices and pointers of sparse matrices that do not lie in them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp import CPCAPlusPlus, Moments


@pytest.fixture
def matrix(rng):
    return sp.csr_array(rng.normal(size=(30, 5)) * (rng.random((30, 5)) < 0.5))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("index", [-1, 30, 10_000_000])
def test_an_index_outside_the_matrix(matrix, form, index):
    matrix = matrix.asformat(form)
    (matrix.coords[0] if form == "coo" else matrix.indices)[3] = index
    message = f"chunk is a damaged sparse matrix: its indices hold {index}, not from 0 to"
    with pytest.raises(ValueError, match=message):
        Moments.of(matrix)


@pytest.mark.parametrize("place", [0, 5, -1])
@pytest.mark.parametrize("value", [-4, 2**31 - 1])
def test_pointers_that_do_not_rise_to_the_number_stored(matrix, place, value):
    matrix.indptr[place] = value
    with pytest.raises(ValueError, match="its indptr"):
        Moments.of(matrix)


def test_unsigned_pointers_that_fall(matrix):
    """The difference of unsigned integers is never negative."""
    matrix.indptr = matrix.indptr.astype(np.uint64)
    matrix.indptr[4] = matrix.indptr[3] - 1
    with pytest.raises(ValueError, match="its indptr does not rise"):
        Moments.of(matrix)


def test_room_behind_the_values_is_no_damage(matrix):
    dense = matrix.toarray()
    matrix.data = np.append(matrix.data, 0.0)
    matrix.indices = np.append(matrix.indices, 77).astype(np.int32)
    np.testing.assert_allclose(Moments.of(matrix).mean, dense.mean(axis=0), atol=1e-15)


def test_estimators_refuse_it_before_any_arithmetic(matrix, rng):
    background, bad = rng.normal(size=(40, 5)), matrix.copy()
    fitted = CPCAPlusPlus(1).fit(matrix, background=background)
    bad.indices[3] = 100_000
    for name, use in {
        "X": lambda: CPCAPlusPlus(1).fit(bad, background=background),
        "background": lambda: CPCAPlusPlus(1).fit(matrix, background=bad),
        "X ": lambda: fitted.transform(bad),
    }.items():
        with pytest.raises(ValueError, match=f"{name.strip()} is a damaged sparse matrix"):
            use()
