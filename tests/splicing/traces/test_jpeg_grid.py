from __future__ import annotations

import cv2
import numpy as np
import pytest
from scipy.fft import dctn

from cpcapp.splicing.photos.jpeg import recompress
from cpcapp.splicing.traces.jpeg_grid import grid_strength


@pytest.fixture
def photo(rng):
    """Smooth colours with fine noise: (200, 280, 3), uint8."""
    y, x = np.mgrid[:200, :280]
    scene = np.dstack([120 + 60 * np.sin(x / 23 + y / 31), 90 + y / 4, 128 + 50 * np.cos(x / 17)])
    return np.clip(scene + rng.normal(scale=3.0, size=scene.shape), 0, 255).astype(np.uint8)


def unit(pixels):
    return np.ascontiguousarray(pixels).astype(np.float32) / 255


def test_compression_shows_while_there_is_detail_left(photo):
    before, *after = (
        grid_strength(unit(pixels))
        for pixels in (photo, *(recompress(photo, quality) for quality in (98, 90, 75)))
    )
    assert abs(before) < 0.05
    assert 0.1 < after[0] < after[1]
    assert after[2] > 0.3


def test_it_is_a_ratio_of_cosine_amplitudes(photo):
    """As SciPy computes them."""
    fine = np.add.outer(np.arange(8), np.arange(8)) >= 7
    grey = cv2.cvtColor(unit(recompress(photo, 90)), cv2.COLOR_RGB2GRAY) * 255.0

    def detail(start):
        part = grey[start:, start:]
        height, width = (n // 8 * 8 for n in part.shape)
        blocks = part[:height, :width].reshape(height // 8, 8, width // 8, 8).swapaxes(1, 2)
        return np.median(np.abs(dctn(blocks, axes=(2, 3), norm="ortho")[..., fine]).mean(axis=-1))

    wanted = np.log((detail(4) + 0.05) / (detail(0) + 0.05))
    assert grid_strength(unit(recompress(photo, 90))) == pytest.approx(wanted, abs=1e-4)


def test_a_crop_or_another_size_hides_it(photo):
    compressed = recompress(photo, 85)
    clear = grid_strength(unit(compressed))
    assert grid_strength(unit(compressed[4:, 4:])) == pytest.approx(-clear, abs=0.2)
    smaller = cv2.resize(compressed, None, fx=0.8, fy=0.8, interpolation=cv2.INTER_AREA)
    assert abs(grid_strength(unit(smaller))) < 0.1 * clear


def test_of_a_large_photo_a_part_is_enough(photo):
    compressed = recompress(np.tile(photo, (8, 8, 1)), 85)
    assert grid_strength(unit(compressed)) == pytest.approx(
        grid_strength(unit(compressed[:800, :1120])), abs=0.05
    )


@pytest.mark.parametrize("shape", [(1, 1), (9, 30), (15, 15), (16, 16), (17, 40), (64, 23)])
def test_any_size(shape, rng):
    assert np.isfinite(grid_strength(rng.random((*shape, 3), dtype=np.float32)))
    assert grid_strength(np.zeros((*shape, 3), dtype=np.float32)) == 0.0
