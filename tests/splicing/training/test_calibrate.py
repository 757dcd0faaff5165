from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from cpcapp.splicing import SpliceLocalizer, load_model
from cpcapp.splicing.making.calibration_photos import calibration_photos
from cpcapp.splicing.photos.samples import Sample
from cpcapp.splicing.photos.sources import SourcePhoto
from cpcapp.splicing.training.calibrate import calibrate


def scene(seed, height=112, width=144):
    """Blobs of colour with soft edges and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    light = np.zeros((height, width, 3))
    for _ in range(6):
        row, col, size = rng.uniform(0, height), rng.uniform(0, width), rng.uniform(12, 40)
        inside = 1.0 / (1.0 + np.exp((np.hypot(y - row, x - col) - size) / 2.0))
        light = light * (1 - inside[..., None]) + inside[..., None] * rng.uniform(30, 220, 3)
    return np.clip(light + rng.normal(scale=2.0, size=light.shape), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def sources():
    return [SourcePhoto(f"scene {seed}", partial(scene, seed)) for seed in range(12)]


def localizer_with(calibration):
    shipped = load_model()
    return SpliceLocalizer(shipped.preset, shipped.banks, calibration=calibration)


def test_photos_come_in_pairs_of_spliced_and_authentic(sources):
    photos = calibration_photos(sources, 32, seed=1)
    assert [photo.authentic for photo in photos] == [False, True] * 16
    assert len({photo.name for photo in photos}) == 32
    sizes = {photo.image.shape[:2] for photo in photos}
    assert len(sizes) > 5
    assert (112, 144) in sizes
    assert max(sizes) > (200, 250)
    for photo in photos[:8]:
        assert photo.mask.any() != photo.authentic
        np.testing.assert_array_equal(photo.image, photo.image)


@pytest.mark.parametrize("level", [255, 383, 384, 64_000])
def test_16_bits_are_rounded_alike_in_spliced_and_authentic_photos(level):
    """Else the rounding would tell them apart. Flat photos stay flat when resized or sharpened."""
    flat = partial(np.full, (80, 96, 3), level, np.uint16)
    photos = calibration_photos([SourcePhoto("one", flat), SourcePhoto("two", flat)], 26)
    plain = [photo for photo in photos if int(photo.name[-5:]) % 12 < 2]  # no camera, no JPEG
    assert [photo.authentic for photo in plain] == [False, True] * 3
    found = {photo.authentic: set(np.unique(photo.image)) for photo in plain}
    assert found[True] == found[False] == {round(level / 257)}


def test_other_seeds_give_other_photos(sources):
    one, other = (calibration_photos(sources, 4, seed=seed) for seed in (1, 2))
    assert not np.array_equal(one[0].image, other[0].image)


def test_seams_stand_out_and_authentic_photos_get_fair_p_values(sources):
    learned = calibrate(load_model(), calibration_photos(sources, 48, seed=1))
    localizer = localizer_with(learned)
    assert learned.evidence.ratio[-1] > 1.0 > learned.evidence.ratio[0]
    assert len(learned.authentic) == 24
    p = {True: [], False: []}
    for photo in calibration_photos(sources, 40, seed=7):
        p_value = localizer.localize(photo.image).p_value
        p[photo.authentic].append(1.0 if p_value is None else p_value)
    assert np.mean(np.array(p[True]) <= 0.1) <= 0.3
    assert np.mean(p[False]) < np.mean(p[True])


def test_jobs_do_not_change_the_result(sources):
    found = []
    for jobs in (1, 3):
        photos = calibration_photos(sources, 44, seed=3)
        found.append(calibrate(load_model(), photos, jobs=jobs).to_dict())
    assert found[0] == found[1]


def test_too_few_photos_give_regions_but_no_verdict(sources):
    learned = calibrate(load_model(), calibration_photos(sources, 6))
    found = localizer_with(learned).localize(scene(3))
    assert found.region is not None
    assert found.p_value is None
    assert found.verdict.startswith("can't tell")


def _broken():
    raise OSError("it is gone")


def test_photos_that_can_not_be_read_are_passed_over(sources):
    photos = [*calibration_photos(sources, 6), Sample("gone", True, _broken)]
    learned = calibrate(load_model(), photos)
    assert (learned.n_spliced, learned.n_authentic) == (3, 3)


def test_nothing_is_learned_without_a_splice(sources):
    authentic = [s for s in calibration_photos(sources, 6) if s.authentic]
    assert calibrate(load_model(), authentic) is None


def test_calibrating_changes_no_localizer(sources):
    localizer = load_model()
    before = localizer.calibration
    assert calibrate(localizer, calibration_photos(sources, 6)) is not before
    assert localizer.calibration is before


def test_no_photo_is_read_twice(sources):
    """Making one takes longer than all that is measured in it."""
    reads = []

    def counted(sample):
        def read_image():
            reads.append(sample.name)
            return sample.read_image()

        return Sample(sample.name, sample.authentic, read_image, sample.read_mask)

    photos = [counted(sample) for sample in calibration_photos(sources, 8)]
    calibrate(load_model(), photos, jobs=1)
    assert sorted(reads) == sorted(sample.name for sample in photos)
