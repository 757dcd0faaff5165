from __future__ import annotations

import numpy as np
import pytest

from cpcapp.splicing.boundary import BoundaryMap
from cpcapp.splicing.making.cameras import Camera
from cpcapp.splicing.regions.evidence import SeamEvidence
from cpcapp.splicing.regions.region import MIN_REGION_SIDE, find_region
from cpcapp.splicing.traces.mosaic import mosaic_trace

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
