from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.cameras import Camera
from cpcapp.splicing.localizer import Localization
from cpcapp.splicing.mosaic_trace import mosaic_trace
from cpcapp.splicing.regions import Seam, SeamEvidence
from cpcapp.splicing.splices import recompress
from cpcapp.splicing.verdict import (
    Calibration,
    Facts,
    PatchTail,
    blockiness,
    patch_strengths,
    significant,
    student_tail,
    words,
)

BLACK = np.zeros((70, 80, 3), dtype=np.float32)


@pytest.fixture
def calibration(rng):
    evidence = SeamEvidence(np.array([-2.0, 0.0]), np.array([-3.0, 3.0]))
    levels, compressions = np.repeat([-3.5, 0.0], 2000), np.tile([0.0, 2.0], 2000)
    scores = rng.normal(size=4000) + 3.0 * (levels == 0.0) - compressions
    known = np.column_stack([np.zeros(4000), levels, compressions, scores])
    tail = PatchTail.learn([rng.normal(size=500) for _ in range(50)])
    return Calibration(evidence, np.array([2.0, -0.5, -0.6, 1.0]), known, tail)


def of_score(score, level=-3.5, compression=0.0):
    """Facts to which the calibration's weights give a score."""
    return Facts((score + 0.6 * level) / 2.0, 0.0, level, 0.0, compression)


def test_the_score_is_a_sum_of_what_tells(calibration):
    facts = Facts(5.0, 1.0, -2.0, 0.1, 3.0)
    assert calibration.score(facts) == pytest.approx(2 * 5 - 0.5 * 1 + 0.6 * 2 + 0.1)
    assert calibration.score(of_score(2.0, -1.0, 9.0)) == pytest.approx(2.0)


def test_a_photo_is_compared_with_photos_like_it(calibration):
    """A score of 2 is rare without a mosaic, and common where scores are 3 higher."""
    p = [calibration.p_value(of_score(2.0, level)) for level in (-3.5, 0.0)]
    assert p[0] == pytest.approx(0.070, abs=0.01)  # Student's, not the normal 0.023
    assert p[1] == pytest.approx(0.80, abs=0.06)
    compressed = calibration.p_value(of_score(0.0, -3.5, 2.0))
    assert compressed == pytest.approx(p[0], abs=0.01)


def test_p_values_of_authentic_photos_are_careful(calibration, rng):
    """Small ones are rarer than they say, which leaves room for other collections."""
    p = np.array([calibration.p_value(of_score(score)) for score in rng.normal(size=2000)])
    assert 0.0 < np.mean(p <= 0.05) < 0.03
    assert 0.1 < np.mean(p <= 0.2) < 0.2
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.04)
    others = rng.normal(size=2000) + np.repeat(rng.normal(size=200), 10)
    p = np.array([calibration.p_value(of_score(score)) for score in others])
    assert np.mean(p <= 0.05) < 0.07


def test_the_tail_is_students():
    from scipy.stats import t

    for value in (-3.0, -0.5, 0.0, 1.0, 2.5, 8.0, 100.0):
        assert student_tail(value) == pytest.approx(t.sf(value, 3), rel=1e-6)


def test_with_few_photos_the_tail_is_that_of_a_prediction(rng):
    """Of photos of one kind: that of another normal value, mean and variance unknown."""
    from scipy.stats import t

    scores = rng.normal(size=4)
    known = np.column_stack([np.tile([0.0, -3.5, 0.0], (4, 1)), scores])
    evidence = SeamEvidence(np.array([-2.0, 0.0]), np.array([-3.0, 3.0]))
    calibration = Calibration(evidence, np.array([2.0, -0.5, -0.6, 1.0]), known)
    for score in scores.mean() + scores.std() * np.array([-1.0, 0.0, 0.5]):
        far = (score - scores.mean()) / (scores.std(ddof=1) * np.sqrt(1 + 1 / 4))
        assert calibration.p_value(of_score(score)) == pytest.approx(t.sf(far, 3), rel=1e-6)
    assert calibration.p_value(of_score(50.0)) == pytest.approx(1 / 5)


