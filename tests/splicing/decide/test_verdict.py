from __future__ import annotations

import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.decide.evidence import LikelihoodTable, SeamEvidence
from cpcapp.splicing.decide.options import VerdictOptions
from cpcapp.splicing.decide.sides import SideContrast
from cpcapp.splicing.decide.verdict import (
    Calibration,
    PatchTail,
    PhotoFeatures,
    benjamini_hochberg,
    patch_strengths,
    seam_strengths,
    student_tail,
    upsample_patches,
)
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.measure.filters import BoundaryMap
from cpcapp.splicing.measure.mosaic import MosaicLevels, mosaic_levels, mosaic_trace
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.photo.jpeg import grid_strength, recompress
from cpcapp.splicing.result import Localization

BLACK = np.zeros((70, 80, 3), dtype=np.float32)
OPTIONS = VerdictOptions()


NO_MOSAIC = MosaicLevels(0.0, 0.0)


def measure(image, boundary, levels=NO_MOSAIC):
    features, strengths = PhotoFeatures.measure(image, boundary, levels, OPTIONS)
    np.testing.assert_array_equal(strengths, patch_strengths(boundary, 8))
    return features


def test_features_are_those_of_the_map_and_the_mosaic(rng):
    values = np.full((800, 800), 0.5, dtype=np.float32)  # 10,000 squares
    values[:8] = 0.75
    values[0, 0] = 1.0
    boundary = BoundaryMap(values, 20.0)
    mean = 20.0 * (0.5 + 0.25 / 100)
    *numbers, learned = measure(BLACK, boundary)
    assert numbers == pytest.approx([np.log(15), np.log(mean), np.log(0.02), 0.0, 0.0], abs=1e-4)
    assert learned == ()
    shifted = [
        Camera(phase, shot_noise=1e-3).shoot(np.full((200, 300, 3), 120, np.uint8), rng)
        for phase in ((0, 0), (0, 1))
    ]
    spliced = np.where(np.arange(300)[:, None] < 220, *shifted)
    photos = [photo.astype(np.float32) / 255 for photo in (shifted[0], spliced)]
    one, two = (measure(photo, boundary, mosaic_levels(mosaic_trace(photo))) for photo in photos)
    assert one.level == pytest.approx(two.level, abs=0.5)
    assert one.opposite_phase < 0.0 < 0.2 < two.opposite_phase


def test_features_of_a_photo_without_a_seam_are_finite():
    nothing = BoundaryMap(np.zeros((70, 80), dtype=np.float32), 0.0)
    found = measure(BLACK, nothing, mosaic_levels(mosaic_trace(BLACK)))
    assert np.isfinite([*found.score_features, *found.similarity_features]).all()


def test_the_squares_at_the_border_are_smaller():
    values = np.zeros((19, 30), dtype=np.float32)
    values[18, 29], values[8, 8] = 0.5, 0.25
    found = patch_strengths(BoundaryMap(values, 4.0), 8)
    assert found.shape == (3, 4)
    assert found[2, 3] == pytest.approx(np.log(2.0))
    assert found[1, 1] == pytest.approx(np.log(1.0))
    assert (found[0] == found[0, 0]).all()
    assert found[0, 0] == pytest.approx(np.log(1e-6))  # of nothing no logarithm is taken


def test_which_features_count_and_which_compare():
    features = PhotoFeatures(1.0, 2.0, 3.0, 4.0, 5.0)
    assert features.score_features.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert features.similarity_features.tolist() == [2.0, 3.0, 5.0]


def test_the_peak_is_the_quantile_of_the_options(rng):
    boundary = BoundaryMap(rng.random((160, 240), dtype=np.float32), 3.0)
    strengths = patch_strengths(boundary, 8)
    for quantile in (0.5, 0.9, 1.0):
        options = replace(OPTIONS, peak_quantile=quantile)
        found, _ = PhotoFeatures.measure(BLACK, boundary, NO_MOSAIC, options)
        assert found.peak == pytest.approx(np.quantile(strengths, quantile))


