from __future__ import annotations

import cv2
import numpy as np
import pytest

from cpcapp.splicing.make.cameras import DEMOSAICING, Camera
from cpcapp.splicing.measure.mosaic import (
    MosaicOptions,
    MosaicTrace,
    lattice_contrast,
    mosaic_levels,
    mosaic_trace,
)


def scene(rng, height=200, width=300):
    """Smooth colours with some texture: (height, width, 3), uint8."""
    y, x = np.mgrid[:height, :width]
    smooth = np.dstack([80 + 0.2 * x, 100 + 0.15 * y, 140 - 0.1 * x + 0.1 * y])
    return np.clip(smooth + rng.normal(scale=2.0, size=smooth.shape), 0, 255).astype(np.uint8)


def photo(camera, rng):
    return camera.shoot(scene(rng), rng).astype(np.float32) / 255


@pytest.mark.parametrize("method", DEMOSAICING)
def test_two_phases_of_one_camera_differ_at_the_cut_only(method, rng):
    ours, theirs = (
        photo(Camera(phase, method, shot_noise=3e-4), rng) for phase in ((0, 0), (0, 1))
    )
    spliced = np.where(np.arange(300)[:, None] < 150, ours, theirs)
    contrast = lattice_contrast(spliced)
    assert contrast[:, 140:160].mean() > 8 * contrast[:, 30:70].mean()
    assert contrast[:, 140:160].mean() > 8 * contrast[:, 230:270].mean()


def test_a_photo_of_one_camera_has_none(rng):
    whole = photo(Camera(shot_noise=3e-4), rng)
    spliced = whole.copy()
    spliced[:, 150:] = photo(Camera((1, 1), shot_noise=3e-4), rng)[:, 150:]
    assert lattice_contrast(whole).max() < 0.3 * lattice_contrast(spliced)[:, 140:160].mean()


def test_light_and_texture_are_no_trace(rng):
    """A step in brightness and one in noise that is the same at all places of the lattice."""
    smooth = scene(rng).astype(np.float32) / 255
    smooth[:, 150:] = np.clip(smooth[:, 150:] * 0.6, 0, 1)
    smooth[100:] = np.clip(smooth[100:] + rng.normal(scale=0.01, size=smooth[100:].shape), 0, 1)
    cut = np.where(
        np.arange(300)[:, None] < 150,
        photo(Camera(shot_noise=3e-4), rng),
        photo(Camera((1, 1), shot_noise=3e-4), rng),
    )
    assert lattice_contrast(smooth).max() < 0.2 * lattice_contrast(cut).max()


def test_a_fainter_trace_of_the_same_camera_is_no_contrast(rng):
    """Half of the photo has more noise, the same at all places of the lattice."""
    whole, other = (photo(Camera(phase, shot_noise=3e-4), rng) for phase in ((0, 0), (0, 1)))
    noisy = whole.copy()
    noisy[:, 150:] += rng.normal(scale=0.004, size=(200, 150, 3)).astype(np.float32)
    statistics = mosaic_trace(noisy).statistics
    lengths = np.linalg.norm(statistics, axis=0)
    assert lengths[:, :40].mean() > 1.5 * lengths[:, -40:].mean() > 0.5
    apart = np.square(statistics[:, 50, 40] - statistics[:, 50, 110]).sum()
    assert lattice_contrast(noisy).max() < 0.2 * apart
    shifted = np.where(np.arange(300)[:, None] < 150, noisy, other)
    assert lattice_contrast(noisy).max() < 0.1 * lattice_contrast(shifted)[:, 140:160].mean()


def test_few_pixels_are_believed_less(rng):
    """Among clipped pixels the same trace is drawn towards nothing."""
    clear = photo(Camera(shot_noise=3e-4), rng)
    hidden = clear.copy()
    hidden[rng.random(clear.shape[:2]) < 0.9] = 1.0
    seen = [np.linalg.norm(mosaic_trace(p).statistics, axis=0).mean() for p in (clear, hidden)]
    assert seen[1] < 0.5 * seen[0]


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (2, 2), (3, 50), (51, 3), (33, 47)])
def test_any_size(shape, rng):
    contrast = lattice_contrast(rng.random((*shape, 3), dtype=np.float32))
    assert contrast.shape == shape
    assert contrast.dtype == np.float32
    assert np.isfinite(contrast).all() and (contrast >= 0).all()


def test_a_photo_without_a_mosaic_has_a_low_level(rng):
    scene = rng.integers(90, 130, (200, 260, 3), dtype=np.uint8)
    shot = Camera(shot_noise=1e-3).shoot(scene, rng).astype(np.float32) / 255
    without = mosaic_levels(mosaic_trace(scene.astype(np.float32) / 255))
    assert mosaic_levels(mosaic_trace(shot)).level > 10 * without.level
    assert mosaic_levels(None) == (0.0, 0.0)


def made_trace(statistics):
    shape = statistics.shape[1:]
    return MosaicTrace(statistics, np.ones(shape, np.float32), np.ones(shape, dtype=bool))


def slow_contrast(statistics, distance):
    """``2(|a||b| - a · b)``, the largest of four directions, cell by cell."""
    _, rows, cols = statistics.shape
    slant = round(distance / 2**0.5)
    steps = ((0, distance), (distance, 0), (slant, slant), (slant, -slant))
    out = np.zeros((4, rows, cols))
    for number, (down, right) in enumerate(steps):
        for row in range(rows):
            for col in range(cols):
                a, b = (
                    statistics[
                        :,
                        min(max(row + sign * down, 0), rows - 1),
                        min(max(col + sign * right, 0), cols - 1),
                    ].astype(float)
                    for sign in (1, -1)
                )
                out[number, row, col] = 2.0 * (np.linalg.norm(a) * np.linalg.norm(b) - a @ b)
    return out


@pytest.mark.parametrize("distance", [2, 3, 14])
def test_the_contrast_is_the_largest_of_four_directions(distance, rng):
    """Against plain loops; each of the four is the largest somewhere."""
    statistics = rng.normal(size=(12, 20, 26)).astype(np.float32)
    image = np.zeros((40, 52, 3), dtype=np.float32)
    found = lattice_contrast(image, made_trace(statistics), MosaicOptions(distance=distance))
    by_direction = slow_contrast(statistics, distance)
    assert set(by_direction.argmax(axis=0).ravel()) == {0, 1, 2, 3}
    largest = by_direction.max(axis=0).astype(np.float32)
    expected = cv2.resize(largest, (52, 40), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_allclose(found, expected, atol=1e-4)
