from __future__ import annotations

import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.decide.cut import Cut
from cpcapp.splicing.decide.evidence import LikelihoodTable
from cpcapp.splicing.decide.options import VerdictOptions
from cpcapp.splicing.decide.sides import TraceContrast
from cpcapp.splicing.decide.verdict import (
    Calibration,
    Rank,
    cut_features,
    feature_names,
    patch_strengths,
    photo_features,
    seam_strengths,
)
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.measure.filters import BoundaryMap
from cpcapp.splicing.measure.measure import Measured
from cpcapp.splicing.measure.mosaic import MosaicOptions, mosaic_levels, mosaic_trace
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.photo.jpeg import JpegGrid

BLACK = np.zeros((70, 80, 3), dtype=np.float32)
OPTIONS, MOSAIC = VerdictOptions(), MosaicOptions()
TABLE = LikelihoodTable(np.array([-2.0, 0.0]), np.array([-3.0, 3.0]))


def features_of(boundary, image=BLACK, learned=None, options=OPTIONS):
    """What a photo is judged by, by name; of the cut nothing."""
    grid = JpegGrid(None, (0, 0), False)
    measured = Measured(image, boundary, mosaic_trace(image), grid, learned)
    found = photo_features(measured, options, MOSAIC)
    return dict(zip(feature_names(learned is not None)[:-2], found, strict=True))


# -- features without a network ---------------------------------------------------------------


def test_features_are_those_of_the_map():
    values = np.full((800, 800), 0.5, dtype=np.float32)  # 10,000 squares
    values[:8] = 0.75
    values[0, 0] = 1.0
    assert features_of(BoundaryMap(values, 20.0)) == pytest.approx(
        {
            "peak": np.log(15),
            "opposite_phase": 0.0,
            "fineness": np.log(20.0 * (0.5 + 0.25 / 100)),
            "mosaic": np.log(0.02),
        },
        abs=1e-4,
    )


def test_features_are_those_of_the_mosaic(rng):
    shifted = [
        Camera(phase, shot_noise=1e-3).shoot(np.full((200, 300, 3), 120, np.uint8), rng)
        for phase in ((0, 0), (0, 1))
    ]
    spliced = np.where(np.arange(300)[:, None] < 220, *shifted)
    photos = [photo.astype(np.float32) / 255 for photo in (shifted[0], spliced)]
    one, two = (features_of(BoundaryMap(photo[..., 0], 1.0), photo) for photo in photos)
    assert one["mosaic"] == pytest.approx(two["mosaic"], abs=0.5)
    assert one["opposite_phase"] < 0.0 < 0.2 < two["opposite_phase"]
    levels = mosaic_levels(mosaic_trace(photos[1]), MOSAIC)
    assert two["mosaic"] == pytest.approx(np.log(levels.level + 0.02))
    assert two["opposite_phase"] == levels.opposite_phase


def test_features_of_a_photo_without_a_seam_are_finite():
    nothing = BoundaryMap(np.zeros((70, 80), dtype=np.float32), 0.0)
    assert np.isfinite([*features_of(nothing).values()]).all()


def test_the_squares_at_the_border_are_smaller():
    values = np.zeros((19, 30), dtype=np.float32)
    values[18, 29], values[8, 8] = 0.5, 0.25
    found = patch_strengths(BoundaryMap(values, 4.0), 8)
    assert found.shape == (3, 4)
    assert found[2, 3] == pytest.approx(np.log(2.0))
    assert found[1, 1] == pytest.approx(np.log(1.0))
    assert (found[0] == found[0, 0]).all()
    assert found[0, 0] == pytest.approx(np.log(1e-6))  # of nothing no logarithm is taken


@pytest.mark.parametrize("quantile", [0.5, 0.9, 1.0])
def test_the_peak_is_the_quantile_of_the_options(rng, quantile):
    boundary = BoundaryMap(rng.random((160, 240), dtype=np.float32), 3.0)
    found = features_of(boundary, options=replace(OPTIONS, peak_quantile=quantile))
    assert found["peak"] == pytest.approx(np.quantile(patch_strengths(boundary, 8), quantile))


# -- features with a network ------------------------------------------------------------------


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


@pytest.fixture
def traces(rng):
    seam = rng.normal(size=(70, 80)).astype(np.float32)
    region, pasted = rng.normal(size=(2, 9, 10)).astype(np.float32)
    return LearnedTraces(seam, region, pasted, np.zeros((9, 10, 2), np.float32))


def features_by(traces, options=OPTIONS):
    """What the network sees; the boundary map is its own, and counts for nothing."""
    return features_of(BoundaryMap(traces.seam_map(), 1.0), learned=traces, options=options)


def test_with_a_network_peak_and_pasted_part_are_its_own(traces):
    found = features_by(traces, replace(OPTIONS, peak_quantile=0.95))
    plain = seam_strengths(traces.seam, 8)
    # The photo is so small that half of its squares may be edges.
    assert found["peak"] == pytest.approx(np.quantile(plain, 0.95) - np.median(plain), abs=1e-6)
    blurred = cv2.blur(traces.pasted, (3, 3))  # a single block may be an accident
    assert found["pasted"] == pytest.approx(np.quantile(blurred, 0.95) - np.median(blurred))
    assert found["opposite_phase"] == 0.0