def test_levels_and_compression_are_those_measured(rng):
    boundary = BoundaryMap(rng.random((70, 80), dtype=np.float32), 3.0)
    photo = recompress(rng.integers(90, 160, (70, 80, 3), dtype=np.uint8), 80)
    image = photo.astype(np.float32) / 255
    found = measure(image, boundary, MosaicLevels(0.4, 0.3))
    assert found.level == pytest.approx(np.log(0.42))
    assert found.opposite_phase == 0.3
    assert found.compression == grid_strength(image) > 0.3
    assert found.mean == pytest.approx(np.log(3.0 * boundary.map.mean()), rel=1e-5)


@given(height=st.integers(1, 40), width=st.integers(1, 40), size=st.integers(1, 12))
def test_evidence_of_squares_is_the_mean_of_their_pixels(height, width, size):
    """Also of those at the border, which have fewer."""
    rng = np.random.default_rng(height * 41 + width)
    seam = rng.normal(size=(height, width)).astype(np.float32)
    expected = [
        [
            seam[top : top + size, left : left + size].mean(dtype=np.float64)
            for left in range(0, width, size)
        ]
        for top in range(0, height, size)
    ]
    found = seam_strengths(seam, size)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_with_a_network_the_peak_is_its_own(rng):
    """The peak of the filters counts too, and so does the highest evidence for a pasted part."""
    boundary = BoundaryMap(rng.random((70, 80), dtype=np.float32), 3.0)
    seam = rng.normal(size=(70, 80)).astype(np.float32)
    region, pasted = rng.normal(size=(2, 9, 10)).astype(np.float32)
    traces = LearnedTraces(seam, region, pasted, np.zeros((9, 10, 2), np.float32))
    options = replace(OPTIONS, peak_quantile=0.95)
    without, _ = PhotoFeatures.measure(BLACK, boundary, NO_MOSAIC, options)
    found, strengths = PhotoFeatures.measure(BLACK, boundary, NO_MOSAIC, options, traces)
    plain = seam_strengths(seam, options.patch_size)
    np.testing.assert_allclose(strengths, plain - np.median(plain), rtol=0, atol=1e-6)
    assert found.peak == pytest.approx(np.quantile(strengths, 0.95))
    assert found[1:5] == without[1:5]
    blurred = cv2.blur(pasted, (3, 3))  # a single block may be an accident
    above = np.quantile(blurred, 0.95) - np.median(blurred)
    assert found.learned == pytest.approx((above, without.peak))
    assert found.score_features.tolist() == [*found[:4], *found.learned]
    assert found.similarity_features.tolist() == without.similarity_features.tolist()


def test_evidence_that_rises_everywhere_counts_for_nothing(rng):
    """As sharpening does that no photo of the training had: all edges look like seams."""
    boundary = BoundaryMap(rng.random((70, 80), dtype=np.float32), 3.0)
    seam = rng.normal(size=(70, 80)).astype(np.float32)
    region, pasted = rng.normal(size=(2, 9, 10)).astype(np.float32)
    vectors = np.zeros((9, 10, 2), np.float32)
    one, other = (
        PhotoFeatures.measure(
            BLACK,
            boundary,
            NO_MOSAIC,
            OPTIONS,
            LearnedTraces(seam + more, region, pasted + more, vectors),
        )[0]
        for more in (np.float32(0.0), np.float32(5.0))
    )
    np.testing.assert_allclose(one.score_features, other.score_features, rtol=0, atol=1e-5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0.01, 0.5))
def test_squares_are_chosen_as_scipy_adjusts_them(values, rate):
    from scipy.stats import false_discovery_control

    p = np.array(values)
    adjusted = false_discovery_control(p)
    clear = np.abs(adjusted - rate) > 1e-9
    np.testing.assert_array_equal(benjamini_hochberg(p, rate)[clear], (adjusted <= rate)[clear])


def test_the_tail_is_the_share_of_larger_values(rng):
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


def test_maps_have_the_size_of_the_photo():
    edges = np.zeros((21, 30), dtype=np.float32)
    squares = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    found = Localization(edges, edges, patch_p_values=squares)
    assert found.p_map.shape == found.hot_spots.shape == (21, 30)
    assert found.p_map[15, 25] == np.float32(squares[1, 3])
    assert found.hot_spots is found.hot_spots  # computed once
    assert Localization(edges, edges).p_map is None
    assert Localization(edges, edges).hot_spots is None


