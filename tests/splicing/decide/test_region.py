from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt

from cpcapp.splicing.decide.evidence import LikelihoodTable, log_strength, strength_unit
from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.region import (
    MIN_REGION_SIDE,
    emphasise_border,
    extract_borders,
    find_region,
    which_side,
)
from cpcapp.splicing.decide.sides import TraceContrast, superpixel_vectors
from cpcapp.splicing.decide.superpixels import border_pixels
from cpcapp.splicing.make.cameras import Camera
from cpcapp.splicing.measure.filters import BoundaryMap
from cpcapp.splicing.measure.measure import Measured
from cpcapp.splicing.measure.mosaic import MosaicTrace, mosaic_trace
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.photo.jpeg import JpegGrid

OPTIONS = RegionOptions()
# Of the filters' strength.
TABLE = LikelihoodTable(np.log([0.02, 0.2]), np.array([-3.0, 3.0]))


def seen(photo, seam, mosaic=None, learned=None):
    grid = JpegGrid(None, (0, 0), False)
    return Measured(photo, BoundaryMap(seam, 1.0), mosaic, grid, learned)


def region_of(photo, seam, mosaic=None, options=OPTIONS, table=TABLE):
    """What filters and mosaic find."""
    return find_region(seen(photo, seam, mosaic), table, None, options)


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


@pytest.mark.parametrize("gap", [0, 20])
def test_a_closed_seam_gives_its_inside(gap):
    """And one with a gap."""
    photo, seam, mask = square()
    seam[:, 140 : 140 + gap] = 0.0
    found = region_of(photo, seam)
    assert agreement(found.map, mask) > 0.95
    assert found.map.dtype == np.float32
    assert 0.0 <= found.map.min() <= found.map.max() <= 1.0
    assert found.n_pixels == mask.size
    assert agreement(found.inside, mask) > 0.95 or agreement(~found.inside, mask) > 0.95


def test_no_seam_no_region():
    photo, seam, _ = square()
    found = region_of(photo, 0.0 * seam)
    assert not found.map.any()
    assert not found.cut.side.any()
    assert (found.cut.evidence, found.inside, found.side_rule) == (0.0, None, None)


def test_the_smaller_part_is_called_pasted():
    photo, seam, mask = square(box=(20, 180, 30, 270))
    assert mask.mean() > 0.5
    found = region_of(photo, seam)
    assert agreement(found.map, ~mask) > 0.9
    assert found.side_rule == "smaller"


def test_two_cameras_are_told_apart_without_any_seam(rng):
    """By the mosaic alone, whose windows are 48 pixels wide: the border is not exact."""
    scene = np.full((256, 384, 3), 110, dtype=np.uint8)
    ours = Camera((0, 0), "bilinear", shot_noise=1e-3).shoot(scene, rng)
    theirs = Camera((1, 1), "bilinear", shot_noise=1e-3).shoot(scene, rng)
    mask = np.zeros((256, 384), dtype=bool)
    mask[64:192, 96:240] = True
    photo = np.where(mask[:, :, None], theirs, ours).astype(np.float32) / 255
    nowhere = np.zeros(mask.shape, dtype=np.float32)
    faint = LikelihoodTable(TABLE.value, np.array([-0.2, 3.0]))
    options = RegionOptions(prior=0.0)
    found = region_of(photo, nowhere, mosaic_trace(photo), options, faint)
    assert agreement(found.map, mask) > 0.6
    alone = region_of(ours.astype(np.float32) / 255, nowhere, None, options, faint)
    assert found.cut.sides > alone.cut.sides


def test_a_large_photo_is_looked_at_smaller():
    photo, seam, mask = square(1500, 2000, (500, 1000, 600, 1400))
    found = region_of(photo, seam)
    assert found.map.shape == (1500, 2000)
    assert agreement(found.map, mask) > 0.95
    assert found.n_pixels == found.inside.size == pytest.approx(OPTIONS.max_pixels, rel=1e-3)


