"""Indices and pointers of sparse matrices that do not lie in them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cpcapp import CPCAPlusPlus, Moments
from cpcapp.moments.sparse import check_sparse


@pytest.fixture
def matrix(rng):
    return sp.csr_array(rng.normal(size=(30, 5)) * (rng.random((30, 5)) < 0.5))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("index", [-1, 30, 1000, 100_000, 10_000_000])
def test_an_index_outside_the_matrix(matrix, form, index):
    matrix = matrix.asformat(form)
    check_sparse(matrix)
    (matrix.coords[0] if form == "coo" else matrix.indices)[3] = index
    with pytest.raises(ValueError, match=f"its indices hold {index}, not from 0 to"):
        check_sparse(matrix)


@pytest.mark.parametrize("place", [0, 5, -1])
@pytest.mark.parametrize("value", [-4, 2**31 - 1])
def test_pointers_that_do_not_rise_to_the_number_stored(matrix, place, value):
    matrix.indptr[place] = value
    with pytest.raises(ValueError, match="its indptr"):
        check_sparse(matrix)


def test_unsigned_pointers_that_fall(matrix):
    """The difference of unsigned integers is never negative."""
    matrix.indptr = matrix.indptr.astype(np.uint64)
    matrix.indptr[4] = matrix.indptr[3] - 1
    with pytest.raises(ValueError, match="its indptr does not rise"):
        check_sparse(matrix)


def test_room_behind_the_values_is_no_damage(matrix):
    matrix.data = np.append(matrix.data, 0.0)
    matrix.indices = np.append(matrix.indices, 77).astype(np.int32)
    check_sparse(matrix)


def test_estimators_and_moments_refuse_it_before_any_arithmetic(matrix, rng):
    background = rng.normal(size=(40, 5))
    fitted = CPCAPlusPlus(1).fit(matrix, background=background)
    bad = matrix.copy()
    bad.indices[3] = 100_000
    with pytest.raises(ValueError, match="chunk is a damaged sparse matrix: its indices hold"):
        Moments.of(bad)
    with pytest.raises(ValueError, match="X is a damaged sparse matrix"):
        CPCAPlusPlus(1).fit(bad, background=background)
    with pytest.raises(ValueError, match="background is a damaged sparse matrix"):
        CPCAPlusPlus(1).fit(matrix, background=bad)
    with pytest.raises(ValueError, match="X is a damaged sparse matrix"):
        fitted.transform(bad)
