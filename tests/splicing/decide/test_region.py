from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt

from cpcapp.splicing.decide.evidence import (
    LikelihoodTable,
    SeamEvidence,
    log_strength,
    strength_unit,
)
from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.region import (
    MIN_REGION_SIDE,
    emphasise_border,
    emphasise_odds,
    extract_borders,
    find_region,
    which_side,
)
from cpcapp.splicing.decide.sides import SideContrast, superpixel_vectors
from cpcapp.splicing.decide.superpixels import border_pixels
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.measure.filters import BoundaryMap
from cpcapp.splicing.measure.mosaic import MosaicTrace, mosaic_trace
from cpcapp.splicing.measure.network import LearnedTraces


def rule(strengths, ratios, **settings):
    """Evidence of the filters' strength alone."""
    return SeamEvidence((LikelihoodTable(np.log(strengths), np.array(ratios)),), **settings)


RULE = rule([0.02, 0.2], [-3.0, 3.0])


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
    faint = rule([0.02, 0.2], [-0.2, 3.0], prior=0.0)
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


def rim(photo_shape, box):
    """A photo with a lighter part, and a seam of one pixel's width along its border."""
    top, bottom, left, right = box
    photo = np.full((*photo_shape, 3), 0.3, dtype=np.float32)
    photo[top:bottom, left:right] = 0.7
    seam = np.zeros(photo_shape, dtype=np.float32)
    seam[top:bottom, left:right] = 1.0
    seam[top + 1 : bottom - 1, left + 1 : right - 1] = 0.0
    return photo, seam


@pytest.mark.parametrize("factor", [2.0, 3.0, 4.0])
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_a_narrow_seam_stays_strong_in_a_photo_made_smaller(factor, shift):
    """By averaging alone a seam of one pixel would be as many times fainter."""
    side = 288
    box = (72 + shift, 216 + shift, 60 + shift, 216 + shift)
    photo, seam = rim((side, side), box)
    # So long a seam is expected that the unit of strength is the least one.
    options = RegionOptions(max_pixels=int((side / factor) ** 2), seam_length_factor=1000.0)
    found = extract_borders(photo, BoundaryMap(seam, 1.0), None, options)
    smaller = round(side / factor)
    assert found.labels.shape == (smaller, smaller)
    assert found.strength_unit == options.min_strength_unit
    strength = np.exp(found.measured[0]) * np.float32(found.strength_unit)
    height, width = box[1] - box[0], box[3] - box[2]
    along = np.sort(strength)[::-1][: round(1.5 * (height + width) / factor)]
    assert np.median(along) >= 0.5
    assert strength.max() <= 1.0 + 1e-6


def test_a_photo_up_to_the_limit_is_taken_as_it_is():
    photo, seam = rim((80, 100), (20, 60, 30, 70))
    for limit, shape in ((8000, (80, 100)), (7999, (80, 100)), (5120, (64, 80))):
        options = RegionOptions(max_pixels=limit)
        found = extract_borders(photo, BoundaryMap(seam, 1.0), None, options)
        assert found.labels.shape == shape


def test_strengths_are_those_of_the_stronger_of_two_pixels():
    photo, seam, _ = square()
    found = extract_borders(photo, BoundaryMap(seam, 1.0), None)
    here, there = border_pixels(found.labels)
    np.testing.assert_array_equal(found.pixels, here)
    labels, values = found.labels.ravel(), seam.ravel()
    np.testing.assert_array_equal(found.one, labels[here])
    np.testing.assert_array_equal(found.two, labels[there])
    stronger = np.maximum(values[here], values[there])
    assert found.strength_unit == strength_unit(stronger, seam.size)
    expected = log_strength(stronger / found.strength_unit)
    assert found.measured.shape == (1, len(here))
    np.testing.assert_allclose(found.measured[0], expected, rtol=1e-6)
    assert found.vectors is None
    np.testing.assert_array_equal(found.area, np.bincount(labels))


