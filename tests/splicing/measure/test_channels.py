from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.measure.channels import CHANNELS, PhotoPlanes, image_planes
from cpcapp.splicing.photo.jpeg import recompress


@pytest.fixture
def pixels(rng):
    smooth = rng.integers(0, 256, (5, 6, 3), dtype=np.uint8).repeat(7, axis=0).repeat(7, axis=1)
    return smooth[:33, :41] // 2 + rng.integers(0, 60, (33, 41, 3), dtype=np.uint8)


def unit(pixels):
    return pixels.astype(np.float32) / np.float32(255)


@pytest.mark.parametrize("channels", CHANNELS)
def test_image_planes_any_channels(pixels, channels):
    image = unit(pixels)
    before = image.copy()
    planes = image_planes(image, channels)
    assert planes.shape == (3, 33, 41)
    assert planes.dtype == np.float32
    assert planes.flags.c_contiguous
    np.testing.assert_array_equal(image, before)
    # Red, green and blue stay where they are.
    mirrored = image_planes(np.ascontiguousarray(image[:, :, ::-1]), channels)
    if channels != "error-level":  # JPEG does not treat colours alike
        np.testing.assert_array_equal(mirrored, planes[::-1])


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 70), (63, 65), (5, 150), (149, 150)])
def test_strips_are_parts_of_the_planes(rng, channels, first, last):
    image = unit(rng.integers(0, 256, (150, 41, 3), dtype=np.uint8))
    planes = PhotoPlanes(image, channels)
    assert planes.shape == (3, 150, 41)
    expected = image_planes(image, channels)[:, first:last]
    np.testing.assert_array_equal(planes.strip(first, last), expected)


def test_rgb_is_the_photo(pixels):
    image = unit(pixels)
    np.testing.assert_array_equal(image_planes(image, "rgb").transpose(1, 2, 0), image)


def test_laplacian_is_four_times_a_pixel_less_its_neighbours(pixels):
    image = unit(pixels)
    # The border is a mirror: the pixel behind the first is the second.
    wide = np.pad(image.astype(np.float64), ((1, 1), (1, 1), (0, 0)), mode="reflect")
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    found = image_planes(image, "laplacian").transpose(1, 2, 0)
    np.testing.assert_allclose(found, around - 4 * image, atol=1e-6)


def test_error_level_is_what_jpeg_takes_away(pixels):
    found = image_planes(unit(pixels), "error-level").transpose(1, 2, 0)
    expected = (pixels.astype(np.float64) - recompress(pixels, 90)) / 255
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_error_level_is_small_where_the_photo_was_compressed_before(pixels):
    fresh = np.abs(image_planes(unit(pixels), "error-level")).mean()
    again = np.abs(image_planes(unit(recompress(pixels, 90)), "error-level")).mean()
    assert again < 0.5 * fresh


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


def test_unknown_channels(pixels):
    with pytest.raises(ValueError, match="channels='hsv' must be one of error-level, laplacian"):
        image_planes(unit(pixels), "hsv")
