from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from cpcapp.splicing.measure.error_level import QUALITIES, error_levels, squared_errors
from cpcapp.splicing.photo.jpeg import recompress


@pytest.fixture
def photo(rng):
    y, x = np.mgrid[:120, :160]
    scene = np.dstack([120 + 60 * np.sin(x / 23 + y / 31), 90 + y / 4, 128 + 50 * np.cos(x / 17)])
    return np.clip(scene + rng.normal(scale=4.0, size=scene.shape), 0, 255).astype(np.uint8)


def test_it_is_the_mean_square_of_what_changes(photo):
    change = photo.astype(float) - recompress(photo, 80)
    wanted = (change**2).reshape(15, 8, 20, 8, 3).mean(axis=(1, 3, 4))
    np.testing.assert_allclose(squared_errors(photo, 80), wanted, rtol=1e-4)


def test_curves_are_logarithms_about_their_mean(photo):
    qualities = (50, 70, 90)
    logs = np.log([squared_errors(photo, quality) + 1 / 12 for quality in qualities])
    found = error_levels(photo, qualities)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, logs - logs.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(error_levels(photo, [70])[0], logs[1], atol=1e-5)


@pytest.mark.parametrize("quality", [60, 75, 85])
def test_a_ghost_is_where_the_quality_was(photo, quality):
    """A part of another quality, in a photo that is saved without loss."""
    spliced = photo.copy()
    spliced[40:80, 48:112] = recompress(photo, quality)[40:80, 48:112]
    found = error_levels(spliced)[QUALITIES.index(quality)]
    inside = np.zeros(found.shape, dtype=bool)
    inside[5:10, 6:14] = True
    assert found[inside].max() < found[~inside].min()


def test_all_of_one_history_is_alike(photo):
    file = io.BytesIO()
    Image.fromarray(photo).save(file, "JPEG", quality=85)
    found = error_levels(np.asarray(Image.open(file)))
    assert found[:, 1:-1, 1:-1].std(axis=(1, 2)).max() < 0.5


def test_16_bits_are_the_same_photo(photo):
    deep = photo.astype(np.uint16) * 257
    np.testing.assert_array_equal(error_levels(deep, [80, 90]), error_levels(photo, [80, 90]))


@pytest.mark.parametrize("shape", [(1, 1), (1, 90), (7, 30), (8, 8), (9, 17), (40, 25)])
@pytest.mark.parametrize("level", [0, 128, 255])
def test_any_size_and_flat(shape, level):
    found = error_levels(np.full((*shape, 3), level, dtype=np.uint8))
    assert found.shape == (len(QUALITIES), shape[0] // 8, shape[1] // 8)
    # All blocks are alike; the mean of a block may be rounded.
    np.testing.assert_allclose(found, np.broadcast_to(found[:, :1, :1], found.shape), atol=1e-5)


def test_a_photo_that_is_longer_than_a_jpeg_may_be(rng):
    strip = rng.integers(0, 256, (8, 66_000, 3), dtype=np.uint8)
    found = squared_errors(strip, 75)
    assert found.shape == (1, 8250)
    np.testing.assert_allclose(found[:, -60:], squared_errors(strip[:, 65_488:], 75)[:, -60:])
    assert found.min() > 0.0


def test_bad_input(photo):
    with pytest.raises(ValueError, match=r"pixels of shape \(120, 160\) must be"):
        error_levels(photo[..., 0])
    with pytest.raises(ValueError, match="qualities is empty"):
        error_levels(photo, [])
    with pytest.raises(ValueError, match="quality=101 must be from 1 to 100"):
        error_levels(photo, [101])
