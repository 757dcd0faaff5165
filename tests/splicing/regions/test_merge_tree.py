from __future__ import annotations

import numpy as np

from cpcapp.splicing.regions.merge_tree import MergeTree
from superpixel_problems import random_problem


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
