"""The boundary map in closed form; `test_localizer.py` has the paper's steps as plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from cpcapp.splicing.measure.boundary import BankOptions, FilterBank, combine_banks

OPTIONS = BankOptions(size=6, stride=2, n_filters=5)
SIZE = (31, 23)


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


def test_equal_contrast_everywhere_changes_the_scale_only(image, edges):
    """What the map is divided by keeps photos comparable."""
    plain = combine_banks(image, edges, [bank_of()])
    for level in (0.25, 4.0):
        sides = np.full(SIZE, level, dtype=np.float32)
        found = combine_banks(image, edges, [bank_of()], side_contrast=sides)
        np.testing.assert_allclose(
            found.map * found.scale, plain.map * plain.scale * level**0.5, rtol=1e-4
        )
        assert found.map.max() == pytest.approx(1.0)


def test_no_contrast_no_seam(image, edges):
    found = combine_banks(image, edges, [bank_of()], side_contrast=np.zeros(SIZE, np.float32))
    assert not found.map.any()
    assert np.isfinite(found.scale)


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


def test_the_map_and_what_it_was_divided_by(image):
    bank = bank_of()
    grid, power = bank.power(image)
    found, largest = bank.map(image)
    assert largest == pytest.approx(float(power.max()))
    np.testing.assert_allclose(found, grid.put_back(power / power.max()), rtol=1e-5)


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


def test_rounding_is_no_power():
    """Patches that are the same but for the last bit of a float: nothing stands out."""
    bank = bank_of(replace(OPTIONS, size=8, stride=8))
    tile = np.random.default_rng(1).random((8, 8, 3), dtype=np.float32)
    image = np.tile(tile, (3, 3, 1))
    image[:8, :8] = np.nextafter(image[:8, :8], np.float32(2.0))
    assert not bank.power(image)[1].any()
    image[:8, :8] += np.float32(1 / 255)
    assert bank.power(image)[1].any()


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


@pytest.mark.parametrize(
    "options",
    [
        {"size": 2, "stride": 1, "n_filters": 12},
        {"size": 64, "stride": 64},
        {"size": 16, "stride": 16},
        {"n_filters": 1},
        {"n_filters": 768},
        {"variance_exponent": 0.0},
        {"variance_exponent": 2.0},
        {"exponent": 10.0},
    ],
)
def test_options_up_to_the_ends_of_their_ranges(options):
    assert BankOptions(**options) == replace(BankOptions(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 8, "stride": 9}, "stride=9 must be from 1 to size=8"),
        ({"size": 2, "stride": 1, "n_filters": 13}, "n_filters=13 must be from 1 to 12"),
        ({"variance_exponent": 2.1}, "variance_exponent=2.1 must be in"),
        ({"exponent": 10.1}, "exponent=10.1 in"),
        ({"exponent": -1.0}, "exponent=-1.0 in"),
    ],
)
def test_options_beyond_them(options, message):
    with pytest.raises(ValueError, match=message):
        BankOptions(**options)


def test_a_patch_has_three_colours():
    assert BankOptions(size=16).n_features == 768  # the paper's M = 3n²


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_filters_and_eigenvalues_are_finite(bad):
    bank = bank_of()
    eigenvalues = bank.eigenvalues.copy()
    eigenvalues[2] = bad
    with pytest.raises(ValueError, match="must be finite"):
        FilterBank(OPTIONS, bank.filters, eigenvalues)