@pytest.mark.parametrize("shape", [(8, 8), (MIN_REGION_SIDE - 1, 128), (1, 1)])
def test_a_region_is_sought_from_64_pixels_on(shape):
    photo, seam, _ = square(MIN_REGION_SIDE, 128, (16, 48, 32, 80))
    assert MIN_REGION_SIDE == 64
    assert region_of(photo, seam).map.any()
    smaller = region_of(photo[: shape[0], : shape[1]], seam[: shape[0], : shape[1]])
    assert smaller.map.shape == shape
    assert not smaller.map.any()
    assert (smaller.cut.evidence, smaller.cut.length, smaller.cut.side.any()) == (0.0, 0.0, False)


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
    found = extract_borders(seen(photo, seam), options)
    smaller = round(side / factor)
    assert found.labels.shape == (smaller, smaller)
    strength = np.exp(found.measured) * np.float32(options.min_strength_unit)
    height, width = box[1] - box[0], box[3] - box[2]
    along = np.sort(strength)[::-1][: round(1.5 * (height + width) / factor)]
    assert np.median(along) >= 0.5
    assert strength.max() <= 1.0 + 1e-6


def test_a_photo_up_to_the_limit_is_taken_as_it_is():
    photo, seam = rim((80, 100), (20, 60, 30, 70))
    for limit, shape in ((8000, (80, 100)), (7999, (80, 100)), (5120, (64, 80))):
        found = extract_borders(seen(photo, seam), RegionOptions(max_pixels=limit))
        assert found.labels.shape == shape


def test_strengths_are_those_of_the_stronger_of_two_pixels():
    photo, seam, _ = square()
    found = extract_borders(seen(photo, seam), OPTIONS)
    here, there = border_pixels(found.labels)
    np.testing.assert_array_equal(found.pixels, here)
    labels, values = found.labels.ravel(), seam.ravel()
    np.testing.assert_array_equal(found.one, labels[here])
    np.testing.assert_array_equal(found.two, labels[there])
    stronger = np.maximum(values[here], values[there])
    expected = log_strength(stronger / strength_unit(stronger, seam.size))
    np.testing.assert_allclose(found.measured, expected, rtol=1e-6)
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
    measured = seen(photo, np.clip(seam, 0, 1), trace)
    found = find_region(measured, TABLE, None, OPTIONS)
    extracted = extract_borders(measured, OPTIONS)
    cut, borders, _ = extracted.find_cut(TABLE, None, OPTIONS)
    np.testing.assert_array_equal(cut.side, found.cut.side)
    before = borders.cut(cut.side)[0]
    prefers = OPTIONS.mosaic_weight * extracted.statistics.preference(cut.side)
    assert prefers.any() == mosaic
    inside = found.map[cut.side[extracted.labels]].min() > 0.5
    certainties = []
    count = len(extracted.area)
    for number in range(count):
        moved = cut.side ^ (np.arange(count) == number)
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
    options = RegionOptions(trim_per_pixel=0.75, prior=0.5)
    extracted = extract_borders(seen(photo, seam), options)
    cut, borders, _ = extracted.find_cut(TABLE, None, options)
    evidence = TABLE(extracted.measured) - 0.5
    across = cut.side[extracted.one] != cut.side[extracted.two]
    assert cut.seam == pytest.approx(evidence[across].sum())
    assert borders.cut(cut.side)[0] == pytest.approx((evidence[across] - 0.75).sum())


def test_which_of_two_equal_parts_is_pasted_is_no_accident():
    """The inside is called pasted up to exactly half of the photo."""
    photo, seam = np.full((96, 128, 3), 0.3, np.float32), np.zeros((96, 128), np.float32)
    photo[:, 64:] = 0.7
    seam[:, 62:66] = 1.0
    found = region_of(photo, seam)
    assert found.inside.mean() == 0.5
    np.testing.assert_array_equal(found.map > 0.5, found.inside)


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
    found = emphasise_border(boundary, side, OPTIONS)
    assert found.dtype == np.float32
    assert found.max() == 1.0
    # OpenCV's distances are exact to a few hundredths of a pixel.
    np.testing.assert_allclose(found, expected / expected.max(), atol=0.02)


