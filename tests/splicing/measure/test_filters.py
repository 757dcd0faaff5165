"""Patches against plain loops, and the boundary map in closed form."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from cpcapp.splicing.measure import filters
from cpcapp.splicing.measure.filters import (
    BankOptions,
    FilterBank,
    PatchGrid,
    PhotoPlanes,
    combine_banks,
    gather,
    image_planes,
    share_in_patch,
    starts,
)
from cpcapp.splicing.photo.jpeg import recompress


@pytest.fixture
def pixels(rng):
    smooth = rng.integers(0, 256, (5, 6, 3), dtype=np.uint8).repeat(7, axis=0).repeat(7, axis=1)
    return smooth[:33, :41] // 2 + rng.integers(0, 60, (33, 41, 3), dtype=np.uint8)


def unit(pixels):
    return pixels.astype(np.float32) / np.float32(255)


@pytest.mark.parametrize("channels", ["rgb", "error-level"])
@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 70), (63, 65), (5, 150), (149, 150)])
def test_strips_are_parts_of_the_planes(rng, channels, first, last):
    image = unit(rng.integers(0, 256, (150, 41, 3), dtype=np.uint8))
    expected = image_planes(image, channels)[:, first:last]
    np.testing.assert_array_equal(PhotoPlanes(image, channels).strip(first, last), expected)
    if channels == "rgb":
        np.testing.assert_array_equal(expected.transpose(1, 2, 0), image[first:last])


def test_error_level_is_what_jpeg_takes_away(pixels):
    found = image_planes(unit(pixels), "error-level").transpose(1, 2, 0)
    expected = (pixels.astype(np.float64) - recompress(pixels, 90)) / 255
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("turned", [False, True])
def test_error_level_of_a_photo_longer_than_jpeg_can_hold(turned):
    step = np.zeros((9, 66_000, 3), dtype=np.uint8)
    step[:, 65_800:] = [200, 90, 30]
    image = unit(step.transpose(1, 0, 2) if turned else step)
    found = np.abs(image_planes(image, "error-level")).max(axis=0)
    assert found.shape == image.shape[:2]
    along = found.max(axis=1 if turned else 0)
    assert 0.01 < along[65_780:65_820].max() < 0.5
    assert along[:65_000].max() < 0.01


# -- patches -------------------------------------------------------------------------------

# Height, width, size, stride: strides that divide the rest and that do not, one patch, one row.
GRIDS = [(13, 17, 5, 3), (12, 9, 4, 4), (7, 23, 7, 2), (6, 6, 6, 6), (11, 10, 3, 1), (9, 14, 2, 2)]


@pytest.fixture(params=GRIDS, ids=lambda shape: "x".join(map(str, shape)))
def grid(request):
    return PatchGrid(*request.param)


@pytest.fixture
def photo(grid, rng):
    return rng.random((grid.height, grid.width, 3), dtype=np.float32)


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


def patches_of(photo, grid):
    """All patches, value by value: channel after channel, row after row."""
    return np.array(
        [
            [
                photo[top + row, left + col, channel]
                for channel in range(3)
                for row in range(grid.size)
                for col in range(grid.size)
            ]
            for top, left in places(grid)
        ]
    )


@pytest.mark.parametrize("together", [1, 7, 8192])
def test_patches_their_mean_and_their_variance(grid, photo, together, monkeypatch):
    monkeypatch.setattr(filters, "_PATCHES_PER_BAND", together)
    monkeypatch.setattr(filters, "_ROWS_PER_STRIP", together)
    expected, planes = patches_of(photo, grid), PhotoPlanes(photo, "rgb")
    patches, variance = np.full(expected.shape, np.nan), np.full(grid.shape, np.nan)
    for rows, band, pixels in grid.bands():
        strip = planes.strip(*pixels)
        patches.reshape(*grid.shape, -1)[band] = grid.cut(strip, rows).reshape(
            len(rows), grid.shape[1], -1
        )
        variance[band] = grid.variance(strip, rows)
    np.testing.assert_array_equal(patches, expected)
    np.testing.assert_allclose(variance.ravel(), expected.var(axis=1), rtol=1e-4)
    np.testing.assert_allclose(grid.mean(planes), expected.mean(axis=0, dtype=float), rtol=1e-12)
    chosen = np.random.default_rng(0).permutation(places(grid))[:5]
    whole = dict(zip(places(grid), expected, strict=True))
    gathered = gather(image_planes(photo, "rgb"), chosen, grid.size)
    np.testing.assert_array_equal(gathered, [whole[tuple(corner)] for corner in chosen])
    assert gather(planes.strip(0, grid.height), chosen[:0], grid.size).shape == (
        0,
        expected.shape[1],
    )


@pytest.mark.parametrize("window", ["uniform", "gaussian"])
def test_values_of_patches_are_averaged_at_each_pixel(grid, rng, window):
    values = rng.random(grid.shape, dtype=np.float32)
    total = np.zeros((grid.height, grid.width))
    weight = np.zeros_like(total)
    off = np.arange(grid.size) - (grid.size - 1) / 2
    side = np.exp(-(off**2) / (2 * (grid.size / 5) ** 2)) if window == "gaussian" else off**0
    profile = np.outer(side, side)
    for value, (top, left) in zip(values.ravel(), places(grid), strict=True):
        box = slice(top, top + grid.size), slice(left, left + grid.size)
        total[box] += profile * value
        weight[box] += profile
    found = grid.put_back(values, window=window)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, total / weight, rtol=1e-5)


def test_a_photo_smaller_than_a_patch():
    with pytest.raises(ValueError, match="40x15 pixels is smaller than a patch of 16x16"):
        PatchGrid(15, 40, 16, 4)


@given(size=st.integers(1, 20), more=st.integers(0, 60), stride=st.integers(1, 20))
def test_patches_cover_a_side_and_end_flush(size, more, stride):
    stride = min(stride, size)
    found = starts(size + more, size, stride).tolist()
    assert found == corners(size + more, size, stride)
    assert (found[0], found[-1]) == (0, more)
    gaps = [b - a for a, b in pairwise(found)]
    assert all(0 < gap <= stride for gap in gaps)
    assert all(gap == stride for gap in gaps[:-1])


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


OPTIONS = BankOptions(size=6, stride=2, n_filters=5)
SIZE = (31, 23)


# -- the map -------------------------------------------------------------------------------


def bank_of(options=OPTIONS, seed=0):
    rng = np.random.default_rng(seed)
    filters = rng.standard_normal((options.n_features, options.n_filters)).astype(np.float32)
    return FilterBank(options, filters, np.linspace(6.0, 0.5, options.n_filters))


@pytest.fixture
def image(rng):
    return rng.random((*SIZE, 3), dtype=np.float32)


@pytest.fixture
def edges(rng):
    return rng.random(SIZE, dtype=np.float32)


def test_the_contrast_of_the_sides_enters_by_its_square_root(image, edges, rng):
    contrast = rng.uniform(0.1, 9.0, SIZE).astype(np.float32)
    plain = combine_banks(image, edges, [bank_of()])
    found = combine_banks(image, edges, [bank_of()], side_contrast=contrast)
    product = plain.map * np.sqrt(contrast)
    np.testing.assert_allclose(found.map, product / product.max(), rtol=1e-5)
    assert found.scale == pytest.approx(plain.scale * product.max(), rel=1e-5)
    assert np.abs(found.map - plain.map).max() > 0.2


@pytest.mark.parametrize("smoothing", [0.0, 1.5])
def test_the_undivided_map_is_the_product_of_powers(smoothing, image, edges):
    """``edges · Π v^exponent`` averaged over patches, whatever the maps were divided by."""
    banks = [
        bank_of(replace(OPTIONS, exponent=0.5)),
        bank_of(replace(OPTIONS, size=4, window="gaussian", exponent=2.0), seed=1),
    ]
    product = edges.astype(np.float64)
    for bank in banks:
        grid, power = bank.power(image)
        averaged = grid.put_back(power.copy(), window=bank.options.window)
        product *= averaged.astype(np.float64) ** bank.options.exponent
    if smoothing:
        product = gaussian_filter(product, smoothing, mode="mirror", truncate=4.0)
    found = combine_banks(image, edges, banks, smoothing=smoothing)
    undivided = found.map.astype(np.float64) * found.scale
    np.testing.assert_allclose(undivided, product, rtol=1e-3, atol=1e-4 * product.max())


def test_edges_are_left_alone(image, edges):
    before = edges.copy()
    combine_banks(image, edges, [bank_of()], smoothing=1.0)
    np.testing.assert_array_equal(edges, before)


def test_a_photo_smaller_than_the_largest_patch_has_no_map():
    banks = [bank_of(), bank_of(replace(OPTIONS, size=8))]
    rng = np.random.default_rng(0)
    for side, seen in ((7, False), (8, True)):
        image = rng.random((side, 20, 3), dtype=np.float32)
        found = combine_banks(image, np.ones((side, 20), np.float32), banks)
        assert found.map.shape == (side, 20)
        assert found.map.dtype == np.float32
        assert found.map.any() == seen
        assert (found.scale > 0.0) == seen


@given(factor=st.floats(0.1, 0.9), exponent=st.sampled_from([0.0, 0.5, 1.0]))
def test_what_contrast_does_to_the_power(factor, exponent):
    """All deviations times ``a``: power times ``a²``, over variance to an exponent ``a^(2-2e)``."""
    rng = np.random.default_rng(0)
    image = rng.random((20, 24, 3), dtype=np.float32)
    bank = bank_of(replace(OPTIONS, variance_exponent=exponent))
    full, less = (bank.power(np.float32(a) * image)[1] for a in (1.0, factor))
    np.testing.assert_allclose(less, full * factor ** (2 - 2 * exponent), rtol=5e-3)


def test_excess_counts_only_filters_that_see_more_at_seams(image):
    """The weights ``1 - 1/λ``: 0 for eigenvalues of 1 and less, 0 itself among them."""
    eigenvalues = np.array([4.0, 2.0, 1.0, 0.5, 0.0])
    plain, weighted = (
        FilterBank(replace(OPTIONS, weights=kind), bank_of().filters, eigenvalues)
        for kind in ("none", "excess")
    )
    alone = [
        FilterBank(replace(OPTIONS, n_filters=1), plain.filters[:, i : i + 1], eigenvalues[i:][:1])
        for i in range(5)
    ]
    powers = [bank.power(image)[1] for bank in alone]
    np.testing.assert_allclose(plain.power(image)[1], sum(powers), rtol=1e-4)
    expected = 0.75 * powers[0] + 0.5 * powers[1]
    np.testing.assert_allclose(weighted.power(image)[1], expected, rtol=1e-4)


@pytest.mark.parametrize(("share", "seen"), [(0.5, False), (2.0, True)])
def test_rounding_is_what_a_float_can_not_hold(share, seen):
    """At each pixel by ``eps``, in the direction of the filter: ``v = (eps Σ|f|)²``."""
    options = replace(OPTIONS, size=8, stride=8, n_filters=1)
    rng = np.random.default_rng(1)
    filters = rng.standard_normal((192, 1)).astype(np.float32)
    filters -= filters.mean()  # most filters sum to nearly 0
    bank = FilterBank(options, filters, np.ones(1))
    image = np.tile(rng.uniform(0.5, 0.98, (8, 8, 3)).astype(np.float32), (4, 4, 1))
    image[:8, 8:16] = image[:8, :8]
    eps = np.finfo(np.float32).eps
    direction = np.sign(filters).reshape(3, 8, 8).transpose(1, 2, 0)
    image[:8, :8] += np.float32(share * eps) * direction
    assert bank.power(image)[1].any() == seen


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_filters_and_eigenvalues_are_finite(bad):
    bank = bank_of()
    eigenvalues = bank.eigenvalues.copy()
    eigenvalues[2] = bad
    with pytest.raises(ValueError, match="must be finite"):
        FilterBank(OPTIONS, bank.filters, eigenvalues)
