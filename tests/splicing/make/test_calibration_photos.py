from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest

from cpcapp.splicing.make.calibration_photos import Processing
from cpcapp.splicing.photo.samples import SourcePhoto

KERNELS = ("linear", "cubic", "lanczos", "area")


def ramp(dtype=np.uint8):
    most = np.iinfo(dtype).max
    light = np.linspace(0.2, 0.8, 60)[None, :, None] * most
    return np.broadcast_to(light, (41, 60, 3)).astype(dtype)


def halves():
    labels = np.zeros((41, 60), dtype=np.int32)
    labels[:, 30:] = 7
    return [labels]


@pytest.mark.parametrize("interpolation", KERNELS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("size", [0.8, 1.7])
def test_a_photo_keeps_its_light_at_another_size(interpolation, dtype, size):
    photo = Processing(size, interpolation).apply(ramp(dtype))
    assert photo.shape == (round(41 * size), round(60 * size), 3)
    assert photo.dtype == dtype
    across = np.linspace(0.2, 0.8, photo.shape[1]) * np.iinfo(dtype).max
    np.testing.assert_allclose(photo[20, 3:-3, 1], across[3:-3], rtol=0.03)


def test_sharpening_makes_steps_larger_and_flat_parts_stay():
    photo = np.full((40, 60, 3), 80, dtype=np.uint8)
    photo[:, 30:] = 160
    sharp = Processing(sharpening=0.5, radius=1.0).apply(photo)
    assert int(sharp[20, 30, 0]) - int(sharp[20, 29, 0]) > 80
    np.testing.assert_array_equal(sharp[:, :20], photo[:, :20])
    np.testing.assert_array_equal(sharp[:, 40:], photo[:, 40:])


def test_segments_follow_the_photo_and_both_travel_to_other_processes():
    source = SourcePhoto("ramp", ramp, halves)
    developed = pickle.loads(pickle.dumps(Processing(1.37).process_source(source)))
    (labels,) = developed.segments()
    assert labels.shape == developed.read().shape[:2]
    assert set(np.unique(labels)) == {0, 7}
    assert (labels == 7).mean() == pytest.approx(0.5, abs=0.02)
    assert Processing(1.37).process_source(SourcePhoto("ramp", partial(ramp))).segments is None


def test_a_mask_follows_the_photo():
    mask = np.zeros((40, 60), dtype=bool)
    mask[10:20, 30:50] = True
    smaller = Processing(0.5).apply_to_mask(mask)
    assert smaller.dtype == bool
    np.testing.assert_array_equal(np.argwhere(smaller)[[0, -1]], [[5, 15], [9, 24]])


def test_they_vary_and_are_the_same_for_the_same_seed():
    found = [Processing.random(np.random.default_rng(seed)) for seed in range(200)]
    assert found == [Processing.random(np.random.default_rng(seed)) for seed in range(200)]
    crisp = [one for one in found if one.sharpening > 1.0]
    assert len(crisp) / len(found) == pytest.approx(0.2, abs=0.1)
    assert all(0.45 <= one.size <= 0.8 and one.sharpening <= 2.5 for one in crisp)
    others = [one for one in found if one not in crisp]
    sizes = np.array([one.size for one in others])
    assert sizes.min() >= 0.8
    assert sizes.max() <= 2.3
    assert np.mean(sizes == 1.0) == pytest.approx(0.2, abs=0.1)
    assert np.mean([one.sharpening > 0.0 for one in others]) == pytest.approx(0.35, abs=0.1)
    assert {one.interpolation for one in found} == set(KERNELS)
    smaller = [Processing.random(np.random.default_rng(seed), (0.5, 0.9)) for seed in range(50)]
    plain = [one for one in smaller if one.sharpening <= 1.0]
    assert all(0.5 <= one.size <= 0.9 or one.size == 1.0 for one in plain)


def detail(photo):
    """Mean difference of neighbours in parts of 20 x 25 pixels."""
    steps = np.abs(np.diff(photo[..., 1].astype(float), axis=1, append=photo[:, -1:, 1]))
    return steps.reshape(8, 20, 10, 25).mean(axis=(1, 3))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_photo_out_of_focus_is_blurred_in_parts(dtype, rng):
    photo = rng.integers(0, np.iinfo(dtype).max, (160, 250, 3), dtype=dtype, endpoint=True)
    found = Processing(defocus=2.0, focus=3).apply(photo)
    assert (found.shape, found.dtype) == (photo.shape, dtype)
    left = detail(found) / detail(photo)
    assert left.max() > 0.8  # some parts stay sharp
    assert left.min() < 0.3  # and some do not
    np.testing.assert_array_equal(Processing(defocus=2.0, focus=3).apply(photo), found)
    elsewhere = detail(Processing(defocus=2.0, focus=4).apply(photo)) / detail(photo)
    assert np.abs(elsewhere - left).max() > 0.3


def test_a_third_of_photos_is_out_of_focus():
    drawn = [Processing.random(np.random.default_rng(seed)) for seed in range(400)]
    blurred = [one for one in drawn if one.defocus]
    assert 0.28 < len(blurred) / len(drawn) < 0.42
    assert all(0.6 <= one.defocus <= 2.0 for one in blurred)
    assert len({one.focus for one in blurred}) == len(blurred)
