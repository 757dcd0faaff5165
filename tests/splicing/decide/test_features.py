from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.decide.features import (
    PhotoFeatures,
    patch_strengths,
    seam_strengths,
)
from cpcapp.splicing.decide.verdict_options import VerdictOptions
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.measure.boundary import BoundaryMap
from cpcapp.splicing.measure.mosaic import MosaicLevels, mosaic_levels, mosaic_trace
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.photo.jpeg import recompress
from cpcapp.splicing.photo.jpeg_grid import grid_strength

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
