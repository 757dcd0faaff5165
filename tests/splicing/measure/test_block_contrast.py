from __future__ import annotations

import cv2
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.measure.block_contrast import (
    _pool,
    _regress_out,
    block_contrast,
    block_vectors,
)
from cpcapp.splicing.photo.jpeg import luminance, recompress


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


def test_tiles_and_their_blocks_share_the_variance(rng):
    """Across and within: total scatter is the sum of both."""
    vectors = rng.normal(size=(14, 19, 3))
    across, within = _pool(vectors)
    assert across.shape == (2 * 3, 3)
    whole = vectors[:12, :18].reshape(-1, 3)
    total = np.cov(whole.T, ddof=0)
    both = np.cov(across.T, ddof=0) + within.T @ within / len(within)
    np.testing.assert_allclose(both, total, atol=1e-12)


def test_content_is_regressed_out(rng):
    content = np.dstack([np.ones((10, 12)), rng.normal(size=(10, 12, 2))])
    vectors = content @ rng.normal(size=(3, 5)) + rng.normal(size=(10, 12, 5))
    left = _regress_out(vectors, content)
    np.testing.assert_allclose(np.einsum("ijk,ijl->kl", content, left), 0.0, atol=1e-10)


def test_vectors_do_not_depend_on_incomplete_blocks(photo):
    whole = block_vectors(photo[:120, :160], luminance(photo[:120, :160]))
    assert whole.shape == (15, 20, 16)
    assert np.isfinite(whole).all()


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


def test_16_bits_are_the_same_photo(spliced):
    deep = spliced.astype(np.uint16) * 257
    np.testing.assert_array_equal(block_contrast(deep), block_contrast(spliced))


def test_bad_input(photo):
    with pytest.raises(ValueError, match=r"pixels of shape \(448, 448\) must be"):
        block_contrast(photo[..., 0])
    with pytest.raises(ValueError, match=r"once has shape \(3, 4\); this photo has \(56, 56\)"):
        block_contrast(photo, once=np.zeros((3, 4)))