def test_the_border_of_a_smaller_copy_is_drawn_larger():
    side = np.zeros((40, 60), dtype=bool)
    side[10:30, 20:40] = True
    found = emphasise_border(np.zeros((80, 120), dtype=np.float32), side, OPTIONS)
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


# -- with learned traces ----------------------------------------------------------------------

ODDS = LikelihoodTable(np.array([-4.0, 4.0]), np.array([-4.0, 4.0]))


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


def region_by(learned, photo, options=OPTIONS, traces=None):
    """What a network finds; of the filters' map it takes nothing."""
    nothing = np.zeros(photo.shape[:2], np.float32)
    return find_region(seen(photo, nothing, learned=learned), ODDS, traces, options)


# Sides differ in the first of the two traces; superpixels of one side differ by 1 in all.
FIRST = TraceContrast(np.diag([9.0, 0.0, 0.0, 0.0]), np.eye(4))


def test_borders_know_what_the_network_measured():
    photo, seam, mask = square()
    learned = learned_of(mask, seam, 1.5)
    found = extract_borders(seen(photo, 0.0 * seam, learned=learned), OPTIONS)
    here, there = border_pixels(found.labels)
    odds = learned.seam.ravel()
    np.testing.assert_array_equal(found.measured, np.maximum(odds[here], odds[there]))
    vectors = superpixel_vectors(learned, found.labels, len(found.area), seam.shape)
    np.testing.assert_array_equal(found.vectors, vectors)
    np.testing.assert_array_equal(found.area, np.bincount(found.labels.ravel()))


def test_a_seam_that_the_network_sees_gives_its_inside():
    photo, seam, mask = square()
    found = region_by(learned_of(mask, seam), photo)
    assert agreement(found.map, mask) > 0.95


def test_sides_that_only_traces_tell_apart_are_found():
    """Without any seam, and with borders that speak against one."""
    photo, seam, mask = square()
    learned = learned_of(mask, 0.0 * seam + 0.4)  # odds of -0.8 everywhere
    doubtful = RegionOptions(prior=-0.6, trim_per_pixel=0.0, trace_weight=0.0)
    told = replace(doubtful, trace_weight=0.05)
    found = region_by(learned, photo, told, FIRST)
    assert agreement(found.map, mask) > 0.9
    assert found.cut.sides > 0.0 > found.cut.seam
    for options, traces in ((doubtful, FIRST), (told, None)):
        blind = region_by(learned, photo, options, traces)
        assert not blind.cut.side.any()
        assert blind.map.max() <= 0.5


def test_the_network_says_which_side_was_pasted():
    """Even the larger one; else it is the smaller one."""
    photo, seam, mask = square()
    certain = RegionOptions(min_side_odds=0.5)
    for pasted, options, expected, rule in (
        (3.0, OPTIONS, mask, "network"),
        (-3.0, OPTIONS, ~mask, "network"),
        (0.0, OPTIONS, mask, "smaller"),
        (-0.4, OPTIONS, mask, "smaller"),  # sides differ by 0.8: less than the odds asked for
        (-0.4, certain, ~mask, "network"),
    ):
        found = region_by(learned_of(mask, seam, pasted), photo, options)
        assert agreement(found.map, expected) > 0.95
        assert found.side_rule == rule