def test_all_photos_weigh_the_same(rng):
    """A large photo has more squares, but the share is the mean of the photos' shares."""
    large, small = rng.uniform(0.0, 1.0, 8000), rng.uniform(1.0, 2.0, 400)
    tail = PatchTail.learn([large, small])
    for level in (0.4, 1.0, 1.6):
        expected = ((large >= level).mean() + (small >= level).mean()) / 2
        assert tail.p_value(np.array([level]))[0] == pytest.approx(expected, rel=0.1)


def test_the_tail_goes_down_to_some_tens_of_squares(rng):
    """From 0.9 to 20 of all squares, in equal steps of the logarithm."""
    tail = PatchTail.learn([rng.normal(size=1000) for _ in range(10)])
    assert np.exp(tail.log_survival[[0, -1]]) == pytest.approx([0.9, 20 / 10_000])
    np.testing.assert_allclose(np.diff(tail.log_survival, 2), 0.0, atol=1e-9)
    assert len(tail.z_score) == 40


def test_a_value_that_many_squares_share_is_counted_once():
    """Squares of no strength at all have one and the same z-score."""
    same = np.concatenate([np.full(500, -9.0), np.linspace(0.0, 3.0, 500)])
    tail = PatchTail.learn([same, same])
    assert (np.diff(tail.z_score) > 0.0).all()
    assert tail.p_value(np.array([1.5]))[0] == pytest.approx(0.25, rel=0.1)


def test_a_photo_of_one_square_weighs_as_much_as_any():
    """Beyond all other squares half of the photos are left: the tail ends with that square."""
    tail = PatchTail.learn([np.linspace(0.0, 1.0, 1000), np.array([5.0])])
    assert tail.z_score[-1] == 5.0
    assert tail.p_value(np.array([1.0]))[0] == pytest.approx(0.5, rel=0.1)


LINE = PatchTail(np.array([0.0, 1.0, 3.0]), np.array([-0.5, -1.0, -3.0]))


def test_the_tail_is_exponential_between_and_beyond_what_was_learned():
    found = LINE.p_value(np.array([[-0.1, 0.0, 0.5], [1.0, 3.0, 7.0]]))
    expected = np.exp([[0.0, -0.5, -0.75], [-1.0, -3.0, -7.0]])
    np.testing.assert_allclose(found, expected)


def test_the_tail_survives_json():
    again = PatchTail.from_dict(json.loads(json.dumps(LINE.to_dict())))
    np.testing.assert_array_equal(again.z_score, LINE.z_score)
    np.testing.assert_array_equal(again.log_survival, LINE.log_survival)


@pytest.mark.parametrize(
    ("z_score", "log_survival"),
    [
        ([0.0], [-1.0]),
        ([0.0, 1.0], [-1.0]),
        ([[0.0, 1.0]], [[-1.0, -2.0]]),
        ([0.0, 0.0], [-1.0, -2.0]),
        ([0.0, 2.0, 1.0], [-1.0, -2.0, -3.0]),
        ([0.0, 1.0, 2.0], [-1.0, -3.0, -2.0]),
        ([0.0, 1.0], [-1.0, -1.0]),
        ([0.0, np.nan], [-1.0, -2.0]),
        ([0.0, 1.0], [-1.0, -np.inf]),
    ],
)
def test_a_tail_that_makes_no_sense_is_an_error(z_score, log_survival):
    with pytest.raises(ValueError, match="z_score must rise and log_survival fall"):
        PatchTail(np.array(z_score), np.array(log_survival))


def test_hot_spots_of_a_map_keep_its_shape():
    p = np.full((4, 5), 0.9)
    p[1, 2] = p[3, 4] = 1e-4
    np.testing.assert_array_equal(benjamini_hochberg(p), p < 0.5)
    assert not benjamini_hochberg(np.full((4, 5), 0.9)).any()
    assert benjamini_hochberg(np.full((4, 5), 0.9)).shape == (4, 5)
    assert benjamini_hochberg(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, float("nan")])
def test_a_rate_lies_between_0_and_1(rate):
    with pytest.raises(ValueError, match=rf"rate={rate} must be between 0 and 1"):
        benjamini_hochberg(np.array([0.5]), rate)


def test_one_in_twenty_hot_spots_may_be_false():
    """The default rate."""
    p = np.array([0.049, 0.9])
    assert not benjamini_hochberg(p).any()
    assert benjamini_hochberg(np.array([0.024, 0.9])).tolist() == [True, False]
    assert benjamini_hochberg(np.array([0.05])).tolist() == [True]
    assert benjamini_hochberg(np.array([0.0501])).tolist() == [False]


