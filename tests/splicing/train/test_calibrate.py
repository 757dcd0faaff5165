from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from cpcapp.splicing import SpliceLocalizer, load_model
from cpcapp.splicing.decide.evidence import log_strength
from cpcapp.splicing.decide.verdict import PatchTail, PhotoFeatures
from cpcapp.splicing.make.calibration_photos import calibration_photos
from cpcapp.splicing.photo.jpeg import encode_jpeg
from cpcapp.splicing.photo.samples import Sample, SourcePhoto, photos_from
from cpcapp.splicing.presets import PRESETS
from cpcapp.splicing.train.calibrate import (
    CalibrationPhoto,
    calibrate,
    evidence_direction,
    fisher_direction,
    learn_calibration,
    measure_photos,
)
from cpcapp.splicing.train.checkpoint import Checkpoint
from trace_networks import network_localizer


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


@pytest.fixture(scope="module")
def learned_alone(sources):
    """What the photos of the seed 1 teach, without threads."""
    return calibrate(load_model("filters"), calibration_photos(sources, 48, seed=1), jobs=1)


def localizer_with(calibration):
    shipped = load_model("filters")
    return SpliceLocalizer(shipped.preset, shipped.banks, calibration=calibration)


def test_sources_can_follow_as_they_are(tmp_path):
    """With what their files say, which no simulated history has."""
    rng = np.random.default_rng(0)
    for number in range(5):
        pixels = rng.integers(60, 190, (80, 96, 3), dtype=np.uint8)
        (tmp_path / f"{number}.jpg").write_bytes(encode_jpeg(pixels, 70 + number))
    photos = photos_from([tmp_path])
    found = calibration_photos(photos, 4, as_they_are=2)
    assert [sample.name for sample in found][4:] == ["source 0.jpg", "source 2.jpg"]
    for sample, quality in zip(list(found)[4:], (70, 72), strict=True):
        assert sample.authentic
        assert sample.photo.jpeg_quality == quality
        np.testing.assert_array_equal(sample.photo.pixels, photos[quality - 70].read())
    with pytest.raises(ValueError, match="as_they_are=6 must be from 0 to 5"):
        calibration_photos(photos, 4, as_they_are=6)


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


def test_photos_that_are_compressed_in_the_end_carry_their_table(sources):
    """Seven of twelve histories end so; a spliced photo and the authentic one after it alike."""
    photos = calibration_photos(sources, 24, seed=1)
    known = [photo.photo.jpeg_table is not None for photo in photos]
    assert known[::2] == known[1::2]
    assert sum(known) == 14
    for photo in photos[4:6]:
        assert photo.photo.jpeg_quality is not None
        np.testing.assert_array_equal(photo.photo.pixels, photo.image)


@pytest.mark.parametrize("level", [255, 383, 384, 64_000])
def test_16_bits_are_rounded_alike_in_spliced_and_authentic_photos(level):
    """Else the rounding would tell them apart. Flat photos stay flat when resized or sharpened."""
    flat = partial(np.full, (80, 96, 3), level, np.uint16)
    photos = calibration_photos([SourcePhoto("one", flat), SourcePhoto("two", flat)], 50)
    plain = [photo for photo in photos if int(photo.name[-5:]) % 24 < 2]  # no camera, no JPEG
    assert [photo.authentic for photo in plain] == [False, True] * 3
    found = {photo.authentic: set(np.unique(photo.image)) for photo in plain}
    assert found[True] == found[False] == {round(level / 257)}


def test_seams_stand_out_and_authentic_photos_get_fair_p_values(sources, learned_alone):
    learned = learned_alone
    localizer = localizer_with(learned)
    (table,) = learned.evidence.tables
    assert table.ratio[-1] > 1.0 > table.ratio[0]
    assert 20 <= len(learned.authentic) <= 24  # what was made too small is left out
    p = {True: [], False: []}
    for photo in calibration_photos(sources, 40, seed=7):
        p_value = localizer.localize(photo.image).p_value
        p[photo.authentic].append(1.0 if p_value is None else p_value)
    assert np.mean(np.array(p[True]) <= 0.1) <= 0.3
    assert np.mean(p[False]) < np.mean(p[True])


def test_jobs_do_not_change_the_result(sources, learned_alone):
    photos = calibration_photos(sources, 48, seed=1)
    found = calibrate(load_model("filters"), photos, jobs=3)
    assert found.to_dict() == learned_alone.to_dict()


