from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.make.cameras import DEMOSAICING, Camera, demosaic, mosaic

PHASES = [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("method", DEMOSAICING)
class TestDemosaicing:
    def test_keeps_what_the_sensor_saw(self, method, phase, rng):
        light = rng.random((21, 30, 3), dtype=np.float32)
        raw = mosaic(light, phase)
        again = mosaic(demosaic(raw, phase, method), phase)
        np.testing.assert_allclose(again, raw, atol=1e-6)

    def test_colours_that_change_evenly_come_back(self, method, phase):
        y, x = np.mgrid[:40, :40].astype(np.float32)
        light = np.dstack([x / 80 + y / 90, x / 70 + 0.1, y / 60 + 0.05])
        found = demosaic(mosaic(light, phase), phase, method)
        np.testing.assert_allclose(found[6:-6, 6:-6], light[6:-6, 6:-6], atol=1e-5)

    def test_leaves_the_trace_of_its_mosaic(self, method, phase, rng):
        """Noise that was seen and noise that was interpolated vary differently."""
        photo = Camera(phase, method, shot_noise=1e-3).shoot(
            np.full((200, 200, 3), 128, dtype=np.uint8), rng
        )
        noise = photo - photo.mean(axis=(0, 1))
        spread = np.array([noise[r::2, c::2].std(axis=(0, 1)) for r in (0, 1) for c in (0, 1)])
        assert (spread.max(axis=0) > 1.1 * spread.min(axis=0)).any()
        shifted = np.roll(noise, 1, axis=0)
        moved = np.array([shifted[r::2, c::2].std(axis=(0, 1)) for r in (0, 1) for c in (0, 1)])
        assert np.abs(moved - spread).max() > 0.1 * spread.min()


def test_noise_grows_with_light(rng):
    dark, bright = (
        Camera(shot_noise=1e-3, read_noise=0.0).shoot(np.full((100, 100, 3), v, np.uint8), rng)
        for v in (40, 220)
    )
    linear = [(p / 255.0) ** 2.2 for p in (dark, bright)]
    assert linear[1].var() > 5 * linear[0].var()


def test_cameras_differ_and_are_drawn_from_the_seed():
    drawn = [Camera.random(np.random.default_rng(i)) for i in range(30)]
    assert drawn == [Camera.random(np.random.default_rng(i)) for i in range(30)]
    assert {c.phase for c in drawn} == set(PHASES)
    assert {c.demosaicing for c in drawn} == set(DEMOSAICING)


def test_small_photos(rng):
    for shape in ((1, 1), (1, 7), (2, 2), (5, 3)):
        assert Camera().shoot(np.full((*shape, 3), 99, np.uint8), rng).shape == (*shape, 3)