def test_the_side_is_told_by_means_over_pixels():
    photo, seam, _ = square()
    extracted = extract_borders(seen(photo, seam), OPTIONS)
    n = len(extracted.area)
    side = np.arange(n) < n // 3
    area = np.where(np.arange(n) == 0, 1e6, 1.0)  # one superpixel is nearly all of the inside
    vectors = np.zeros((n, 3))
    vectors[side, -1], vectors[0, -1] = -9.0, 5.0
    known = replace(extracted, area=area, vectors=vectors)
    assert which_side(side, known, OPTIONS) == (True, "network")
    assert which_side(~side, known, OPTIONS) == (False, "network")
    unknown = replace(known, vectors=None)
    assert which_side(side, unknown, OPTIONS) == (False, "smaller")
    assert which_side(~side, unknown, OPTIONS) == (True, "smaller")
    # The odds must differ by as much as the options ask for, and by no more.
    vectors[:], vectors[side, -1] = 0.0, 1.0
    assert which_side(side, known, OPTIONS) == (True, "network")
    vectors[side, -1] = 0.999
    assert which_side(side, known, OPTIONS) == (False, "smaller")
    for everything in (np.ones(n, dtype=bool), np.zeros(n, dtype=bool)):
        assert which_side(everything, known, OPTIONS)[1] == "smaller"


@pytest.mark.parametrize("factor", [0.25, 1.0, 9.0])
def test_traces_weigh_less_in_a_larger_photo_by_the_root_of_its_size(factor):
    """Photos of the size that the weight is given for take it as it is."""
    photo, seam, mask = square()
    extracted = extract_borders(seen(photo, seam, learned=learned_of(mask, seam)), OPTIONS)
    options = RegionOptions(trace_weight=0.04, reference_pixels=round(factor * mask.size))
    sides = extracted.find_cut(ODDS, FIRST, options)[2]
    assert [kind.weight for kind in sides.kinds] == [
        options.mosaic_weight,
        pytest.approx(0.04 * factor**0.5),
    ]


def test_a_large_photo_with_traces_is_looked_at_smaller():
    photo, seam, mask = square(300, 404, (100, 220, 120, 280))
    found = region_by(learned_of(mask, seam, -2.0), photo, RegionOptions(max_pixels=30_000))
    assert found.map.shape == (300, 404)
    assert agreement(found.map, ~mask) > 0.9
    assert found.side_rule == "network"


@pytest.mark.parametrize("pasted", [0.0, 3.0, 50.0])
def test_without_a_region_the_map_is_what_the_network_saw(pasted):
    """Of the pasted side up to a half: nothing is called pasted, however sure it is."""
    photo, seam, mask = square()
    learned = learned_of(mask, seam, pasted)
    found = region_by(learned, photo, RegionOptions(prior=50.0))
    assert not found.cut.side.any()
    assert found.side_rule is None
    assert found.map.max() <= 0.5
    np.testing.assert_allclose(found.map, 0.5 * learned.pasted_map(mask.shape), atol=1e-6)


def test_the_network_has_a_share_in_how_certain_the_region_is():
    """``(1 - share) c + share s`` with certainty ``c`` of the cut, ``s`` what the network says."""
    photo, seam, mask = square()
    learned = learned_of(mask, seam, 3.0)
    cut, network, both = (
        region_by(learned, photo, RegionOptions(odds_share=share)).map for share in (0.0, 1.0, 0.25)
    )
    np.testing.assert_array_equal(cut > 0.5, network > 0.5)
    said = learned.pasted_map(mask.shape)
    expected = np.where(cut > 0.5, 0.5 + 0.5 * said, 0.5 * said)
    np.testing.assert_allclose(network, expected, atol=1e-6)
    np.testing.assert_allclose(both, 0.75 * cut + 0.25 * network, atol=1e-6)
    assert np.abs(network - cut).max() > 0.01
    # A side is never turned, however little the network thinks of it.
    doubted = replace(learned, pasted=-learned.pasted)
    sure = RegionOptions(odds_share=1.0, min_side_odds=100.0)
    assert agreement(region_by(doubted, photo, sure).map, mask) > 0.95
