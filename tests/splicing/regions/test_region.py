from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.boundary import BoundaryMap
from cpcapp.splicing.making.cameras import Camera
from cpcapp.splicing.regions.evidence import SeamEvidence, relative_strength
from cpcapp.splicing.regions.region import MIN_REGION_SIDE, find_region
from cpcapp.splicing.regions.side_statistics import side_statistics
from cpcapp.splicing.regions.superpixels import superpixels
from cpcapp.splicing.traces.mosaic import MosaicTrace, mosaic_levels, mosaic_trace

RULE = SeamEvidence(np.log([0.02, 0.2]), np.array([-3.0, 3.0]))


def square(height=200, width=300, box=(60, 140, 90, 210)):
    """A grey photo with a lighter part, and the map of its seam."""
    photo = np.full((height, width, 3), 0.35, dtype=np.float32)
    top, bottom, left, right = box
    photo[top:bottom, left:right] = 0.65
    mask = photo[:, :, 0] > 0.5
    seam = np.zeros((height, width), dtype=np.float32)
    seam[top - 2 : bottom + 2, left - 2 : right + 2] = 1.0
    seam[top + 2 : bottom - 2, left + 2 : right - 2] = 0.0
    return photo, seam, mask


def agreement(found, mask):
    inside = found > 0.5
    return (inside & mask).sum() / (inside | mask).sum()


def test_a_closed_seam_gives_its_inside():
    photo, seam, mask = square()
    found = find_region(photo, BoundaryMap(seam, 1.0), None, RULE)
    assert agreement(found.map, mask) > 0.95
    assert found.map.dtype == np.float32
    assert 0.0 <= found.map.min() <= found.map.max() <= 1.0


def test_a_gap_in_the_seam_is_closed():
    photo, seam, mask = square()
    seam[:, 140:160] = 0.0
    assert agreement(find_region(photo, BoundaryMap(seam, 1.0), None, RULE).map, mask) > 0.95


def test_no_seam_no_region():
    photo, seam, _ = square()
    found = find_region(photo, BoundaryMap(0.0 * seam, 1.0), None, RULE)
    assert not found.map.any()
    assert found.cut.evidence == 0.0


def test_the_smaller_part_is_called_pasted():
    photo, seam, mask = square(box=(20, 180, 30, 270))
    assert mask.mean() > 0.5
    assert agreement(find_region(photo, BoundaryMap(seam, 1.0), None, RULE).map, ~mask) > 0.9


def test_two_cameras_are_told_apart_without_any_seam(rng):
    """By the mosaic alone, whose windows are 48 pixels wide: the border is not exact."""
    scene = np.full((256, 384, 3), 110, dtype=np.uint8)
    ours = Camera((0, 0), "bilinear", shot_noise=1e-3).shoot(scene, rng)
    theirs = Camera((1, 1), "bilinear", shot_noise=1e-3).shoot(scene, rng)
    mask = np.zeros((256, 384), dtype=bool)
    mask[64:192, 96:240] = True
    photo = np.where(mask[:, :, None], theirs, ours).astype(np.float32) / 255
    nowhere = np.zeros(mask.shape, dtype=np.float32)
    faint = SeamEvidence(np.log([0.02, 0.2]), np.array([-0.2, 3.0]), prior=0.0)
    found = find_region(photo, BoundaryMap(nowhere, 1.0), mosaic_trace(photo), faint)
    assert agreement(found.map, mask) > 0.6
    alone = find_region(ours.astype(np.float32) / 255, BoundaryMap(nowhere, 1.0), None, faint)
    assert found.cut.sides > alone.cut.sides


def test_the_boundary_is_drawn_to_the_border_of_the_region():
    photo, seam, _ = square()
    seam[20:24, 20:80] = 0.8  # an edge elsewhere
    found = find_region(photo, BoundaryMap(seam, 1.0), None, RULE)
    assert found.boundary.max() == pytest.approx(1.0)
    assert found.boundary[100, 90] > 4 * found.boundary[22, 50]


