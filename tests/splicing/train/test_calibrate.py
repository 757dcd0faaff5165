from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from cpcapp.splicing import SpliceLocalizer, load_model
from cpcapp.splicing.decide.region import extract_borders
from cpcapp.splicing.decide.verdict import WITHOUT_SIGN, feature_names
from cpcapp.splicing.make.calibration_photos import calibration_photos
from cpcapp.splicing.measure.measure import measure
from cpcapp.splicing.photo.jpeg import encode_jpeg
from cpcapp.splicing.photo.samples import Sample, SourcePhoto, photos_from
from cpcapp.splicing.presets import PRESETS
from cpcapp.splicing.train.calibrate import (
    CalibrationPhoto,
    calibrate,
    compare_with,
    learn_calibration,
    measure_photos,
    score_weights,
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
    assert learned.table.ratio[-1] > 1.0 > learned.table.ratio[0]
    assert 20 <= len(learned.genuine["training"]) <= 24  # what was made too small is left out
    p = {True: [], False: []}
    for photo in calibration_photos(sources, 40, seed=7):
        p_value = localizer.localize(photo.image).p_value
        p[photo.authentic].append(1.0 if p_value is None else p_value)
    assert np.mean(np.array(p[True]) <= 0.1) <= 0.3
    assert np.mean(p[False]) < np.mean(p[True])


def test_photos_are_compared_with_the_collections_that_are_given(sources, learned_alone):
    """Each genuine photo scores what `localize` says of it; no score is learned from them."""
    genuine = [sample for sample in calibration_photos(sources, 16, seed=9) if sample.authentic]
    genuine = [sample for sample in genuine if min(sample.image.shape[:2]) >= 64][:6]
    small = Sample("small", True, partial(scene, 0, 40, 40))
    collections = {"one": genuine[:3], "two": [*genuine[3:], small], "none": [small]}
    collections["one"].append(Sample("gone", True, _broken))
    photos = calibration_photos(sources, 48, seed=1)
    found = calibrate(load_model("filters"), photos, genuine=collections, jobs=1)
    np.testing.assert_array_equal(found.weights, learned_alone.weights)
    assert {name: len(scores) for name, scores in found.genuine.items()} == {"one": 3, "two": 3}
    scores = [localizer_with(learned_alone).localize(photo.photo).score for photo in genuine]
    np.testing.assert_allclose([*found.genuine["one"], *found.genuine["two"]], scores)
    alone = compare_with(load_model("filters"), learned_alone, {"one": genuine[:3]})
    np.testing.assert_array_equal(alone.genuine["one"], found.genuine["one"])


def test_jobs_do_not_change_the_result(sources, learned_alone):
    photos = calibration_photos(sources, 48, seed=1)
    found = calibrate(load_model("filters"), photos, jobs=3)
    assert found.to_dict() == learned_alone.to_dict()


def test_too_few_photos_give_regions_but_no_verdict(sources):
    learned = calibrate(load_model("filters"), calibration_photos(sources, 6))
    found = localizer_with(learned).localize(scene(3))
    assert found.region is not None
    assert found.rank is None
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
    borders = (np.array([0], np.int32), np.array([1], np.int32))
    nothing = np.zeros((2, 1)), np.zeros(2), np.zeros((0, 0))
    for authentic in (True, False):
        for _ in range(n):
            features = np.array([rng.normal() + (0.0 if authentic else 2.0), 0.0, -3.0, 0.0])
            photos.append(
                CalibrationPhoto(
                    np.array([authentic]),
                    *(pair.repeat(250) for pair in borders),
                    np.log(rng.gamma(np.repeat([2.0, 1.0], [50, 200]))).astype(np.float32),
                    np.arange(250) < (0 if authentic else 50),
                    *nothing,
                    np.full(2, 5000.0),
                    np.array([0.0, 0.0 if authentic else 5000.0]),
                    features,
                )
            )
    return photos


def test_the_table_is_learned_at_seams_and_elsewhere(rng):
    """``log Γ(x; 2)/Γ(x; 1) = log x``, of values that are logarithms; no prior is in it."""
    photos = [photo for photo in measured_photos(rng, 60) if not photo.authentic]
    found = learn_calibration(photos, PRESETS["filters"]).table
    x = np.array([-0.5, 0.0, 0.5, 1.0])
    np.testing.assert_allclose(found(x), x, atol=0.25)


@pytest.mark.parametrize(("n", "judges"), [(19, False), (20, True)])
def test_twenty_photos_of_each_kind_are_enough_to_judge(n, judges, rng):
    learned = learn_calibration(measured_photos(rng, n), PRESETS["filters"])
    assert learned.can_judge == judges
    assert (learned.n_spliced, learned.n_authentic) == (n, n)


@pytest.mark.parametrize(("network", "ridge"), [(False, 0.02), (True, 0.5)])
def test_the_weights_are_fishers_direction_with_a_ridge(network, ridge):
    """``d / (1 + ridge) v`` for features without correlation, ``v`` their variance."""
    n = len(feature_names(network))
    scale = np.arange(1.0, n + 1.0)
    corners = np.concatenate([np.eye(n), -np.eye(n)]) * scale
    found = score_weights(corners + scale, corners, network=network)
    variance = corners.var(axis=0, ddof=1)
    np.testing.assert_allclose(found, scale / ((1.0 + ridge) * variance), rtol=1e-6)


@pytest.mark.parametrize("network", [False, True])
def test_evidence_never_counts_against_a_splice(rng, network):
    names = feature_names(network)
    authentic = rng.normal(size=(400, len(names)))
    # The last feature follows the first one, so that plain Fisher would subtract it.
    authentic[:, -1] += authentic[:, 0]
    spliced = authentic + np.where(np.arange(len(names)) == 0, 4.0, 0.5)
    spliced[:, 1:-1] -= 1.0
    plain = np.linalg.solve(np.cov(authentic.T), (spliced - authentic).mean(axis=0))
    assert plain[-1] < 0.0
    found = dict(zip(names, score_weights(spliced, authentic, network=network), strict=True))
    assert found["peak"] > 0.0
    for name, weight in found.items():
        if name in WITHOUT_SIGN:
            assert weight < 0.0  # says what kind of photo it is
        else:
            assert weight >= 0.0
    assert found["opposite_phase"] == found["seam"] == 0.0


# -- with a network ---------------------------------------------------------------------------


def assert_same_photos(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for mine, its in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, its)
            assert mine.dtype == its.dtype


@pytest.fixture(scope="module")
def measured_by_network(sources):
    photos = calibration_photos(sources, 8, seed=5)
    return photos, measure_photos(network_localizer(calibrated=False), photos)


@pytest.mark.parametrize("kind", ["network", "filters"])
def test_what_is_measured_survives_a_checkpoint(measured_by_network, tmp_path, monkeypatch, kind):
    samples, expected = measured_by_network
    localizer = network_localizer(calibrated=False)
    if kind == "filters":
        localizer = load_model("filters")
        expected = measure_photos(localizer, samples)
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


def test_photos_of_which_none_can_be_read_survive_a_checkpoint(tmp_path):
    checkpoint, gone = Checkpoint(tmp_path / "run", "mine"), Sample("gone", True, _broken)
    for _ in range(2):
        assert measure_photos(load_model("filters"), [gone], checkpoint=checkpoint) == []


def _stop():
    raise KeyboardInterrupt


def test_what_is_kept_of_a_photo_gives_its_cut(measured_by_network):
    """And the mask says which superpixels were pasted, and which border pixels are at a seam."""
    samples, photos = measured_by_network
    model = network_localizer()
    learned, options = model.calibration, model.preset.regions
    for sample, photo in zip(samples, photos, strict=True):
        borders = extract_borders(measure(sample.photo, model), options)
        expected, _, _ = borders.find_cut(learned.table, learned.traces, options)
        found, _, _ = photo.borders.find_cut(learned.table, learned.traces, options)
        np.testing.assert_array_equal(found.side, expected.side)
        assert (found.seam, found.sides) == (expected.seam, expected.sides)
        assert bool(photo.authentic) == sample.authentic
        mask = np.zeros(borders.labels.shape, bool) if sample.authentic else sample.mask
        inside = np.bincount(borders.labels.ravel(), mask.ravel(), len(borders.area))
        np.testing.assert_array_equal(photo.pasted, inside)
        # Of the pixels about a border pixel some are pasted and others not.
        around = np.stack([np.roll(mask, at, (0, 1)) for at in np.ndindex(3, 3)])
        near = np.roll(around.any(axis=0) & ~around.all(axis=0), (-1, -1), (0, 1))
        rows, columns = np.unravel_index(borders.pixels, mask.shape)
        free = (rows > 0) & (rows < mask.shape[0] - 1)
        free &= (columns > 0) & (columns < mask.shape[1] - 1)
        np.testing.assert_array_equal(photo.at_seam[free], near[rows, columns][free])


def test_with_a_network_sides_and_score_are_learned(measured_by_network):
    """The sides by superpixels that surely lie on one of them."""
    model, photos = network_localizer(calibrated=False), measured_by_network[1]
    few = learn_calibration(photos, model.preset)
    assert not few.can_judge
    pairs = []
    for photo in photos:
        share = photo.pasted / photo.area
        if (share >= 0.95).sum() >= 3:
            inside, outside = photo.vectors[share >= 0.95], photo.vectors[share <= 0.05]
            pairs.append(inside.mean(axis=0) - outside.mean(axis=0))
    assert 1 <= len(pairs) <= 4  # spliced photos
    across = np.mean([np.outer(apart, apart) for apart in pairs], axis=0)
    np.testing.assert_allclose(few.traces.across, across, rtol=1e-9)
    learned = learn_calibration(photos * 5, model.preset)
    assert learned.can_judge
    assert learned.weights.shape == (5,)
    calibrated = SpliceLocalizer(model.preset, (), calibration=learned, network=model.network)
    found = calibrated.localize(scene(3))
    assert found.region.shape == (112, 144)
    assert found.rank.n_photos == 20


def test_traces_that_never_vary_are_no_hindrance(measured_by_network):
    """As that of two compressions, where no photo is a JPEG file."""
    photos = []
    for photo in measured_by_network[1]:
        vectors = photo.vectors.copy()
        vectors[:, -4] = 0.0
        photos.append(photo._replace(vectors=vectors))
    traces = learn_calibration(photos, network_localizer().preset).traces
    assert traces is not None
    assert np.isfinite(traces.filters(traces.within, 6)).all()