@pytest.mark.parametrize("mosaic", [False, True])
def test_certainty_is_what_moving_a_superpixel_would_cost(mosaic, rng):
    """``1 - exp(-loss / 40)``, with the loss of each superpixel by moving it alone."""
    photo, seam, _ = square()
    seam[:, 130:150] *= 0.06
    seam += rng.random(seam.shape, dtype=np.float32) * np.float32(0.05)
    trace = None
    if mosaic:
        shape = (100, 150)
        statistics = rng.normal(size=(12, *shape)).astype(np.float32)
        statistics[:, 30:70, 45:105] += 1.0
        trace = MosaicTrace(statistics, np.ones(shape, np.float32), np.ones(shape, bool))
    boundary = BoundaryMap(np.clip(seam, 0, 1), 1.0)
    found = find_region(photo, boundary, trace, RULE)
    extracted = extract_borders(photo, boundary, trace)
    cut, borders, _ = extracted.find_cut(RULE)
    np.testing.assert_array_equal(cut.side, found.cut.side)
    before = borders.cut(cut.side)[0]
    prefers = RULE.mosaic_weight * extracted.statistics.preference(cut.side)
    assert prefers.any() == mosaic
    inside = found.map[cut.side[extracted.labels]].min() > 0.5
    certainties = []
    for number in range(extracted.count):
        moved = cut.side ^ (np.arange(extracted.count) == number)
        loss = before - borders.cut(moved)[0]
        loss += prefers[number] if cut.side[number] else -prefers[number]
        certainty = 1.0 - np.exp(-max(loss, 0.0) / 40.0)
        sign = 1.0 if cut.side[number] == inside else -1.0
        values = found.map[extracted.labels == number]
        np.testing.assert_allclose(values, 0.5 + 0.5 * sign * certainty, atol=1e-5)
        certainties.append(certainty)
    assert min(certainties) < 0.4 < 0.7 < max(certainties)  # not all are as certain


def test_penalised_borders_are_those_the_cut_was_trimmed_by():
    photo, seam, _ = square()
    extracted = extract_borders(photo, BoundaryMap(seam, 1.0), None)
    trimming = replace(RULE, trim_per_pixel=0.75)
    cut, borders, _ = extracted.find_cut(trimming)
    evidence = trimming(extracted.measured)
    across = cut.side[extracted.one] != cut.side[extracted.two]
    assert cut.seam == pytest.approx(evidence[across].sum())
    assert borders.cut(cut.side)[0] == pytest.approx((evidence[across] - 0.75).sum())


def test_which_of_two_equal_parts_is_pasted_is_no_accident():
    """The inside is called pasted up to exactly half of the photo."""
    photo, seam = np.full((96, 128, 3), 0.3, np.float32), np.zeros((96, 128), np.float32)
    photo[:, 64:] = 0.7
    seam[:, 62:66] = 1.0
    found = find_region(photo, BoundaryMap(seam, 1.0), None, RULE)
    labels = extract_borders(photo, BoundaryMap(seam, 1.0), None).labels
    inside = found.cut.side[labels]
    assert inside.mean() == 0.5
    np.testing.assert_array_equal(found.map > 0.5, inside)


def border_distance(side):
    """SciPy's exact distances to the first pixels behind the border."""
    border = np.zeros(side.shape, dtype=bool)
    border[:, 1:] |= side[:, 1:] != side[:, :-1]
    border[1:] |= side[1:] != side[:-1]
    return distance_transform_edt(~border)


@given(seed=st.integers(0, 1000))
def test_the_border_is_emphasised_by_a_gaussian_of_the_distance(seed):
    """``(b + 0.05) exp(-d²/2σ²) + 0.15 b`` over its maximum, with SciPy's exact distances."""
    rng = np.random.default_rng(seed)
    side = np.zeros((40, 50), dtype=bool)
    top, left = rng.integers(5, 20, 2)
    side[top : top + 12, left : left + 18] = True
    boundary = rng.random((40, 50), dtype=np.float32)
    near = np.exp(-(border_distance(side) ** 2) / (2 * 3.0**2))
    expected = (boundary + 0.05) * near + 0.15 * boundary
    found = emphasise_border(boundary, side)
    assert found.dtype == np.float32
    assert found.max() == 1.0
    # OpenCV's distances are exact to a few hundredths of a pixel.
    np.testing.assert_allclose(found, expected / expected.max(), atol=0.02)


def test_the_border_of_a_smaller_copy_is_drawn_larger():
    side = np.zeros((40, 60), dtype=bool)
    side[10:30, 20:40] = True
    found = emphasise_border(np.zeros((80, 120), dtype=np.float32), side)
    assert found.shape == (80, 120)
    assert found[40, 41] > 0.9 > 0.1 > found[40, 60]
    assert found[4, 4] < 0.01