def test_a_large_photo_is_looked_at_smaller():
    photo, seam, mask = square(1500, 2000, (500, 1000, 600, 1400))
    found = find_region(photo, BoundaryMap(seam, 1.0), None, RULE)
    assert found.map.shape == (1500, 2000)
    assert agreement(found.map, mask) > 0.95


@pytest.mark.parametrize("shape", [(8, 8), (MIN_REGION_SIDE - 1, 500), (1, 1)])
def test_a_small_photo_has_no_region(shape):
    found = find_region(
        np.zeros((*shape, 3), np.float32), BoundaryMap(np.ones(shape, np.float32), 1.0), None, RULE
    )
    assert found.map.shape == shape
    assert not found.map.any()


def test_statistics_have_mean_0_and_covariance_1_over_the_photo(rng):
    scene = rng.integers(90, 130, (200, 260, 3), dtype=np.uint8)
    photo = Camera(shot_noise=1e-3).shoot(scene, rng).astype(np.float32) / 255
    labels, count = superpixels(photo)
    found = side_statistics(mosaic_trace(photo), labels, count)
    assert found.total.shape == (count, 6)
    np.testing.assert_allclose(found.total.sum(axis=0), 0.0, atol=1e-6 * found.pixels.sum())
    means = found.total[found.pixels > 0] / found.pixels[found.pixels > 0, None]
    assert (means.var(axis=0) <= 1.0 + 1e-6).all()


def test_a_photo_without_a_mosaic_has_a_low_level(rng):
    scene = rng.integers(90, 130, (200, 260, 3), dtype=np.uint8)
    shot = Camera(shot_noise=1e-3).shoot(scene, rng).astype(np.float32) / 255
    without = mosaic_levels(mosaic_trace(scene.astype(np.float32) / 255))
    assert mosaic_levels(mosaic_trace(shot)).level > 10 * without.level
    assert mosaic_levels(None) == (0.0, 0.0)


def test_of_a_large_photo_a_part_of_the_places_is_enough(rng):
    shot = Camera(shot_noise=1e-3).shoot(np.full((320, 400, 3), 120, np.uint8), rng)
    trace = mosaic_trace(shot.astype(np.float32) / 255)
    large = MosaicTrace(
        np.tile(trace.statistics, (1, 9, 9)),
        np.tile(trace.valid_share, (9, 9)),
        np.tile(trace.usable, (9, 9)),
    )
    assert large.valid_share.size > 2_000_000
    np.testing.assert_allclose(mosaic_levels(large), mosaic_levels(trace), rtol=0.02, atol=0.01)


@pytest.mark.parametrize(
    ("strength", "ratio"),
    [([0.0], [1.0]), ([1.0, 0.0], [0.0, 1.0]), ([0.0, np.nan], [0.0, 1.0]), ([0.0, 1.0], [0.0])],
)
def test_evidence_that_makes_no_sense_is_an_error(strength, ratio):
    with pytest.raises(ValueError, match="strength"):
        SeamEvidence(np.array(strength), np.array(ratio))


def test_a_single_peak_does_not_hide_the_seam(rng):
    """A photo's strengths are compared with each other, not with the one that is highest."""
    strength = rng.gamma(1.0, 0.05, 20_000).astype(np.float32)
    peak = strength.copy()
    peak[0] = 100.0 * strength.max()
    size = 300 * 400
    np.testing.assert_allclose(
        relative_strength(peak, size)[1:], relative_strength(strength, size)[1:], rtol=1e-3
    )


@pytest.mark.parametrize("factor", [0.2, 3.0])
def test_strengths_have_no_unit(rng, factor):
    strength = rng.gamma(1.0, 0.2, 20_000).astype(np.float32)
    found = relative_strength(strength, 90_000)
    np.testing.assert_allclose(relative_strength(strength * factor, 90_000), found, rtol=1e-5)
    assert (found > 1.0).sum() == 1200  # four times the square root of the pixels


def test_strengths_where_there_are_none():
    assert relative_strength(np.zeros(0, np.float32), 100).shape == (0,)
    assert not relative_strength(np.zeros(10, np.float32), 100).any()
