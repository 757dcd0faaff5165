from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.superpixels import (
    MergeTree,
    border_pixels,
    collect_borders,
    merge_order,
    superpixels,
)
from superpixel_problems import random_problem


@pytest.fixture
def photo(rng):
    """Smooth colours with some texture, (128, 192, 3)."""
    noise = rng.normal(size=(128, 192, 3)).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), 12.0)
    return np.clip(0.5 + 3.0 * smooth + 0.01 * noise, 0, 1).astype(np.float32)


@pytest.mark.parametrize("spacing", [8, 16, 32])
def test_every_pixel_has_a_superpixel_of_about_the_size_asked_for(photo, spacing):
    labels, count = superpixels(photo, RegionOptions(superpixel_spacing=spacing))
    assert labels.shape == (128, 192)
    assert labels.dtype == np.int32
    assert np.unique(labels).tolist() == list(range(count))
    assert 0.5 < count * spacing**2 / labels.size < 2.0


def test_a_superpixel_is_in_one_piece(photo):
    labels, count = superpixels(photo)
    for number in range(count):
        pieces, _ = cv2.connectedComponents((labels == number).astype(np.uint8), connectivity=4)
        assert pieces == 2  # the superpixel and the rest


def test_edges_of_colour_are_borders():
    """Of unlike colours and like light: the clustering sees colour, not light alone."""
    photo = np.full((96, 128, 3), (0.6, 0.3, 0.3), dtype=np.float32)
    photo[:, 53:] = (0.3, 0.42, 0.3)
    labels, _ = superpixels(photo)
    assert not np.intersect1d(labels[:, :53], labels[:, 53:]).size


def test_levels_beyond_black_and_white_are_clipped(photo):
    beyond = photo.copy()
    beyond[:20], beyond[-20:] = -3.0, 7.0
    clipped = np.clip(beyond, 0.0, 1.0)
    np.testing.assert_array_equal(superpixels(beyond)[0], superpixels(clipped)[0])


def test_small_pieces_join_a_neighbour(photo):
    few, many = (
        superpixels(photo, RegionOptions(min_superpixel_percent=percent))[1] for percent in (60, 0)
    )
    assert few < many


def test_borders_count_every_pixel_once():
    labels = np.array([[0, 0, 1], [2, 2, 1]], dtype=np.int32)
    one, two = (labels.ravel()[places] for places in border_pixels(labels))
    borders = collect_borders(3, one, two, np.ones(len(one)))
    found = {
        (int(i), int(j)): n
        for i, j, n in zip(borders.one, borders.two, borders.length, strict=True)
    }
    assert found == {(0, 1): 1.0, (0, 2): 2.0, (1, 2): 1.0}
    assert borders.cut(np.array([True, False, False])) == (3.0, 3.0)


def random_labels(seed, count=5):
    rng = np.random.default_rng(seed)
    return rng, rng.integers(0, count, (6, 7)).astype(np.int32)


@given(seed=st.integers(0, 10_000))
def test_border_pixels_are_the_unlike_neighbours(seed):
    """Against a loop over all pixels; each pair once, its two pixels in reading order."""
    _, labels = random_labels(seed)
    expected = set()
    for row in range(6):
        for col in range(7):
            for down, right in ((0, 1), (1, 0)):
                y, x = row + down, col + right
                if y < 6 and x < 7 and labels[row, col] != labels[y, x]:
                    expected.add((7 * row + col, 7 * y + x))
    found = list(zip(*(places.tolist() for places in border_pixels(labels)), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == expected


@given(seed=st.integers(0, 10_000), penalty=st.floats(-2.0, 2.0))
def test_a_cut_sums_what_lies_between_the_two_sides(seed, penalty):
    """Against the pixels themselves: evidence, length, and evidence less a penalty per pixel."""
    rng, labels = random_labels(seed)
    one, two = (labels.ravel()[places] for places in border_pixels(labels))
    evidence = rng.normal(size=len(one))
    borders = collect_borders(5, one, two, evidence)
    assert (borders.one < borders.two).all()
    assert len(set(zip(borders.one.tolist(), borders.two.tolist(), strict=True))) == len(
        borders.one
    )
    side = rng.random(5) < 0.5
    across = side[one] != side[two]
    np.testing.assert_allclose(borders.cut(side), (evidence[across].sum(), across.sum()))
    np.testing.assert_allclose(borders.cut(side), borders.cut(~side))
    less, length = borders.penalise(penalty).cut(side)
    np.testing.assert_allclose(less, (evidence[across] - penalty).sum(), atol=1e-12)
    assert length == across.sum()


@given(seed=st.integers(0, 10_000))
def test_the_sum_around_a_superpixel_is_the_cut_of_it_alone(seed):
    rng, labels = random_labels(seed)
    one, two = (labels.ravel()[places] for places in border_pixels(labels))
    borders = collect_borders(5, one, two, rng.normal(size=len(one)))
    alone = [borders.cut(np.arange(5) == number) for number in range(5)]
    around = (borders.sum_around(values) for values in (borders.evidence, borders.length))
    np.testing.assert_allclose(np.column_stack([*around]), alone, atol=1e-12)


def slow_merges(borders):
    """Merge the two parts with the lowest mean evidence, all of them compared each time."""
    parts = {number: np.arange(borders.count) == number for number in range(borders.count)}
    merges = []
    while True:
        best = None
        for i in parts:
            for j in parts:
                if i < j:
                    across = (parts[i][borders.one] & parts[j][borders.two]) | (
                        parts[j][borders.one] & parts[i][borders.two]
                    )
                    if across.any():
                        mean = borders.evidence[across].sum() / borders.length[across].sum()
                        if best is None or mean < best[0]:
                            best = mean, i, j
        if best is None:
            return merges
        _, i, j = best
        merges.append(parts[i] | parts[j])
        parts[borders.count + len(merges) - 1] = parts.pop(i) | parts.pop(j)


@given(seed=st.integers(0, 10_000))
def test_the_weakest_border_is_merged_first(seed):
    """Against a loop over all pairs of parts after each merge."""
    rng = np.random.default_rng(seed)
    borders, _ = random_problem(rng)
    borders = replace(borders, length=rng.integers(1, 9, len(borders.one)).astype(float))
    tree = MergeTree.build(borders)
    expected = slow_merges(borders)
    assert len(tree.size) == borders.count + len(expected)
    for node, part in enumerate(expected, start=borders.count):
        np.testing.assert_array_equal(tree.side(node), part)


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e308])
def test_evidence_without_an_order_is_refused(rng, odd):
    """Sums of such numbers are no numbers: superpixels were never joined, and it ran for ever."""
    borders, _ = random_problem(rng)
    with pytest.raises(ValueError, match="evidence at the borders is not finite"):
        MergeTree.build(replace(borders, evidence=np.full(len(borders.one), odd)))