def test_nothing_to_compare_with_is_no_alarm(calibration):
    assert calibration.p_value(of_score(100.0, 50.0)) == 1.0
    assert calibration.p_value(of_score(100.0, -3.5, 9.0)) == 1.0


@given(low=st.floats(-5, 5), more=st.floats(0, 5), level=st.floats(0, 3))
def test_a_higher_score_is_never_likelier(low, more, level):
    known = np.zeros((50, 4))
    known[:, 1], known[:, 3] = np.linspace(0.0, 2.0, 50), np.sin(np.arange(50.0))
    evidence = SeamEvidence(np.array([-2.0, 0.0]), np.array([-3.0, 3.0]))
    calibration = Calibration(evidence, np.array([2.0, -0.5, -0.6, 1.0]), known)
    less, higher = (calibration.p_value(of_score(s, level)) for s in (low, low + more))
    assert higher <= less + 1e-9


def test_calibrations_survive_json(calibration):
    again = Calibration.from_dict(json.loads(json.dumps(calibration.to_dict())))
    facts = Facts(2.0, 1.0, -0.3, 0.1, 0.2)
    assert again.score(facts) == pytest.approx(calibration.score(facts), abs=1e-4)
    assert 0.0 < again.p_value(facts) < 1.0
    assert again.p_value(facts) == pytest.approx(calibration.p_value(facts), abs=1e-3)
    seam = np.random.default_rng(0).random((40, 56)).astype(np.float32)
    shown = Seam(seam, 30.0)
    np.testing.assert_allclose(
        again.patch_p_values(shown, facts), calibration.patch_p_values(shown, facts), rtol=1e-2
    )


@pytest.mark.parametrize(
    "broken",
    [{"weights": [1.0] * 6}, {"authentic": [[1.0, 2.0]]}, {"authentic": [[None] * 4]}],
)
def test_a_damaged_calibration_is_an_error(calibration, broken):
    with pytest.raises((ValueError, TypeError)):
        Calibration.from_dict(calibration.to_dict() | broken)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0.01, 0.5))
def test_places_are_chosen_as_scipy_adjusts_them(values, rate):
    from scipy.stats import false_discovery_control

    p = np.array(values)
    adjusted = false_discovery_control(p)
    clear = np.abs(adjusted - rate) > 1e-9
    np.testing.assert_array_equal(significant(p, rate)[clear], (adjusted <= rate)[clear])


def test_the_tail_of_patches_is_the_share_that_stands_out_more(rng):
    photos = [rng.normal(size=4000) for _ in range(30)]
    tail = PatchTail.learn(photos)
    values = np.concatenate(photos)
    for level in (0.0, 1.6, 3.0):
        assert tail.p_value(np.array([level]))[0] == pytest.approx(
            (values >= level).mean(), rel=0.2
        )
    far = tail.p_value(np.array([5.0, 8.0, 20.0]))
    assert (np.diff(far) < 0.0).all()
    assert far[-1] > 0.0


def test_most_authentic_maps_show_no_place(rng):
    """All that is shown in a photo without a seam is false: the rate is that of such photos."""

    def photo():
        values = np.exp(rng.normal(size=(64, 64))).astype(np.float32).repeat(8, 0).repeat(8, 1)
        return Seam(values / values.max(), float(values.max()))

    evidence = SeamEvidence(np.array([-2.0, 0.0]), np.array([-3.0, 3.0]))
    weights = np.array([1.0, 0.0, 0.0, 0.0])
    photos = [photo() for _ in range(60)]
    facts = [Facts.of(BLACK, one, None) for one in photos]
    known = np.array([[*one.kind, one.peak] for one in facts])
    calibration = Calibration(evidence, weights, known)
    squares = [
        calibration.surprise(seen, patch_strengths(one)).ravel()
        for one, seen in zip(photos, facts, strict=True)
    ]
    calibration = replace(calibration, patch_tail=PatchTail.learn(squares))

    def places_of(seam):
        p_values = calibration.patch_p_values(seam, Facts.of(BLACK, seam, None))
        return Localization(seam.map, seam.map, patch_p_values=p_values).places

    shown = np.mean([places_of(photo()).any() for _ in range(60)])
    assert shown <= 0.2
    seam = photo()
    facts = Facts.of(BLACK, seam, None)
    seam.map[100:140, :] = 4000.0 / seam.scale
    p_values = calibration.patch_p_values(seam, facts)
    places = Localization(seam.map, seam.map, patch_p_values=p_values).places
    assert places[104:136].all()
    assert places[:96].mean() < 0.02