def test_evidence_that_rises_everywhere_counts_for_nothing(traces):
    """As sharpening does that no photo of the training had: all edges look like seams."""
    more = replace(traces, seam=traces.seam + np.float32(5), pasted=traces.pasted + np.float32(5))
    assert features_by(more) == pytest.approx(features_by(traces), abs=1e-5)


# -- features of the cut ----------------------------------------------------------------------


def test_evidence_of_a_cut_is_relative_to_the_root_of_the_size():
    cut = Cut(np.array([True, False]), 300.0, 60.0, 90.0)
    assert cut_features(cut, 90_000.0) == pytest.approx([np.log(2.0), np.log(1.2)])
    four_times = Cut(cut.side, 600.0, 120.0, 180.0)
    assert cut_features(four_times, 360_000.0) == pytest.approx(cut_features(cut, 90_000.0))
    against = Cut(cut.side, -300.0, 0.0, 90.0)
    assert cut_features(against, 90_000.0) == cut_features(Cut.nothing(2), 1.0) == [0.0, 0.0]


# -- calibration ------------------------------------------------------------------------------


def calibration_of(**genuine):
    return Calibration(TABLE, np.ones(5), {name: np.array(s) for name, s in genuine.items()})


def test_p_is_the_rank_among_genuine_photos():
    """Of n of which k score as high: (k + 1) / (n + 1)."""
    known = calibration_of(one=np.arange(19.0))
    assert known.rank(18.5) == Rank(0.05, 0, 19)
    assert known.rank(18.0) == Rank(0.10, 1, 19)  # as high counts
    assert known.rank(-1.0) == Rank(1.0, 19, 19)


def test_the_third_of_the_collections_counts_where_most_score_as_high():
    """However many photos they have: all of 9, and half of 10, of six collections."""
    others = {name: np.zeros(20) for name in "abcd"}
    known = calibration_of(phones=np.full(9, 5.0), web=np.repeat([0.0, 5.0], 5), **others)
    assert known.rank(3.0) == (pytest.approx((99 * (1.0 + 0.5) / 2 + 1) / 100), 14, 99)


def test_p_values_of_genuine_photos_are_uniform(rng):
    known = calibration_of(one=rng.normal(size=2000), two=rng.normal(size=300))
    p = np.array([known.rank(score).p_value for score in rng.normal(size=2000)])
    for level in (0.05, 0.15, 0.5, 0.9):
        assert np.mean(p <= level) == pytest.approx(level, abs=0.035)


@given(
    scores=st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=9), min_size=1, max_size=4),
    low=st.floats(-6, 6),
    more=st.floats(0, 5),
)
def test_a_higher_score_is_never_likelier(scores, low, more):
    known = calibration_of(**{str(number): one for number, one in enumerate(scores)})
    less, higher = known.rank(low), known.rank(low + more)
    assert 0.0 < higher.p_value <= less.p_value <= 1.0
    assert higher.n_as_high <= less.n_as_high <= less.n_photos == sum(map(len, scores))


def test_a_calibration_says_whether_it_can_judge():
    whole = calibration_of(one=[1.0])
    assert whole.can_judge
    assert not replace(whole, weights=None).can_judge
    assert not replace(whole, genuine={}).can_judge


@pytest.mark.parametrize("n_features", [None, 4])
def test_calibrations_survive_json(rng, n_features):
    """With what tells sides apart, and without."""
    known = replace(calibration_of(phones=[1.5, 0.25], web=[3.0]), n_spliced=3, n_authentic=2)
    if n_features:
        rows = rng.normal(size=(9, n_features))
        known = replace(known, traces=TraceContrast(np.eye(n_features), rows.T @ rows))
    else:
        known = replace(known, weights=None)
    again = Calibration.from_dict(json.loads(json.dumps(known.to_dict())), OPTIONS)
    assert again.to_dict() == known.to_dict()
    assert (again.n_spliced, again.n_authentic) == (3, 2)
    assert again.can_judge == known.can_judge == bool(n_features)
    assert again.rank(2.0) == known.rank(2.0) == (1.0, 1, 3)
    assert (again.traces is None) == (known.traces is None)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("weights", np.ones(3), r"weights of shape \(3,\) must be one a feature"),
        ("weights", np.ones((5, 1)), r"weights of shape \(5, 1\)"),
        ("weights", np.array([1.0, 1.0, np.nan, 1.0, 1.0]), "weights must be finite"),
        ("weights", np.full(5, 1e10), r"weights must be finite, within ±1e\+09"),
        ("genuine", {"web": np.ones((5, 3))}, r"web of shape \(5, 3\) must be a list of numbers"),
        ("genuine", {"web": np.ones(0)}, r"web of shape \(0,\) must be a list"),
        ("genuine", {"web": np.array([np.inf])}, "web must be finite"),
        ("n_spliced", -1, "n_spliced=-1 must be from 0"),
        ("n_authentic", 10**10, "n_authentic=10000000000 must be from 0"),
    ],
)
def test_calibrations_that_make_no_sense_are_an_error(part, value, message):
    with pytest.raises(ValueError, match=message):
        Calibration(TABLE, **{part: value})


def test_a_collection_may_have_any_name():
    """It hides nothing else that is checked."""
    assert replace(calibration_of(weights=[1.0, 2.0]), n_spliced=1).rank(1.5).n_as_high == 1
    with pytest.raises(ValueError, match="weights must be finite"):
        Calibration(TABLE, np.full(5, np.nan), {"weights": np.ones(2)})
