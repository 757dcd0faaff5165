from __future__ import annotations

import cv2
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.measure.classic_traces import (
    QUALITIES,
    block_contrast,
    error_levels,
    noise_levels,
)
from cpcapp.splicing.photo.jpeg import recompress


@pytest.fixture(scope="module")
def photo():
    """Resized, so that it has no grid of its own: (448, 448, 3)."""
    (pixels,) = [sample.image for sample in example_photos() if sample.authentic]
    return cv2.resize(pixels, (448, 448), interpolation=cv2.INTER_AREA)


@pytest.fixture
def spliced(photo):
    """JPEG at quality 70, but for a square that was not compressed."""
    pixels = recompress(photo, 70)
    pixels[160:336, 160:352] = photo[160:336, 160:352]
    return pixels


INSIDE = np.zeros((56, 56), dtype=bool)
INSIDE[20:42, 20:44] = True


def test_another_history_stands_out(spliced):
    found = block_contrast(spliced)
    assert found.dtype == np.float32
    assert roc_auc_score(INSIDE.ravel(), found.ravel()) > 0.9


def test_the_sign_follows_what_is_given(spliced):
    found = block_contrast(spliced, once=INSIDE.astype(float))
    assert roc_auc_score(INSIDE.ravel(), found.ravel()) > 0.9
    np.testing.assert_allclose(block_contrast(spliced, once=~INSIDE + 0.0), -found, atol=1e-6)
    # The same everywhere says nothing.
    np.testing.assert_allclose(
        block_contrast(spliced, once=np.full((56, 56), 0.5)), block_contrast(spliced)
    )


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (9, 700), (95, 700), (143, 200), (192, 145)])
def test_any_size(shape, rng):
    """Fewer than 12 tiles are too few."""
    found = block_contrast(rng.integers(0, 256, (*shape, 3), dtype=np.uint8))
    assert found.shape == (shape[0] // 8, shape[1] // 8)
    assert np.isfinite(found).all()
    assert found.any() == (shape[0] // 48 * (shape[1] // 48) >= 12)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_flat_photo_has_none(level):
    assert not block_contrast(np.full((200, 300, 3), level, dtype=np.uint8)).any()


def test_a_grey_photo_and_a_photo_that_is_mostly_flat(photo):
    grey = np.repeat(photo[..., :1], 3, axis=2)
    assert np.isfinite(block_contrast(grey)).all()
    flat = np.full_like(photo, 200)
    flat[:100, :100] = photo[:100, :100]
    assert np.isfinite(block_contrast(flat)).all()


@pytest.fixture
def scene(rng):
    y, x = np.mgrid[:120, :160]
    smooth = np.dstack([120 + 60 * np.sin(x / 23 + y / 31), 90 + y / 4, 128 + 50 * np.cos(x / 17)])
    return np.clip(smooth + rng.normal(scale=4.0, size=smooth.shape), 0, 255).astype(np.uint8)


def test_curves_are_logarithms_of_mean_squares_about_their_mean(scene):
    qualities = (50, 70, 90)
    changes = [scene.astype(float) - recompress(scene, quality) for quality in qualities]
    squares = [(c**2).reshape(15, 8, 20, 8, 3).mean(axis=(1, 3, 4)) for c in changes]
    logs = np.log(np.add(squares, 1 / 12))
    found = error_levels(scene, qualities)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, logs - logs.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(error_levels(scene, [70])[0], logs[1], atol=1e-4)


@pytest.mark.parametrize("quality", [60, 75, 85])
def test_a_ghost_is_where_the_quality_was(scene, quality):
    """A part of another quality, in a scene that is saved without loss."""
    spliced = scene.copy()
    spliced[40:80, 48:112] = recompress(scene, quality)[40:80, 48:112]
    found = error_levels(spliced)[QUALITIES.index(quality)]
    inside = np.zeros(found.shape, dtype=bool)
    inside[5:10, 6:14] = True
    assert found[inside].max() < found[~inside].min()


def test_error_levels_of_16_bits(scene):
    deep = scene.astype(np.uint16) * 257
    np.testing.assert_array_equal(error_levels(deep, [80, 90]), error_levels(scene, [80, 90]))


@pytest.mark.parametrize("shape", [(1, 1), (1, 90), (7, 30), (8, 8), (9, 17), (40, 25)])
@pytest.mark.parametrize("level", [0, 128, 255])
def test_any_size_and_flat(shape, level):
    found = error_levels(np.full((*shape, 3), level, dtype=np.uint8))
    assert found.shape == (len(QUALITIES), shape[0] // 8, shape[1] // 8)
    # All blocks are alike; the mean of a block may be rounded.
    np.testing.assert_allclose(found, np.broadcast_to(found[:, :1, :1], found.shape), atol=1e-5)


def test_a_photo_that_is_longer_than_a_jpeg_may_be(rng):
    strip = rng.integers(0, 256, (8, 66_000, 3), dtype=np.uint8)
    found, end = (error_levels(part, [75])[0] for part in (strip, strip[:, 65_488:]))
    assert found.shape == (1, 8250)
    np.testing.assert_allclose(found[:, -60:], end[:, -60:])


@pytest.mark.parametrize("sigma", [1.0, 4.0, 12.0])
def test_the_level_of_normal_noise(sigma):
    rng = np.random.default_rng(1)
    grey = np.repeat(rng.normal(128, sigma, (320, 400, 1)), 3, axis=2)
    found = noise_levels(np.rint(grey).clip(0, 255).astype(np.uint8))
    # Rounding adds 1/12 to the variance, and to the median of small values somewhat more.
    assert found.mean() == pytest.approx(np.hypot(sigma, 0.29), rel=0.08)


def test_ramps_and_straight_edges_are_no_noise():
    y, x = np.mgrid[:64, :96]
    photo = np.repeat((x + 2 * (y > 30) * 40)[..., None], 3, axis=2).astype(np.uint8)
    assert noise_levels(photo).max() < 0.01


def test_sixteen_bits_are_in_the_same_unit():
    rng = np.random.default_rng(0)
    photo = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    np.testing.assert_allclose(
        noise_levels(photo.astype(np.uint16) * 257), noise_levels(photo), rtol=1e-4
    )


@pytest.mark.parametrize("shape", [(15, 40), (8, 8)])
def test_too_small(shape):
    assert noise_levels(np.zeros((*shape, 3), np.uint8)).size == 0