def test_patches_are_compared_as_photos_are(calibration):
    """Each as if it were the peak of the photo."""
    seam = np.zeros((40, 56), dtype=np.float32)
    seam[3, 50] = 1.0
    facts = Facts(0.0, 0.1, -3.4, 0.1, 0.0)
    strengths = patch_strengths(Seam(seam, 1.0))
    assert strengths.shape == (5, 7)
    assert strengths[0, 6] == 0.0 == strengths.max()
    surprise = calibration.surprise(facts, strengths)
    assert student_tail(surprise[0, 6]) == pytest.approx(calibration.p_value(facts), rel=0.01)
    p = calibration.patch_p_values(Seam(seam, 1.0), facts)
    assert p[0, 6] == pytest.approx(calibration.patch_tail.p_value(surprise)[0, 6]) == p.min()
    unlike = facts._replace(compression=9.0)
    assert (calibration.patch_p_values(Seam(seam, 1.0), unlike) == 1.0).all()


def test_facts_are_those_of_the_map_and_the_mosaic(rng):
    values = np.full((800, 800), 0.5, dtype=np.float32)  # 10,000 squares
    values[:8] = 0.75
    values[0, 0] = 1.0
    seam = Seam(values, 20.0)
    mean = 20.0 * (0.5 + 0.25 / 100)
    assert Facts.of(BLACK, seam, None) == pytest.approx(
        (np.log(15), np.log(mean), np.log(0.02), 0.0, 0.0), abs=1e-4
    )
    shifted = [
        Camera(phase, shot_noise=1e-3).shoot(np.full((200, 300, 3), 120, np.uint8), rng)
        for phase in ((0, 0), (0, 1))
    ]
    spliced = np.where(np.arange(300)[:, None] < 220, *shifted)
    photos = [photo.astype(np.float32) / 255 for photo in (shifted[0], spliced)]
    one, two = (Facts.of(photo, seam, mosaic_trace(photo)) for photo in photos)
    assert one.level == pytest.approx(two.level, abs=0.5)
    assert one.opposed < 0.0 < 0.2 < two.opposed


def test_facts_of_a_photo_without_a_seam_are_finite():
    nothing = Seam(np.zeros((70, 80), dtype=np.float32), 0.0)
    assert np.isfinite(Facts.of(BLACK, nothing, mosaic_trace(BLACK))).all()


def test_p_values_have_the_size_of_the_photo():
    edges = np.zeros((21, 30), dtype=np.float32)
    squares = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    found = Localization(edges, edges, patch_p_values=squares)
    assert found.p_map.shape == found.places.shape == (21, 30)
    assert found.p_map[15, 25] == np.float32(squares[1, 3])
    assert Localization(edges, edges).p_map is None
    assert Localization(edges, edges).places is None


def test_blocks_of_jpeg_show(rng):
    y, x = np.mgrid[:240, :320]
    scene = np.dstack([120 + 60 * np.sin(x / 23 + y / 31), 90 + y / 4, 128 + 50 * np.cos(x / 17)])
    scene = np.clip(scene + rng.normal(scale=6.0, size=scene.shape), 0, 255).astype(np.uint8)
    seen = [
        blockiness(photo.astype(np.float32) / 255)
        for photo in (scene, recompress(scene, 60), recompress(scene, 15))
    ]
    assert seen[0] < 1.1
    assert seen[0] < seen[1] < seen[2]


def test_words_never_say_more_than_is_known():
    assert words(0.05, (300, 300), 1.0) == "signs of splicing"
    assert words(0.051, (300, 300), 1.0) == "no signs found"
    assert words(0.9, (300, 300), 9.0) == "can't tell (too compressed)"
    assert words(None, (300, 300), 1.0).startswith("can't tell")
    assert words(0.001, (20, 300), 1.0).startswith("can't tell")
