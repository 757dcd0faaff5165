from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpcapp.splicing.decide.borders import border_pixels, collect_borders
from cpcapp.splicing.decide.merge_tree import MergeTree, merge_order
from superpixel_problems import random_problem


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