@given(
    rows=st.integers(1, 5), cols=st.integers(1, 5), size=st.integers(2, 9), cut=st.integers(0, 1)
)
def test_a_square_covers_its_pixels(rows, cols, size, cut):
    patches = np.arange(rows * cols, dtype=np.float32).reshape(rows, cols)
    shape = rows * size - cut, cols * size - cut
    y, x = np.indices(shape) // size
    np.testing.assert_array_equal(upsample_patches(patches, shape, size), patches[y, x])


TABLE = LikelihoodTable(np.array([-2.0, 0.0]), np.array([-3.0, 3.0]))
EVIDENCE = SeamEvidence((TABLE,))
WEIGHTS = np.array([2.0, -0.5, -0.6, 1.0])
OPTIONS = VerdictOptions()
ONE_SQUARE = np.zeros((1, 1), dtype=np.float32)


@pytest.fixture
def calibration(rng):
    levels, compressions = np.repeat([-3.5, 0.0], 2000), np.tile([0.0, 2.0], 2000)
    scores = rng.normal(size=4000) + 3.0 * (levels == 0.0) - compressions
    known = np.column_stack([np.zeros(4000), levels, compressions, scores])
    tail = PatchTail.learn([rng.normal(size=500) for _ in range(50)])
    return Calibration(EVIDENCE, WEIGHTS, known, tail)


def with_score(score, level=-3.5, compression=0.0):
    """Features to which the calibration's weights give a score."""
    return PhotoFeatures((score + 0.6 * level) / 2.0, 0.0, level, 0.0, compression)


def p_value(calibration, features):
    return calibration.judge(features, ONE_SQUARE).p_value


def measure_boundary(boundary):
    image = np.zeros((*boundary.map.shape, 3), dtype=np.float32)
    return PhotoFeatures.measure(image, boundary, MosaicLevels(0.0, 0.0), OPTIONS)


def test_the_score_is_a_weighted_sum(calibration):
    features = PhotoFeatures(5.0, 1.0, -2.0, 0.1, 3.0)
    assert calibration.score(features) == pytest.approx(2 * 5 - 0.5 * 1 + 0.6 * 2 + 0.1)
    assert calibration.score(with_score(2.0, -1.0, 9.0)) == pytest.approx(2.0)


def test_a_photo_is_compared_with_similar_ones(calibration):
    """A score of 2 is rare without a mosaic, and common where scores are 3 higher."""
    p = [p_value(calibration, with_score(2.0, level)) for level in (-3.5, 0.0)]
    assert p[0] == pytest.approx(0.070, abs=0.01)  # Student's, not the normal 0.023
    assert p[1] == pytest.approx(0.80, abs=0.06)
    compressed = p_value(calibration, with_score(0.0, -3.5, 2.0))
    assert compressed == pytest.approx(p[0], abs=0.01)


def test_p_values_of_authentic_photos_are_careful(calibration, rng):
    """Small ones are rarer than they say, which leaves room for other collections."""
    p = np.array([p_value(calibration, with_score(score)) for score in rng.normal(size=2000)])
    assert 0.0 < np.mean(p <= 0.05) < 0.03
    assert 0.1 < np.mean(p <= 0.2) < 0.2
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.04)
    others = rng.normal(size=2000) + np.repeat(rng.normal(size=200), 10)
    p = np.array([p_value(calibration, with_score(score)) for score in others])
    assert np.mean(p <= 0.05) < 0.07


def test_the_tail_is_students():
    from scipy.stats import t

    for value in (-3.0, -0.5, 0.0, 1.0, 2.5, 8.0, 100.0):
        assert student_tail(value) == pytest.approx(t.sf(value, 3), rel=1e-6)


def test_with_few_photos_the_tail_is_that_of_a_prediction(rng):
    """Of equal photos: that of another normal value, mean and variance unknown."""
    from scipy.stats import t

    scores = rng.normal(size=4)
    known = np.column_stack([np.tile([0.0, -3.5, 0.0], (4, 1)), scores])
    calibration = Calibration(EVIDENCE, WEIGHTS, known)
    for score in scores.mean() + scores.std() * np.array([-1.0, 0.0, 0.5]):
        far = (score - scores.mean()) / (scores.std(ddof=1) * np.sqrt(1 + 1 / 4))
        assert p_value(calibration, with_score(score)) == pytest.approx(t.sf(far, 3), rel=1e-6)
    assert p_value(calibration, with_score(50.0)) == pytest.approx(1 / 5)


