from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.decide.calibration import Calibration, student_tail
from cpcapp.splicing.decide.evidence import LikelihoodTable, SeamEvidence
from cpcapp.splicing.decide.features import PhotoFeatures, patch_strengths
from cpcapp.splicing.decide.hot_spots import PatchTail
from cpcapp.splicing.decide.side_contrast import SideContrast
from cpcapp.splicing.decide.verdict_options import VerdictOptions
from cpcapp.splicing.measure.boundary import BoundaryMap
from cpcapp.splicing.measure.mosaic import MosaicLevels
from cpcapp.splicing.result import Localization

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


def measure(boundary):
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

    measured = [measure(photo()) for _ in range(60)]
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
    shown = [hot_spots(boundary, *measure(boundary)).any() for boundary in authentic]
    assert np.mean(shown) <= 0.2
    boundary = photo()
    features, _ = measure(boundary)
    boundary.map[100:140, :] = 4000.0 / boundary.scale
    found = hot_spots(boundary, features, measure(boundary)[1])
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