def test_too_few_photos_give_regions_but_no_verdict(sources):
    learned = calibrate(load_model("filters"), calibration_photos(sources, 6))
    found = localizer_with(learned).localize(scene(3))
    assert found.region is not None
    assert found.p_value is None
    assert found.verdict.startswith("can't tell")


def _broken():
    raise OSError("it is gone")


def test_photos_that_can_not_be_read_are_passed_over(sources):
    photos = [*calibration_photos(sources, 6), Sample("gone", True, _broken)]
    learned = calibrate(load_model("filters"), photos)
    assert (learned.n_spliced, learned.n_authentic) == (3, 3)


def test_nothing_is_learned_without_a_splice(sources):
    authentic = [s for s in calibration_photos(sources, 6) if s.authentic]
    assert calibrate(load_model("filters"), authentic) is None


def test_no_photo_is_read_twice(sources):
    """Making one takes longer than all that is measured in it."""
    reads = []

    def counted(sample):
        def read_photo():
            reads.append(sample.name)
            return sample.photo

        return Sample.of_photo(sample.name, read_photo, sample.read_mask)

    photos = [counted(sample) for sample in calibration_photos(sources, 8)]
    calibrate(load_model("filters"), photos, jobs=1)
    assert sorted(reads) == sorted(sample.name for sample in photos)


# -- learning, in closed form ---------------------------------------------------------------


def measured_photos(rng, n=24):
    """As many spliced as authentic photos that are all alike but for their peaks."""
    photos = []
    for authentic in (True, False):
        for _ in range(n):
            peak = rng.normal() + (0.0 if authentic else 2.0)
            photos.append(
                CalibrationPhoto(
                    authentic,
                    log_strength(rng.gamma(2.0, 1.0, (1, 0 if authentic else 50))),
                    log_strength(rng.gamma(1.0, 1.0, (1, 200))),
                    PhotoFeatures(peak, 0.0, -3.0, 0.0, 0.0),
                    (peak - rng.exponential(size=300)).astype(np.float32),
                )
            )
    return photos


def test_the_tail_judges_each_photo_by_the_others(rng):
    """Its z-scores are of the mean and deviation that the scores of all others have."""
    photos = measured_photos(rng)
    learned = learn_calibration(photos, PRESETS["default"])
    authentic = [photo for photo in photos if photo.authentic]
    weight = learned.weights[0]
    scores = np.array([learned.score(photo.features) for photo in authentic])
    np.testing.assert_allclose(learned.authentic[:, -1], scores)
    z_scores = []
    for number, photo in enumerate(authentic):
        others = np.delete(scores, number)
        rest = scores[number] - weight * photo.features.peak
        deviation = others.std(ddof=1) * (1 + 1 / len(others)) ** 0.5
        z_scores.append((weight * photo.strengths + rest - others.mean()) / deviation)
    expected = PatchTail.learn(z_scores)
    np.testing.assert_allclose(learned.patch_tail.z_score, expected.z_score, rtol=1e-6)
    np.testing.assert_allclose(learned.patch_tail.log_survival, expected.log_survival)


def test_a_photo_unlike_all_others_says_nothing_of_the_tail(rng):
    """It has nothing but itself to be compared with."""
    photos = measured_photos(rng)
    strange = photos[0]._replace(
        features=photos[0].features._replace(compression=50.0),
        strengths=photos[0].strengths + np.float32(1e3),
    )
    learned, without = (
        learn_calibration([*first, *photos[1:]], PRESETS["default"]).patch_tail
        for first in ([strange], [strange._replace(strengths=photos[0].strengths)])
    )
    np.testing.assert_array_equal(learned.z_score, without.z_score)


def test_fishers_direction_has_a_ridge_of_a_fiftieth():
    """``d / 1.02 v`` for features without correlation, ``v`` their variance."""
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) * np.array([1.0, 3.0])
    variance = corners.var(axis=0, ddof=1)
    shift = np.array([2.0, 6.0])
    found = fisher_direction(corners + shift, corners)
    np.testing.assert_allclose(found, shift / (1.02 * variance), rtol=1e-6)


def test_squares_are_not_judged_by_a_peak_that_speaks_for_authenticity(rng):
    """Then none of the squares speaks for a splice either."""
    turned = [photo._replace(authentic=not photo.authentic) for photo in measured_photos(rng)]
    learned = learn_calibration(turned, PRESETS["filters"])
    assert learned.weights[0] < 0.0
    assert learned.patch_tail is None


