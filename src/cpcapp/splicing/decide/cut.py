"""Cutting a photo in two where the evidence is: the search for the best cut.

A labelling says of each superpixel whether it was pasted. Its evidence is a sum of logarithms of
likelihood ratios:

- *of the seam*: over the border pixels between unlike superpixels, how much likelier what is seen
  there is at a seam than at another border;
- *of the two sides*: the gain of describing the photo's own statistics by two means rather than
  one, ``-n/2 log det(S_within) / det(S_total)`` with the covariances of the statistics within the
  two sides and over the whole photo. The statistics are those of the mosaic, and learned traces.

Both add up over superpixels, so that moving a part to the other side is quickly judged. Which
labelling has most is a hard problem (a cut with weights of both signs): good ones are found in the
tree of successive merges, from weak borders to strong ones, and improved by moving superpixels, or
all that is below a node of the tree, to the other side.

The constants below bound the effort of the search. They were set by hand; the search finds the best
of all 2048 labellings of twelve superpixels in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpcapp.splicing.decide.sides import Sides
from cpcapp.splicing.decide.superpixels import Borders, MergeTree, Side
from cpcapp.splicing.photo.pixels import FloatArray

_MAX_STARTS = 6
_MAX_NODES_TRIED = 200
# Of intersection over union: starts that overlap more are one and the same.
_SAME_START = 0.8
_MAX_ROUNDS = 4
_MAX_MOVES = 2000
# Parts are moved together if they gain at least this share of what the best one does.
_MIN_GAIN_SHARE = 0.25
_MAX_TOGETHER = 64
# Little by little, so that a region is trimmed rather than given up for a smaller one.
_TRIM_STEPS = (0.6, 1.0)


@dataclass(frozen=True)
class Cut:
    """A labelling of superpixels and the evidence for it.

    Attributes
    ----------
    side : ndarray of shape (count,), bool
    seam, sides : float
        Evidence of the seam, and of the two sides.
    length : float
        Pixels of the seam.
    """

    side: Side
    seam: float
    sides: float
    length: float

    @classmethod
    def nothing(cls, count: int) -> Cut:
        """Return the cut that leaves all superpixels on one side."""
        return cls(np.zeros(count, dtype=bool), 0.0, 0.0, 0.0)

    @property
    def evidence(self) -> float:
        """Of seam and sides together."""
        return self.seam + self.sides


def best_cut(
    borders: Borders,
    sides: Sides,
    trim_per_pixel: float = 0.0,
) -> Cut:
    """Return the cut with the most evidence that was found.

    ``trim_per_pixel``: penalty for every pixel of the best cut's border. Weak borders help to find
    a region whose seam is seen in parts only; once it is found, parts that only weak borders
    support are removed, if anything is left then.
    """
    tree = MergeTree.build(borders)
    evidence = tree.sums_across(borders.evidence) + sides.gain_of_nodes(tree)
    best = Cut.nothing(borders.count)
    for start in (*_tree_starts(tree, evidence), *sides.starts()):
        side = _settle(borders, tree, sides, start)
        cut = _evaluate(borders, sides, side)
        if cut.evidence > best.evidence:
            best = cut
    for share in _TRIM_STEPS if trim_per_pixel and best.side.any() else ():
        penalised = borders.penalise(share * trim_per_pixel)
        side = _settle(penalised, tree, sides, best.side)
        if side.any() and not side.all():
            best = _evaluate(borders, sides, side)
    return best


def _evaluate(borders: Borders, sides: Sides, side: Side) -> Cut:
    found, length = borders.cut(side)
    return Cut(side, found, sides.evidence(side), length)


def _settle(borders: Borders, tree: MergeTree, sides: Sides, side: Side) -> Side:
    """Improve a labelling until it stays, with new means of the two sides after each round."""
    for _ in range(_MAX_ROUNDS):
        better = _improve(borders, tree, side, sides.preference(side))
        if np.array_equal(better, side):
            break
        side = better
    return side


def _tree_starts(tree: MergeTree, evidence: FloatArray) -> list[Side]:
    """Return the nodes of the tree with most evidence, none much like one before it."""
    found: list[Side] = []
    for node in np.argsort(-evidence, kind="stable")[:_MAX_NODES_TRIED]:
        side = tree.side(int(node))
        if all((side & one).sum() < _SAME_START * (side | one).sum() for one in found):
            found.append(side)
        if len(found) == _MAX_STARTS:
            break
    return found


def gain_of_moving(
    borders: Borders, tree: MergeTree, side: Side, preference: FloatArray
) -> FloatArray:
    """Return what each node of the tree would gain on the other side, (n_nodes,).

    A pair that comes to lie across the seam gains its evidence, one that no longer does loses it;
    pairs that move together do neither. The preference is for being inside.
    """
    alike = side.take(borders.one) == side.take(borders.two)
    return tree.sums_across(
        np.where(alike, borders.evidence, -borders.evidence),
        np.where(side, -preference, preference),
    )


def _improve(borders: Borders, tree: MergeTree, side: Side, preference: FloatArray) -> Side:
    """Move the nodes with most to gain to the other side, until none has any."""
    side = side.copy()
    for _ in range(_MAX_MOVES):
        gain = gain_of_moving(borders, tree, side, preference)
        best = float(gain.max())
        # So written, NaN ends it too.
        if not best > 1e-6 * max(1.0, best, -float(gain.min())):
            break
        for node in separate_parts(tree, gain, _MIN_GAIN_SHARE * best):
            side[tree.leaves[tree.places(node)]] ^= True
    return side


def separate_parts(tree: MergeTree, gain: FloatArray, least: float) -> list[int]:
    """Return nodes with at least this gain of which none touches another, the best first.

    Moved together they gain the sum of what each does.
    """
    nodes = np.flatnonzero(gain >= least)
    near = np.zeros(tree.count, dtype=bool)
    chosen = []
    for node in nodes[np.argsort(-gain[nodes], kind="stable")][:_MAX_TOGETHER].tolist():
        part = tree.places(node)
        if near[part].any():
            continue
        chosen.append(node)
        near[part] = near[tree.touched(node)] = True
    return chosen
