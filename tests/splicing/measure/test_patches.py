"""Patches against plain loops over pixels."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.measure import patches
from cpcapp.splicing.measure.patches import PatchGrid, gather, share_in_patch, starts

# Height, width, size, stride: strides that divide the rest and that do not, one patch, one row.
GRIDS = [(13, 17, 5, 3), (12, 9, 4, 4), (7, 23, 7, 2), (6, 6, 6, 6), (11, 10, 3, 1), (9, 14, 2, 2)]


@pytest.fixture(params=GRIDS, ids=lambda shape: "x".join(map(str, shape)))
def grid(request):
    return PatchGrid(*request.param)


@pytest.fixture
def planes(grid, rng):
    return rng.random((3, grid.height, grid.width), dtype=np.float32)


def corners(length, size, stride):
    """Where patches begin, one by one."""
    found, at = [], 0
    while at + size <= length:
        found.append(at)
        at += stride
    return found if found[-1] + size == length else [*found, length - size]


def places(grid):
    rows = corners(grid.height, grid.size, grid.stride)
    return list(product(rows, corners(grid.width, grid.size, grid.stride)))


def cut(planes, top, left, size):
    """A patch, value by value: channel after channel, row after row."""
    return [
        planes[channel, top + row, left + col]
        for channel in range(len(planes))
        for row in range(size)
        for col in range(size)
    ]


@given(size=st.integers(1, 20), more=st.integers(0, 60), stride=st.integers(1, 20))
def test_patches_cover_a_side_and_end_flush(size, more, stride):
    stride = min(stride, size)
    found = starts(size + more, size, stride).tolist()
    assert found == corners(size + more, size, stride)
    assert (found[0], found[-1]) == (0, more)
    gaps = [b - a for a, b in pairwise(found)]
    assert all(0 < gap <= stride for gap in gaps)
    assert all(gap == stride for gap in gaps[:-1])


@pytest.mark.parametrize("together", [1, 7, 8192])
def test_cut(grid, planes, together, monkeypatch):
    monkeypatch.setattr(patches, "_PATCHES_PER_BLOCK", together)
    found = np.full((*grid.shape, 3 * grid.size**2), np.nan, dtype=np.float32)
    for rows, some in grid.cut(planes):
        assert some.dtype == np.float32
        found[rows] = some.reshape(-1, *found.shape[1:])
    expected = [cut(planes, *place, grid.size) for place in places(grid)]
    np.testing.assert_array_equal(found.reshape(len(expected), -1), expected)


def test_gather(grid, planes, rng):
    chosen = rng.permutation(places(grid))[:5]
    found = gather(planes, chosen, grid.size)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [cut(planes, *place, grid.size) for place in chosen])
    assert gather(planes, np.empty((0, 2), dtype=np.intp), grid.size).shape == (0, 3 * grid.size**2)


@pytest.mark.parametrize("together", [4, 128])
def test_mean_and_variance(grid, planes, together, monkeypatch):
    monkeypatch.setattr(patches, "_ROWS_PER_STRIP", together)
    whole = np.array([cut(planes, *place, grid.size) for place in places(grid)], dtype=np.float64)
    np.testing.assert_allclose(grid.mean(planes), whole.mean(axis=0), rtol=1e-12)
    variance = grid.variance(planes)
    assert variance.shape == grid.shape
    np.testing.assert_allclose(variance.ravel(), whole.var(axis=1), rtol=1e-5)


def test_the_variance_of_flat_patches_is_nothing(grid):
    flat = np.full((3, grid.height, grid.width), 0.7, dtype=np.float32)
    variance = grid.variance(flat)
    assert 0.0 <= variance.min() <= variance.max() < 1e-6


@pytest.mark.parametrize("window", ["uniform", "gaussian"])
def test_put_back(grid, rng, window):
    values = rng.random(grid.shape, dtype=np.float32)
    total = np.zeros((grid.height, grid.width))
    weight = np.zeros_like(total)
    middle, sigma = (grid.size - 1) / 2, grid.size / 5
    for value, (top, left) in zip(values.ravel(), places(grid), strict=True):
        for row, col in product(range(grid.size), repeat=2):
            off = (row - middle) ** 2 + (col - middle) ** 2
            w = 1.0 if window == "uniform" else np.exp(-off / (2 * sigma**2))
            total[top + row, left + col] += w * value
            weight[top + row, left + col] += w
    found = grid.put_back(values, window=window)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, total / weight, rtol=1e-5)
    same = grid.put_back(np.full(grid.shape, 0.3, dtype=np.float32), window=window)
    np.testing.assert_allclose(same, 0.3, rtol=1e-6)


@given(
    size=st.integers(1, 6),
    shape=st.tuples(st.integers(6, 15), st.integers(6, 15)),
    seed=st.integers(0, 99),
    filling=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_share_in_patch(size, shape, seed, filling):
    mask = np.random.default_rng(seed).random(shape) < filling
    found = share_in_patch(mask, size)
    assert found.shape == (shape[0] - size + 1, shape[1] - size + 1)
    for top, left in np.ndindex(found.shape):
        inside = mask[top : top + size, left : left + size]
        assert found[top, left] == np.float32(inside.sum() / size**2)
        assert (found[top, left] == 1.0) == inside.all()
        assert (found[top, left] == 0.0) == (not inside.any())


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((15, 40, 16, 4), "40x15 pixels is smaller than a patch of 16x16"),
        ((40, 15, 16, 4), "15x40 pixels is smaller"),
        ((40, 40, 0, 4), "size=0 and stride=4 must be at least 1"),
        ((40, 40, 4, 0), "stride=0 must be at least 1"),
    ],
)
def test_grids_that_can_not_be(shape, message):
    with pytest.raises(ValueError, match=message):
        PatchGrid(*shape)


def test_an_unknown_window(grid):
    with pytest.raises(ValueError, match="window='hann' must be one of 'uniform', 'gaussian'"):
        grid.put_back(np.zeros(grid.shape, dtype=np.float32), window="hann")


@given(
    height=st.integers(5, 60),
    width=st.integers(5, 40),
    size=st.integers(2, 5),
    stride=st.integers(1, 5),
    per_block=st.integers(1, 60),
)
def test_bands_have_the_patches_of_the_grid(height, width, size, stride, per_block):
    planes = np.random.default_rng(0).random((3, height, width), dtype=np.float32)
    grid = PatchGrid(height, width, size, min(stride, size))
    expected = np.concatenate([cut.copy() for _, cut in grid.cut(planes)])
    found, covered = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patches, "_PATCHES_PER_BLOCK", per_block)
        patch.setattr(patches, "_ROWS_PER_STRIP", 3)
        for rows, band in grid.bands():
            strip = planes[:, slice(*band.at)]
            found.extend(cut.copy() for _, cut in band.grid.cut(strip))
            covered.extend(range(*rows.indices(grid.shape[0])))
            np.testing.assert_allclose(
                band.grid.variance(strip), grid.variance(planes)[rows], atol=1e-12
            )
    assert covered == list(range(grid.shape[0]))
    np.testing.assert_array_equal(np.concatenate(found), expected)