def test_other_collections_vary_more(calibration):
    """A score has to lie so many times as far above the mean for the same p-value."""
    spread = replace(calibration, options=VerdictOptions(collection_spread=1.5))
    similar = calibration.similar_photos(with_score(0.0))
    for score in (-1.0, 0.5, 1.5):
        far = similar.mean + 1.5 * (score - similar.mean)
        expected = p_value(calibration, with_score(score))
        assert p_value(spread, with_score(far)) == pytest.approx(expected, rel=1e-6)
    judged = [c.judge(with_score(2.0), ONE_SQUARE) for c in (calibration, spread)]
    assert judged[1].p_value > judged[0].p_value
    assert judged[1].score == judged[0].score


def test_nothing_to_compare_with_gives_no_p_value(calibration):
    for unlike in (with_score(100.0, 50.0), with_score(100.0, -3.5, 9.0)):
        judged = calibration.judge(unlike, np.zeros((5, 7), dtype=np.float32))
        assert judged.p_value is None
        assert judged.score == pytest.approx(100.0)
        assert (judged.patch_p_values == 1.0).all()


def test_without_authentic_photos_there_is_no_judgement():
    judged = Calibration(EVIDENCE).judge(with_score(3.0), ONE_SQUARE)
    assert judged == (None, None, None)
    assert not Calibration(EVIDENCE).can_judge


@given(low=st.floats(-5, 5), more=st.floats(0, 5), level=st.floats(0, 3))
def test_a_higher_score_is_never_likelier(low, more, level):
    known = np.zeros((50, 4))
    known[:, 1], known[:, 3] = np.linspace(0.0, 2.0, 50), np.sin(np.arange(50.0))
    calibration = Calibration(EVIDENCE, WEIGHTS, known)
    less, higher = (p_value(calibration, with_score(s, level)) for s in (low, low + more))
    assert (less is None) == (higher is None)
    assert less is None or higher <= less + 1e-9


def test_options_decide_which_photos_are_similar(calibration):
    near = with_score(2.0)
    # Photos of compression 2, whose scores are 2 lower, count as much as those of 0 then.
    wide = replace(calibration, options=replace(OPTIONS, compression_width=50.0))
    assert calibration.similar_photos(near).mean == pytest.approx(0.0, abs=0.1)
    assert wide.similar_photos(near).mean == pytest.approx(-1.0, abs=0.1)
    strict = replace(calibration, options=replace(OPTIONS, min_similar=1e5))
    assert p_value(strict, near) is None


def test_calibrations_survive_json(calibration):
    content = json.loads(json.dumps(calibration.to_dict()))
    again = Calibration.from_dict(content, OPTIONS)
    features = PhotoFeatures(2.0, 1.0, -0.3, 0.1, 0.2)
    strengths = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    before, after = (known.judge(features, strengths) for known in (calibration, again))
    assert after.score == pytest.approx(before.score, abs=1e-4)
    assert 0.0 < after.p_value < 1.0
    assert after.p_value == pytest.approx(before.p_value, abs=1e-3)
    np.testing.assert_allclose(after.patch_p_values, before.patch_p_values, rtol=1e-2)


@pytest.mark.parametrize(
    "broken",
    [{"weights": [1.0] * 6}, {"authentic": [[1.0, 2.0]]}, {"authentic": [[None] * 4]}],
)
def test_a_damaged_calibration_is_an_error(calibration, broken):
    with pytest.raises((ValueError, TypeError)):
        Calibration.from_dict(calibration.to_dict() | broken, OPTIONS)