@pytest.mark.parametrize(("n", "judges"), [(19, False), (20, True)])
def test_twenty_photos_of_each_kind_are_enough_to_judge(n, judges, rng):
    learned = learn_calibration(measured_photos(rng, n), PRESETS["default"])
    assert learned.can_judge == judges
    assert (learned.n_spliced, learned.n_authentic) == (n, n)


# -- with a network ---------------------------------------------------------------------------


def test_evidence_never_counts_against_a_splice(rng):
    background = rng.normal(size=(400, 6))
    # The last feature follows the first one, so plain Fisher would subtract it.
    background[:, 5] += background[:, 0]
    target = background + np.array([2.0, 3.0, -3.0, 0.5, 1.0, 1.0])
    assert fisher_direction(target, background)[5] < 0.0
    found = evidence_direction(target, background)
    assert (found >= 0.0).all()
    assert found[[1, 2, 5]].tolist() == [0.0, 0.0, 0.0]
    assert (found[[0, 3, 4]] > 0.0).all()
    # Where nothing speaks for a splice, nothing is counted.
    assert not evidence_direction(background, background + 1.0).any()


def assert_same_photos(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.authentic, one.features) == (other.authentic, other.features)
        for name in ("at_seam", "elsewhere", "strengths"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert (one.trial is None) == (other.trial is None) == one.authentic
        for mine, its in zip(one.trial or (), other.trial or (), strict=True):
            np.testing.assert_array_equal(mine, its)
            assert mine.dtype == its.dtype


@pytest.fixture(scope="module")
def measured_by_network(sources):
    photos = calibration_photos(sources, 8, seed=5)
    return photos, measure_photos(network_localizer(calibrated=False), photos)


def test_what_a_network_measures_survives_a_checkpoint(measured_by_network, tmp_path, monkeypatch):
    samples, expected = measured_by_network
    localizer = network_localizer(calibrated=False)
    monkeypatch.setattr("cpcapp.splicing.train.calibrate._PHOTOS_PER_SAVE", 3)
    checkpoint = Checkpoint(tmp_path / "run", "mine")
    # It stops at the last photo; six are kept.
    stopping = [*samples[:7], Sample("stop", True, _stop)]
    with pytest.raises(KeyboardInterrupt):
        measure_photos(localizer, stopping, jobs=1, checkpoint=checkpoint)
    done = [Sample(sample.name, True, _stop) for sample in samples[:6]]
    found = measure_photos(localizer, [*done, *samples[6:]], jobs=1, checkpoint=checkpoint)
    assert_same_photos(found, expected)
    # Once all are kept none is measured again.
    every = [Sample(sample.name, True, _stop) for sample in samples]
    assert_same_photos(measure_photos(localizer, every, checkpoint=checkpoint), expected)


def _stop():
    raise KeyboardInterrupt


def test_with_a_network_sides_and_weights_are_learned(measured_by_network):
    _, photos = measured_by_network
    model = network_localizer(calibrated=False)
    assert all(photo.at_seam.shape[0] == photo.elsewhere.shape[0] == 2 for photo in photos)
    assert all(len(photo.features.learned) == 2 for photo in photos)
    learned = learn_calibration(photos, model.preset)
    assert len(learned.evidence.tables) == len(learned.evidence.weights) == 2
    assert learned.sides.filters.shape[0] == 8  # four traces, two of JPEG, region and pasted side
    assert 1 <= learned.sides.filters.shape[1] <= 4  # of four spliced photos
    assert learned.evidence.trace_weight > 0.0
    assert not learned.can_judge
    calibrated = SpliceLocalizer(
        model.preset, model.banks, calibration=learned, network=model.network
    )
    assert calibrated.localize(scene(3)).region.shape == (112, 144)


def test_with_a_network_enough_photos_learn_to_judge(measured_by_network):
    """Six weights, and a tail of the squares that the network sees."""
    photos = []
    rng = np.random.default_rng(0)
    for _ in range(10):
        for photo in measured_by_network[1]:
            shift = rng.normal() + (0.0 if photo.authentic else 3.0)
            features = photo.features._replace(
                peak=photo.features.peak + shift,
                mean=0.0,
                level=-3.0,
                compression=0.0,
                learned=tuple(rng.normal(size=2)),
            )
            photos.append(photo._replace(features=features, trial=None))
    learned = learn_calibration(photos, network_localizer().preset)
    assert learned.can_judge
    assert learned.weights.shape == (6,)
    assert learned.weights[0] > 0.0
    assert learned.patch_tail is not None
    assert learned.sides is None  # there was no trial to learn them from