def test_what_the_options_of_the_border_do(rng):
    boundary = rng.random((40, 50), dtype=np.float32)
    side = np.zeros((40, 50), dtype=bool)
    side[:, 25:] = True
    wide = emphasise_border(boundary, side, RegionOptions(border_sigma=50.0, far_weight=0.0))
    expected = boundary + 0.05
    np.testing.assert_allclose(wide, expected / expected.max(), atol=0.15)
    far = emphasise_border(boundary, side, RegionOptions(border_sigma=0.1, far_weight=1.0))
    ratio = far[:, :20] / boundary[:, :20]
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)


def test_without_a_region_the_boundary_is_as_it_was():
    photo, seam, _ = square()
    never = rule([0.02, 0.2], [-3.0, -1.0])
    found = find_region(photo, BoundaryMap(seam, 1.0), None, never)
    assert not found.cut.side.any()
    assert not found.map.any()
    np.testing.assert_array_equal(found.boundary, seam)


def test_a_region_is_sought_from_64_pixels_on():
    photo, seam, _ = square(MIN_REGION_SIDE, 128, (16, 48, 32, 80))
    assert MIN_REGION_SIDE == 64
    assert find_region(photo, BoundaryMap(seam, 1.0), None, RULE).map.any()
    smaller = find_region(photo[1:], BoundaryMap(seam[1:], 1.0), None, RULE)
    assert not smaller.map.any()
    np.testing.assert_array_equal(smaller.boundary, seam[1:])
    assert (smaller.cut.evidence, smaller.cut.length, smaller.cut.side.any()) == (0.0, 0.0, False)


# -- with learned traces ----------------------------------------------------------------------

ODDS = LikelihoodTable(np.array([-4.0, 4.0]), np.array([-4.0, 4.0]))
BOTH = SeamEvidence((RULE.tables[0], ODDS), (0.5, 0.75))