def test_most_authentic_maps_have_no_hot_spot(rng):
    """All that is shown in a photo without a seam is false: the rate is that of such photos."""

    def photo():
        values = np.exp(rng.normal(size=(64, 64))).astype(np.float32).repeat(8, 0).repeat(8, 1)
        return BoundaryMap(values / values.max(), float(values.max()))

    measured = [measure_boundary(photo()) for _ in range(60)]
    known = np.array([[*features.similarity_features, features.peak] for features, _ in measured])
    calibration = Calibration(EVIDENCE, np.array([1.0, 0.0, 0.0, 0.0]), known)
    squares = [
        calibration.square_z_scores(
            features, strengths, calibration.similar_photos(features)
        ).ravel()
        for features, strengths in measured
    ]
    calibration = replace(calibration, patch_tail=PatchTail.learn(squares))

    def hot_spots(boundary, features, strengths):
        p_values = calibration.judge(features, strengths).patch_p_values
        signs = {"p_value": 0.01, "calibrated": True}
        return Localization(boundary.map, boundary.map, patch_p_values=p_values, **signs).hot_spots

    authentic = [photo() for _ in range(60)]
    shown = [hot_spots(boundary, *measure_boundary(boundary)).any() for boundary in authentic]
    assert np.mean(shown) <= 0.2
    boundary = photo()
    features, _ = measure_boundary(boundary)
    boundary.map[100:140, :] = 4000.0 / boundary.scale
    found = hot_spots(boundary, features, measure_boundary(boundary)[1])
    assert found[104:136].all()
    assert found[:96].mean() < 0.02


def test_squares_are_judged_as_photos_are(calibration):
    """Each as if it were the peak of the photo."""
    seam = np.zeros((40, 56), dtype=np.float32)
    seam[3, 50] = 1.0
    features = PhotoFeatures(0.0, 0.1, -3.4, 0.1, 0.0)
    strengths = patch_strengths(BoundaryMap(seam, 1.0), 8)
    assert strengths.shape == (5, 7)
    assert strengths[0, 6] == 0.0 == strengths.max()
    z_score = calibration.square_z_scores(features, strengths, calibration.similar_photos(features))
    judged = calibration.judge(features, strengths)
    assert student_tail(z_score[0, 6]) == pytest.approx(judged.p_value, rel=0.01)
    p = judged.patch_p_values
    assert p[0, 6] == pytest.approx(calibration.patch_tail.p_value(z_score)[0, 6]) == p.min()


@given(seed=st.integers(0, 1000))
def test_similar_photos_have_weighted_mean_and_deviation(seed):
    """Against NumPy's weighted covariance, which has the same correction for uncertain means."""
    rng = np.random.default_rng(seed)
    known = rng.normal(size=(30, 4)) * [1.0, 0.7, 0.25, 2.0]
    calibration = Calibration(EVIDENCE, WEIGHTS, known)
    features = PhotoFeatures(0.5, *rng.normal(scale=0.3, size=2), 0.1, 0.05)
    found = calibration.similar_photos(features)
    seen = np.array([features.mean, features.level, features.compression])
    off = (known[:, :3] - seen) / [1.0, 0.7, 0.25]
    weight = np.exp(-0.5 * (off**2).sum(axis=1))
    if weight.sum() < 4.0:
        assert found is None
        return
    assert found.mean == pytest.approx(np.average(known[:, 3], weights=weight))
    assert found.deviation == pytest.approx(np.cov(known[:, 3], aweights=weight) ** 0.5)
    assert found.effective_count == pytest.approx(weight.sum() ** 2 / (weight**2).sum())


def test_as_many_similar_photos_as_asked_for_are_enough():
    for n, enough in ((3, False), (4, True)):
        known = np.column_stack([np.tile([0.0, -3.5, 0.0], (n, 1)), np.arange(n)])
        assert (p_value(Calibration(EVIDENCE, WEIGHTS, known), with_score(1.0)) is None) != enough


def test_photos_that_all_have_one_score_leave_no_doubt():
    """A deviation of 0 is no division by it."""
    known = np.tile([0.0, -3.5, 0.0, 1.0], (30, 1))
    calibration = Calibration(EVIDENCE, WEIGHTS, known)
    assert p_value(calibration, with_score(1.5)) == pytest.approx(1 / 31)
    assert p_value(calibration, with_score(0.5)) == pytest.approx(1.0)


def test_z_scores_of_other_peaks(calibration):
    """A peak that is higher by one has a score that is higher by its weight."""
    features = with_score(2.0)
    similar = calibration.similar_photos(features)
    peaks = np.array([[features.peak, features.peak + 1.0]])
    found = calibration.square_z_scores(features, peaks, similar)
    spread = similar.deviation * (1 + 1 / similar.effective_count) ** 0.5
    np.testing.assert_allclose(found, [[(2 - similar.mean) / spread, (4 - similar.mean) / spread]])