def test_the_tree_holds_every_superpixel_once(rng):
    borders, _ = random_problem(rng)
    tree = MergeTree.build(borders)
    assert len(tree.size) == 2 * 12 - 1
    assert tree.side(len(tree.size) - 1).all()
    for node in range(12):
        assert np.flatnonzero(tree.side(node)).tolist() == [node]
    values = rng.normal(size=12)
    np.testing.assert_allclose(
        tree.sums(values), [values[tree.side(node)].sum() for node in range(len(tree.size))]
    )


@given(seed=st.integers(0, 10_000))
def test_pairs_within_a_node(seed):
    rng = np.random.default_rng(seed)
    borders, _ = random_problem(rng)
    tree = MergeTree.build(borders)
    values = rng.normal(size=len(borders.one))
    sides = [tree.side(node) for node in range(len(tree.size))]
    expected = [values[side[borders.one] & side[borders.two]].sum() for side in sides]
    np.testing.assert_allclose(tree.within(values), expected, atol=1e-12)


def test_the_size_of_a_node_counts_itself_and_all_below(rng):
    borders, _ = random_problem(rng)
    tree = MergeTree.build(borders)
    # A binary tree with k leaves has 2k - 1 nodes.
    leaves = [tree.side(node).sum() for node in range(len(tree.size))]
    assert tree.size.tolist() == [2 * n - 1 for n in leaves]
    assert sorted(tree.position) == list(range(23))


def two_islands():
    """Superpixels 0, 1, 2 that touch, and 3, 4 that touch: no path between the two groups."""
    one, two = np.array([0, 1, 3]), np.array([1, 2, 4])
    return collect_borders(5, one, two, np.array([0.5, -1.0, 2.0]))


def test_parts_that_do_not_touch_are_not_merged(rng):
    borders = two_islands()
    assert merge_order(borders) == [(1, 2), (0, 5), (3, 4)]
    tree = MergeTree.build(borders)
    found = [np.flatnonzero(tree.side(node)).tolist() for node in range(5, 8)]
    assert found == [[1, 2], [0, 1, 2], [3, 4]]
    values = rng.normal(size=5)
    np.testing.assert_allclose(
        tree.sums(values)[5:], [values[1:3].sum(), values[:3].sum(), values[3:].sum()]
    )
    np.testing.assert_allclose(tree.within(np.array([1.0, 10.0, 100.0])), [0] * 5 + [10, 11, 100])


def test_one_superpixel_is_a_tree():
    none = collect_borders(1, *border_pixels(np.zeros((4, 4), np.int32)), np.zeros(0))
    tree = MergeTree.build(none)
    assert tree.side(0).tolist() == [True]
    assert tree.sums(np.array([3.0])).tolist() == [3.0]


@given(seed=st.integers(0, 10_000))
def test_what_touches_a_node_is_what_its_borders_say(seed):
    borders, _ = random_problem(np.random.default_rng(seed))
    tree = MergeTree.build(borders)
    for node in range(len(tree.size)):
        part = tree.side(node)
        assert sorted(tree.leaves[tree.places(node)]) == np.flatnonzero(part).tolist()
        near = part.copy()
        near[tree.leaves[tree.touched(node)]] = True
        across = part[borders.one] != part[borders.two]
        expected = part.copy()
        expected[borders.one[across]] = expected[borders.two[across]] = True
        np.testing.assert_array_equal(near, expected)