def learned_of(mask, seam, pasted=0.0):
    """Traces that tell the sides apart: 2 inside and -2 outside, and odds for the pasted one."""
    share = mask[: mask.shape[0] // 8 * 8, : mask.shape[1] // 8 * 8]
    share = share.reshape(share.shape[0] // 8, 8, share.shape[1] // 8, 8).mean(axis=(1, 3))
    share = np.pad(share, [(0, -(-side // 8) - side // 8) for side in mask.shape], mode="edge")
    sign = (2.0 * share - 1.0).astype(np.float32)
    vectors = np.stack([2.0 * sign, 0.0 * sign], axis=2)
    return LearnedTraces(
        (8.0 * seam - 4.0).astype(np.float32), 0.0 * sign, np.float32(pasted) * sign, vectors
    )


# Reads the first of the two traces; superpixels of one side differ by 1 in it.
FIRST = SideContrast(np.eye(4)[:, :1], np.array([9.0]))


def test_borders_know_what_the_network_measured():
    photo, seam, mask = square()
    learned = learned_of(mask, seam, 1.5)
    found = extract_borders(photo, BoundaryMap(seam, 1.0), None, learned=learned)
    alone = extract_borders(photo, BoundaryMap(seam, 1.0), None)
    np.testing.assert_array_equal(found.labels, alone.labels)
    assert found.measured.shape == (2, len(found.pixels))
    np.testing.assert_array_equal(found.measured[0], alone.measured[0])
    here, there = border_pixels(found.labels)
    odds = learned.seam.ravel()
    np.testing.assert_array_equal(found.measured[1], np.maximum(odds[here], odds[there]))
    vectors, area = superpixel_vectors(learned, found.labels, found.count, seam.shape)
    np.testing.assert_array_equal(found.vectors, vectors)
    np.testing.assert_array_equal(found.area, area)
    np.testing.assert_array_equal(found.area, alone.area)


def test_a_seam_that_only_the_network_sees_gives_its_inside():
    photo, seam, mask = square()
    learned = learned_of(mask, seam)
    nothing = BoundaryMap(np.zeros_like(seam), 1.0)
    assert agreement(find_region(photo, nothing, None, BOTH, learned=learned).map, mask) > 0.95
    blind = replace(BOTH, weights=(0.5, 0.0))
    assert find_region(photo, nothing, None, blind, learned=learned).map.max() <= 0.5


def test_sides_that_only_traces_tell_apart_are_found():
    """Without any seam, and with borders that speak against one."""
    photo, seam, mask = square()
    learned = learned_of(mask, 0.4 + 0.0 * seam)
    nothing = BoundaryMap(np.zeros_like(seam), 1.0)
    doubtful = SeamEvidence((RULE.tables[0], ODDS), (0.0, 0.1), prior=0.1, trim_per_pixel=0.0)
    told = replace(doubtful, trace_weight=0.05)
    found = find_region(photo, nothing, None, told, learned=learned, contrast=FIRST)
    assert agreement(found.map, mask) > 0.9
    assert found.cut.sides > 0.0 > found.cut.seam
    for rule, contrast in ((doubtful, FIRST), (told, None)):
        blind = find_region(photo, nothing, None, rule, learned=learned, contrast=contrast)
        assert not blind.cut.side.any()
        assert blind.map.max() <= 0.5


def test_the_network_says_which_side_was_pasted():
    """Even the larger one; else it is the smaller one."""
    photo, seam, mask = square()
    boundary = BoundaryMap(seam, 1.0)
    for pasted, expected, rule in (
        (3.0, mask, "network"),
        (-3.0, ~mask, "network"),
        (0.0, mask, "smaller"),
        (-0.4, mask, "smaller"),  # sides differ by 0.8: less than the odds asked for
    ):
        learned = learned_of(mask, seam, pasted)
        found = find_region(photo, boundary, None, BOTH, learned=learned)
        assert agreement(found.map, expected) > 0.95
        assert found.side_rule == rule
    learned = learned_of(mask, seam, -0.4)
    certain = RegionOptions(min_side_odds=0.5)
    found = find_region(photo, boundary, None, BOTH, certain, learned=learned)
    assert (found.side_rule, agreement(found.map, ~mask) > 0.95) == ("network", True)
    assert find_region(photo, boundary, None, RULE).side_rule == "smaller"
    nothing = BoundaryMap(0.0 * seam, 1.0)
    assert find_region(photo, nothing, None, RULE).side_rule is None


def test_the_side_is_told_by_means_over_pixels():
    photo, seam, _ = square()
    extracted = extract_borders(photo, BoundaryMap(seam, 1.0), None)
    n = extracted.count
    side = np.arange(n) < n // 3
    area = np.where(np.arange(n) == 0, 1e6, 1.0)  # one superpixel is nearly all of the inside
    vectors = np.zeros((n, 3))
    vectors[side, -1], vectors[0, -1] = -9.0, 5.0
    known = replace(extracted, area=area, vectors=vectors)
    assert which_side(side, known) == (True, "network")
    assert which_side(~side, known) == (False, "network")
    unknown = replace(known, vectors=None)
    assert which_side(side, unknown) == (False, "smaller")
    assert which_side(~side, unknown) == (True, "smaller")
    # The odds must differ by as much as the options ask for, and by no more.
    vectors[:], vectors[side, -1] = 0.0, 1.0
    assert which_side(side, known) == (True, "network")
    vectors[side, -1] = 0.999
    assert which_side(side, known) == (False, "smaller")
    for everything in (np.ones(n, dtype=bool), np.zeros(n, dtype=bool)):
        assert which_side(everything, known)[1] == "smaller"


def test_the_seam_is_the_networks_probability_raised_along_the_cut(rng):
    """``odds - 0.3 + 2 (2 exp(-d²/2σ²) - 1)`` as a probability, with σ of 5 pixels."""
    side = np.zeros((60, 70), dtype=bool)
    side[20:40, 25:50] = True
    odds = rng.normal(scale=3.0, size=side.shape).astype(np.float32)
    near = np.exp(-(border_distance(side) ** 2) / (2 * 5.0**2))
    raised = odds - 0.3 + 2.0 * (2.0 * near - 1.0)
    found = emphasise_odds(odds, side)
    assert found.dtype == np.float32
    # OpenCV's distances are exact to a few hundredths of a pixel.
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp(-raised)), atol=0.02)
    # What is not cut is neither raised nor lowered.
    for whole in (np.zeros_like(side), np.ones_like(side)):
        expected = 1.0 / (1.0 + np.exp(0.3 - odds))
        np.testing.assert_allclose(emphasise_odds(odds, whole), expected, rtol=1e-5)


def test_what_the_options_of_the_odds_do():
    side = np.zeros((40, 90), dtype=bool)
    side[:, 45:] = True
    odds = np.zeros(side.shape, np.float32)
    at, far = (20, 45), (20, 2)
    plain = emphasise_odds(odds, side, RegionOptions(odds_offset=0.0, odds_emphasis=1.0))
    assert plain[at] == pytest.approx(1 / (1 + np.exp(-1.0)), abs=1e-4)
    assert plain[far] == pytest.approx(1 / (1 + np.exp(1.0)), abs=1e-4)
    flat = emphasise_odds(odds, side, RegionOptions(odds_offset=1.0, odds_emphasis=0.0))
    np.testing.assert_allclose(flat, 1 / (1 + np.exp(1.0)), rtol=1e-5)
    wide = emphasise_odds(odds, side, RegionOptions(odds_sigma=20.0))
    assert wide[20, 30] > emphasise_odds(odds, side)[20, 30]
    small = emphasise_odds(np.zeros((80, 180), np.float32), side)
    assert small.shape == (80, 180)
    assert small[40, 90] > 5 * small[40, 4]


@pytest.mark.parametrize("factor", [0.25, 1.0, 9.0])
def test_traces_weigh_less_in_a_larger_photo_by_the_root_of_its_size(factor):
    """Photos of the size that the weight is given for take it as it is."""
    photo, seam, mask = square()
    learned = learned_of(mask, seam)
    extracted = extract_borders(photo, BoundaryMap(seam, 1.0), None, learned=learned)
    told = replace(BOTH, trace_weight=0.04)
    options = RegionOptions(reference_pixels=round(factor * mask.size))
    sides = extracted.find_cut(told, FIRST, options)[2]
    assert [kind.weight for kind in sides.kinds] == [
        BOTH.mosaic_weight,
        pytest.approx(0.04 * factor**0.5),
    ]


def test_a_large_photo_with_traces_is_looked_at_smaller():
    photo, seam, mask = square(300, 404, (100, 220, 120, 280))
    learned = learned_of(mask, seam, -2.0)
    options = RegionOptions(max_pixels=30_000)
    found = find_region(photo, BoundaryMap(seam, 1.0), None, BOTH, options, learned=learned)
    assert found.map.shape == found.boundary.shape == (300, 404)
    assert agreement(found.map, ~mask) > 0.9
    assert found.side_rule == "network"


@pytest.mark.parametrize("pasted", [0.0, 3.0, 50.0])
def test_without_a_region_the_maps_are_what_the_network_saw(pasted):
    """Of the pasted side up to a half: nothing is called pasted, however sure it is."""
    photo, seam, mask = square()
    never = replace(BOTH, prior=50.0)
    learned = learned_of(mask, seam, pasted)
    found = find_region(photo, BoundaryMap(seam, 1.0), None, never, learned=learned)
    assert not found.cut.side.any()
    assert found.side_rule is None
    assert found.map.max() <= 0.5
    np.testing.assert_allclose(found.map, 0.5 * learned.pasted_map(mask.shape), atol=1e-6)
    np.testing.assert_allclose(found.boundary, 1 / (1 + np.exp(0.3 - learned.seam)), rtol=1e-5)


def test_the_network_has_a_share_in_how_certain_the_region_is():
    """``(1 - share) c + share s`` with certainty ``c`` of the cut, ``s`` what the network says."""
    photo, seam, mask = square()
    learned = learned_of(mask, seam, 3.0)

    def region(share):
        options = RegionOptions(odds_share=share)
        return find_region(photo, BoundaryMap(seam, 1.0), None, BOTH, options, learned=learned).map

    cut, network, both = region(0.0), region(1.0), region(0.25)
    np.testing.assert_array_equal(cut > 0.5, network > 0.5)
    pasted = cut > 0.5
    said = learned.pasted_map(mask.shape)
    expected = np.where(pasted, 0.5 + 0.5 * said, 0.5 * said)
    np.testing.assert_allclose(network, expected, atol=1e-6)
    np.testing.assert_allclose(both, 0.75 * cut + 0.25 * network, atol=1e-6)
    assert np.abs(network - cut).max() > 0.01
    # A side is never turned, however little the network thinks of it.
    doubted = replace(learned, pasted=-learned.pasted)
    sure = RegionOptions(odds_share=1.0, min_side_odds=100.0)
    found = find_region(photo, BoundaryMap(seam, 1.0), None, BOTH, sure, learned=doubted).map
    assert agreement(found, mask) > 0.95