def test_with_a_network_squares_are_judged_by_their_own_evidence(calibration):
    """What else speaks for a splice in the photo says nothing of where it is."""
    known = replace(calibration, square_offset=0.25)
    strengths = np.array([[0.5, 3.0]])
    similar = known.similar_photos(with_score(2.0))
    quiet, loud = (
        known.square_z_scores(with_score(score), strengths, similar) for score in (2.0, 40.0)
    )
    np.testing.assert_array_equal(quiet, loud)
    expected = similar.z_scores(known.weights[0] * strengths + 0.25)
    np.testing.assert_allclose(quiet, expected)
    again = Calibration.from_dict(known.to_dict(), known.options)
    assert again.square_offset == 0.25


def test_a_model_without_a_tail_shows_no_squares(calibration):
    bare = replace(calibration, patch_tail=None)
    for features in (with_score(2.0), with_score(2.0, 50.0)):
        assert bare.judge(features, ONE_SQUARE).patch_p_values is None
    assert bare.judge(with_score(2.0), ONE_SQUARE).p_value is not None


def test_a_calibration_says_whether_it_can_judge(calibration):
    assert calibration.can_judge
    for part in ("weights", "authentic"):
        missing = replace(calibration, **{part: None})
        assert not missing.can_judge
        assert missing.similar_photos(with_score(1.0)) is None
        assert missing.judge(with_score(1.0), ONE_SQUARE).patch_p_values is None


def test_a_calibration_without_authentic_photos_survives_json():
    bare = Calibration(EVIDENCE, n_spliced=3, n_authentic=2)
    again = Calibration.from_dict(json.loads(json.dumps(bare.to_dict())), OPTIONS)
    assert (again.n_spliced, again.n_authentic) == (3, 2)
    assert (again.weights, again.authentic, again.patch_tail) == (None, None, None)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("weights", np.ones(3), r"weights of shape \(3,\) must be finite, \(4,\)"),
        ("weights", np.ones((4, 1)), "weights of shape"),
        ("weights", np.array([1.0, 1.0, np.nan, 1.0]), "weights of shape"),
        ("authentic", np.ones((5, 3)), r"authentic of shape \(5, 3\) must be finite, \(-1, 4\)"),
        ("authentic", np.ones(4), "authentic of shape"),
        ("authentic", np.full((5, 4), np.inf), "authentic of shape"),
    ],
)
def test_parts_of_a_wrong_shape_are_an_error(part, value, message):
    with pytest.raises(ValueError, match=message):
        Calibration(EVIDENCE, **{part: value})


def test_with_a_network_there_are_six_weights(rng):
    both = SeamEvidence((TABLE, TABLE), (1.0, 0.5))
    weights = np.array([2.0, -0.5, -0.6, 1.0, 0.25, -0.125])
    known = Calibration(both, weights, np.column_stack([np.zeros((30, 3)), rng.normal(size=30)]))
    features = PhotoFeatures(5.0, 1.0, -2.0, 0.1, 3.0, (8.0, 16.0))
    assert known.score(features) == pytest.approx(2 * 5 - 0.5 + 0.6 * 2 + 0.1 + 2.0 - 2.0)
    for evidence, wrong in ((both, weights[:4]), (EVIDENCE, weights)):
        with pytest.raises(ValueError, match="weights of shape"):
            Calibration(evidence, wrong)


def test_what_tells_the_sides_apart_survives_json(rng):
    contrast = SideContrast(rng.normal(size=(5, 2)).round(6), np.array([3.0, 1.5]))
    bare = Calibration(SeamEvidence((TABLE, TABLE), (1.0, 0.5)), sides=contrast)
    again = Calibration.from_dict(json.loads(json.dumps(bare.to_dict())), OPTIONS)
    np.testing.assert_array_equal(again.sides.filters, contrast.filters)
    np.testing.assert_array_equal(again.sides.eigenvalues, contrast.eigenvalues)
    assert again.evidence.weights == (1.0, 0.5)
    assert Calibration.from_dict(Calibration(EVIDENCE).to_dict(), OPTIONS).sides is None
