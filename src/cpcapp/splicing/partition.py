"""Cutting a photo in two where the evidence is: superpixels, their borders, and the best cut.

A labelling says of each superpixel whether it was pasted. Its evidence is a sum of logarithms of
likelihood ratios:

- *of the seam*: over the border pixels between unlike superpixels, how much likelier what is seen
  there is at a seam than at another border;
- *of the two sides*: the gain of describing the photo's own statistics by two means rather than
  one, ``-n/2 log det(S_within) / det(S_total)`` with the covariances of the statistics within the
  two sides and over the whole photo.

Both add up over superpixels, so that a part that changes sides is quickly judged. Which labelling
has most is a hard problem (a cut with weights of both signs): good ones are found in the tree of
successive merges, from weak borders to strong ones, and improved by moving superpixels, or all
that is below a node of the tree, to the other side.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing._arrays import FloatArray
from cpcapp.splicing.superpixels import Labels

Side = NDArray[np.bool_]

# The statistics explain at most this share of their own variance: no evidence is infinite.
_MOST_EXPLAINED = 0.999
_STARTS = 6
_LOOKED_AT = 200
_ALIKE = 0.8
_ROUNDS = 4
_MOST_MOVES = 2000
# Parts are moved together if they gain at least this share of what the best one does.
_WORTH_MOVING = 0.25
_MOST_TOGETHER = 64
# Little by little, so that a region is trimmed rather than given up for a smaller one.
_TRIMMED_BY = (0.6, 1.0)


@dataclass(frozen=True)
class Borders:
    """Which superpixels touch, and what lies between them.

    Attributes
    ----------
    count : int
        Superpixels.
    one, two : ndarray of shape (n_pairs,)
        Superpixels that touch, each pair once.
    evidence : ndarray of shape (n_pairs,)
        Sum over the border of the logarithm of the likelihood ratio.
    length : ndarray of shape (n_pairs,)
        Pixels of the border.
    """

    count: int
    one: NDArray[np.intp]
    two: NDArray[np.intp]
    evidence: FloatArray
    length: FloatArray

    def cut(self, side: Side) -> tuple[float, float]:
        """Return the evidence and the length of the border between the two sides."""
        across = side[self.one] != side[self.two]
        return float(self.evidence[across].sum()), float(self.length[across].sum())

    def trimmed(self, by: float) -> Borders:
        """Return borders of which every pixel has to earn so much more."""
        return replace(self, evidence=self.evidence - by * self.length)

    def around(self, values: FloatArray) -> FloatArray:
        """Return for each superpixel the sum of what its pairs have."""
        return np.asarray(
            np.bincount(self.one, values, self.count) + np.bincount(self.two, values, self.count)
        )


def border_pixels(labels: Labels) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the pairs of neighbouring pixels of unlike superpixels, as flat indices."""
    places = np.arange(labels.size).reshape(labels.shape)
    pairs = []
    for here, there in (
        ((slice(None), slice(0, -1)), (slice(None), slice(1, None))),
        ((slice(0, -1), slice(None)), (slice(1, None), slice(None))),
    ):
        unlike = labels[here] != labels[there]
        pairs.append((places[here][unlike], places[there][unlike]))
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def find_borders(
    count: int,
    one: NDArray[np.integer],
    two: NDArray[np.integer],
    evidence: NDArray[np.floating],
) -> Borders:
    """Return the borders of superpixels, given the pixels along them.

    Parameters
    ----------
    count : int
        Superpixels.
    one, two : ndarray of shape (n,)
        The superpixels on either side of each pair of neighbouring pixels that are unlike.
    evidence : ndarray of shape (n,)
        For a seam between the two pixels.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat(np.arange(3, dtype=np.int32), 4)[None].repeat(5, axis=0)  # 5 x 12
    >>> one, two = (labels.ravel()[places] for places in border_pixels(labels))
    >>> borders = find_borders(3, one, two, np.full(10, 2.0))
    >>> borders.cut(np.array([True, False, False]))
    (10.0, 5.0)
    """
    pair = np.sort([one, two], axis=0).astype(np.intp)
    keys, where = np.unique(pair[0] * count + pair[1], return_inverse=True)
    total = np.bincount(where, np.asarray(evidence, np.float64), len(keys)).astype(np.float64)
    length = np.bincount(where, minlength=len(keys)).astype(np.float64)
    return Borders(count, keys // count, keys % count, total, length)


@dataclass(frozen=True)
class SideStatistics:
    """Sums of the statistics of each superpixel, in units of their spread over the photo.

    Attributes
    ----------
    total : ndarray of shape (count, n_statistics)
        Sums over pixels of statistics with mean 0 and covariance I over the photo.
    pixels : ndarray of shape (count,)
        How many pixels were summed.
    """

    total: FloatArray
    pixels: FloatArray

    def gain(self, total: FloatArray, pixels: FloatArray) -> FloatArray:
        """Return the evidence for two means of candidates, given the sums inside each.

        With covariance I, ``det(S_within) = 1 - p(1-p)|d|²`` for the shares ``p`` and ``1-p`` of
        the two sides and the difference ``d`` of their means.
        """
        n = self.pixels.sum()
        rest = n - pixels
        possible = (pixels > 0.0) & (rest > 0.0)
        inside, outside = (np.where(possible, k, 1.0)[:, None] for k in (pixels, rest))
        apart = total / inside - (self.total.sum(axis=0) - total) / outside
        explained = pixels * rest / max(n, 1.0) ** 2 * (apart**2).sum(axis=1)
        gain = -0.5 * n * np.log1p(-np.minimum(explained, _MOST_EXPLAINED))
        return np.asarray(np.where(possible, gain, 0.0))

    def of(self, side: Side) -> float:
        """Return the evidence for two means, one on each side."""
        inside = self.total[side].sum(axis=0)[None], self.pixels[side].sum()[None]
        return float(self.gain(*inside)[0])

    def preference(self, side: Side) -> FloatArray:
        """Return for each superpixel how much better it fits inside than outside.

        The log-likelihood ratio of two Gaussians with the means of the sides and the covariance
        within them, ``S = I - p(1-p) ddᵀ``, whose inverse is ``I + p(1-p) ddᵀ/(1 - p(1-p)|d|²)``.
        """
        n, inside = self.pixels.sum(), self.pixels[side].sum()
        if inside <= 0.0 or inside >= n:
            return np.zeros(len(side))
        mean_in = self.total[side].sum(axis=0) / inside
        mean_out = self.total[~side].sum(axis=0) / (n - inside)
        apart = mean_in - mean_out
        shares = inside * (n - inside) / n**2
        explained = min(shares * (apart @ apart), _MOST_EXPLAINED)
        weights = apart * (1.0 + shares * (apart @ apart) / (1.0 - explained))
        return np.asarray(self.total @ weights - self.pixels * (weights @ (mean_in + mean_out) / 2))


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

    @property
    def evidence(self) -> float:
        """All of it."""
        return self.seam + self.sides


def best_cut(borders: Borders, statistics: SideStatistics, trust: float, trim: float = 0.0) -> Cut:
    """Return the cut with the most evidence that was found.

    Parameters
    ----------
    borders : Borders
    statistics : SideStatistics
    trust : float
        What a pixel of the statistics counts beside a pixel of the seam: neighbouring pixels tell
        nearly the same.
    trim : float, default=0.0
        What every pixel of the best cut's border has to earn in addition. Weak borders help to
        find a region whose seam is seen in parts only; once it is found, bits and bulges that only
        they hold are taken away, if anything is left then.

    Returns
    -------
    Cut
        Nothing is inside if no cut has evidence for it.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat(np.arange(3, dtype=np.int32), 4)[None].repeat(5, axis=0)
    >>> one, two = (labels.ravel()[places] for places in border_pixels(labels))
    >>> seen = np.where(one == 0, 1.5, -1.0)  # a seam around the first superpixel
    >>> nothing = SideStatistics(np.zeros((3, 1)), np.zeros(3))
    >>> cut = best_cut(find_borders(3, one, two, seen), nothing, 0.0)
    >>> cut.side.tolist(), cut.evidence
    ([True, False, False], 7.5)
    """
    tree = MergeTree.of(borders)
    seam = tree.sums(borders.around(borders.evidence)) - 2.0 * tree.within(borders.evidence)
    total = np.stack([tree.sums(column) for column in statistics.total.T], axis=1)
    evidence = seam + trust * statistics.gain(total, tree.sums(statistics.pixels))
    best = Cut(np.zeros(borders.count, dtype=bool), 0.0, 0.0, 0.0)
    for start in (*_starts(tree, evidence), *_halves(statistics)):
        side = _settled(borders, tree, statistics, trust, start)
        cut = _cut(borders, statistics, trust, side)
        if cut.evidence > best.evidence:
            best = cut
    for share in _TRIMMED_BY if trim and best.side.any() else ():
        side = _settled(borders.trimmed(share * trim), tree, statistics, trust, best.side)
        if side.any() and not side.all():
            best = _cut(borders, statistics, trust, side)
    return best


def _cut(borders: Borders, statistics: SideStatistics, trust: float, side: Side) -> Cut:
    found, length = borders.cut(side)
    return Cut(side, found, trust * statistics.of(side), length)


def _settled(
    borders: Borders, tree: MergeTree, statistics: SideStatistics, trust: float, side: Side
) -> Side:
    """Improve a labelling until it stays, with new means of the two sides after each round."""
    for _ in range(_ROUNDS):
        better = _improve(borders, tree, side, trust * statistics.preference(side))
        if np.array_equal(better, side):
            break
        side = better
    return side


def _starts(tree: MergeTree, evidence: FloatArray) -> list[Side]:
    """Return the nodes of the tree with most evidence, none much like one before it."""
    found: list[Side] = []
    for node in np.argsort(-evidence, kind="stable")[:_LOOKED_AT]:
        side = tree.side(int(node))
        if all((side & one).sum() < _ALIKE * (side | one).sum() for one in found):
            found.append(side)
        if len(found) == _STARTS:
            break
    return found


def _halves(statistics: SideStatistics) -> list[Side]:
    """Return for each statistic the superpixels that have more of it than the photo."""
    known = statistics.pixels > 0.0
    return [column > 0.0 for column in statistics.total.T if known.any() and column.any()]


@dataclass(frozen=True)
class MergeTree:
    """Superpixels merged one pair after the other, those first that no seam seems to part.

    Superpixels have the numbers below ``count``, merges those from there on. In `order` every node
    is followed by all that it is made of, so that sums over nodes are differences of running sums.

    Attributes
    ----------
    count : int
        Superpixels.
    place : ndarray of shape (n_nodes,)
        Of each node in this order.
    size : ndarray of shape (n_nodes,)
        Nodes that each is made of, with itself.
    joined : ndarray of shape (n_pairs,)
        The merge that brought the two of a pair of superpixels together, or -1.
    """

    count: int
    place: NDArray[np.intp]
    size: NDArray[np.intp]
    joined: NDArray[np.intp]

    @classmethod
    def of(cls, borders: Borders) -> MergeTree:
        """Merge the superpixels."""
        children = _merge(borders)
        n, merges = borders.count, len(children)
        size, parent = np.ones(n + merges, dtype=np.intp), np.full(n + merges, -1, dtype=np.intp)
        for number, (i, j) in enumerate(children, start=n):
            size[number] += size[i] + size[j]
            parent[i] = parent[j] = number
        place = np.zeros(n + merges, dtype=np.intp)
        roots = np.flatnonzero(parent < 0)
        place[roots] = np.cumsum(size[roots]) - size[roots]
        for number in range(n + merges - 1, n - 1, -1):
            i, j = children[number - n]
            place[i] = place[number] + 1
            place[j] = place[i] + size[i]
        # A parent has a higher number than its children: the lower of the two climbs.
        one, two = borders.one.copy(), borders.two.copy()
        apart = np.arange(len(one))
        while apart.size:
            climbs = one[apart] < two[apart]
            one[apart[climbs]] = parent[one[apart[climbs]]]
            two[apart[~climbs]] = parent[two[apart[~climbs]]]
            apart = apart[one[apart] != two[apart]]
        return cls(n, place, size, one)

    def sums(self, values: FloatArray) -> FloatArray:
        """Return for each node the sum of the values of its superpixels."""
        return self._running(np.concatenate([values, np.zeros(len(self.size) - self.count)]))

    def within(self, values: FloatArray) -> FloatArray:
        """Return for each node the sum of the values of pairs that lie inside it."""
        return self._running(np.bincount(self.joined, values, len(self.size)).astype(np.float64))

    def side(self, node: int) -> Side:
        """Return which superpixels a node is made of."""
        first = self.place[node]
        return np.asarray(
            (self.place[: self.count] >= first)
            & (self.place[: self.count] < first + self.size[node])
        )

    def _running(self, values: FloatArray) -> FloatArray:
        ordered = np.empty(len(values))
        ordered[self.place] = values
        total = np.concatenate([[0.0], np.cumsum(ordered)])
        return np.asarray(total[self.place + self.size] - total[self.place])


def _merge(borders: Borders) -> list[tuple[int, int]]:
    """Return the two that each merge joins."""
    near: list[dict[int, tuple[float, float]]] = [{} for _ in range(borders.count)]
    queue = []
    columns = (borders.one, borders.two, borders.evidence, borders.length)
    for i, j, found, length in zip(*(column.tolist() for column in columns), strict=True):
        near[i][j] = near[j][i] = (found, length)
        queue.append((found / length, i, j))
    heapq.heapify(queue)
    children: list[tuple[int, int]] = []
    while queue:
        mean, i, j = heapq.heappop(queue)
        border = near[i].get(j)
        # Either was merged since, or the border has grown.
        if border is None or border[0] / border[1] != mean:
            continue
        merged, new = len(near), dict[int, tuple[float, float]]()
        for part in (i, j):
            for k, (more, longer) in near[part].items():
                if k in (i, j):
                    continue
                del near[k][part]
                known = new.get(k, (0.0, 0.0))
                new[k] = known[0] + more, known[1] + longer
            near[part] = {}
        for k, joint in new.items():
            near[k][merged] = joint
            heapq.heappush(queue, (joint[0] / joint[1], k, merged))
        near.append(new)
        children.append((i, j))
    return children


def gain_of_moving(
    borders: Borders, tree: MergeTree, side: Side, preference: FloatArray
) -> FloatArray:
    """Return what each node of the tree would gain on the other side, (n_nodes,).

    A pair that comes to lie across the seam gains its evidence, one that no longer does loses it;
    pairs that move together do neither. The preference is for being inside.
    """
    sign = np.where(side, 1.0, -1.0)
    alike = borders.evidence * sign[borders.one] * sign[borders.two]
    return tree.sums(borders.around(alike) - sign * preference) - 2.0 * tree.within(alike)


def _improve(borders: Borders, tree: MergeTree, side: Side, preference: FloatArray) -> Side:
    """Move the nodes with most to gain to the other side, until none has any."""
    side = side.copy()
    for _ in range(_MOST_MOVES):
        gain = gain_of_moving(borders, tree, side, preference)
        best = float(gain.max())
        if best <= 1e-6 * max(1.0, float(np.abs(gain).max())):
            break
        for node in parts_to_move(borders, tree, gain, _WORTH_MOVING * best):
            side ^= tree.side(node)
    return side


def parts_to_move(borders: Borders, tree: MergeTree, gain: FloatArray, least: float) -> list[int]:
    """Return nodes with at least this gain of which none touches another, the best first.

    Moved together they gain the sum of what each does.
    """
    nodes = np.flatnonzero(gain >= least)
    near = np.zeros(borders.count, dtype=bool)
    chosen = []
    for node in nodes[np.argsort(-gain[nodes], kind="stable")][:_MOST_TOGETHER].tolist():
        part = tree.side(node)
        if (part & near).any():
            continue
        chosen.append(node)
        across = part[borders.one] != part[borders.two]
        near[part] = near[borders.one[across]] = near[borders.two[across]] = True
    return chosen
