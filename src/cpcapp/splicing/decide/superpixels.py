"""Superpixels: small patches of like colour whose borders follow the edges of a photo."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.photo.pixels import FloatArray, FloatMap

Labels = NDArray[np.int32]


def superpixels(image: FloatMap, options: RegionOptions | None = None) -> tuple[Labels, int]:
    """Divide a photo into superpixels, of about 16 x 16 pixels by default.

    ``labels``: The number of the superpixel that each pixel belongs to, from 0.
    """
    options = options or RegionOptions()
    pixels = np.rint(np.clip(image, 0.0, 1.0) * np.float32(255.0)).astype(np.uint8)
    smooth = cv2.GaussianBlur(pixels, (0, 0), options.colour_smoothing)
    clustering = cv2.ximgproc.createSuperpixelSLIC(
        cv2.cvtColor(smooth, cv2.COLOR_RGB2LAB),
        cv2.ximgproc.SLIC,
        region_size=options.superpixel_spacing,
        ruler=options.compactness,
    )
    clustering.iterate(options.iterations)
    clustering.enforceLabelConnectivity(options.min_superpixel_percent)
    labels = np.asarray(clustering.getLabels(), dtype=np.int32)
    return labels, int(clustering.getNumberOfSuperpixels())


#: For each superpixel whether it lies inside.
Side = NDArray[np.bool_]


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

    def penalise(self, by: float) -> Borders:
        """Return borders with so much less evidence for every pixel of their length."""
        return replace(self, evidence=self.evidence - by * self.length)

    def sum_around(self, values: FloatArray) -> FloatArray:
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


def collect_borders(
    count: int,
    one: NDArray[np.integer],
    two: NDArray[np.integer],
    evidence: NDArray[np.floating],
) -> Borders:
    """Sum the evidence over the pixels of each border.

    ``one, two``: the superpixels on either side of each pair of neighbouring pixels that are
    unlike.
    """
    pair = np.sort([one, two], axis=0).astype(np.intp)
    keys, where = np.unique(pair[0] * count + pair[1], return_inverse=True)
    total = np.bincount(where, np.asarray(evidence, np.float64), len(keys)).astype(np.float64)
    length = np.bincount(where, minlength=len(keys)).astype(np.float64)
    return Borders(count, keys // count, keys % count, total, length)


@dataclass(frozen=True)
class MergeTree:
    """Superpixels merged one pair after the other, the weakest borders first.

    Superpixels have the numbers below ``count``, merges those from there on. They are
    kept in an order in which every node is followed by its descendants, so that sums over nodes
    are differences of running sums.

    Attributes
    ----------
    count : int
        Superpixels.
    position : ndarray of shape (n_nodes,)
        Of each node in this order.
    size : ndarray of shape (n_nodes,)
        Nodes that each is made of, with itself.
    joined_by : ndarray of shape (n_pairs,)
        The merge that brought the two of a pair of superpixels together, or -1.
    pair_positions : ndarray of shape (3 * n_pairs,)
        The positions of the first of all pairs, of the second, and of the merge that joined them.
    leaves : ndarray of shape (count,)
        The superpixels in this order: those of a node follow each other.
    first_leaf : ndarray of shape (n_nodes + 1,)
        By position: how many superpixels come before.
    touching : ndarray of shape (2 * n_pairs,)
        The superpixels that each touches, as places in ``leaves``; those of a node follow each
        other too.
    first_touching : ndarray of shape (count + 1,)
        Where those of each place in ``leaves`` begin.
    """

    count: int
    position: NDArray[np.intp]
    size: NDArray[np.intp]
    joined_by: NDArray[np.intp]
    pair_positions: NDArray[np.intp]
    leaves: NDArray[np.intp]
    first_leaf: NDArray[np.intp]
    touching: NDArray[np.intp]
    first_touching: NDArray[np.intp]

    @classmethod
    def build(cls, borders: Borders) -> MergeTree:
        """Merge the superpixels."""
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.abs(borders.evidence).sum(dtype=np.float64)
        if not np.isfinite(total):
            raise ValueError(
                "the evidence at the borders is not finite; the model may be damaged, use another"
            )
        children = merge_order(borders)
        n, merges = borders.count, len(children)
        size, parent = np.ones(n + merges, dtype=np.intp), np.full(n + merges, -1, dtype=np.intp)
        for number, (i, j) in enumerate(children, start=n):
            size[number] += size[i] + size[j]
            parent[i] = parent[j] = number
        position = np.zeros(n + merges, dtype=np.intp)
        roots = np.flatnonzero(parent < 0)
        position[roots] = np.cumsum(size[roots]) - size[roots]
        for number in range(n + merges - 1, n - 1, -1):
            i, j = children[number - n]
            position[i] = position[number] + 1
            position[j] = position[i] + size[i]
        # A parent has a higher number than its children: the lower of the two climbs.
        one, two = borders.one.copy(), borders.two.copy()
        apart = np.arange(len(one))
        while apart.size:
            climbs = one[apart] < two[apart]
            one[apart[climbs]] = parent[one[apart[climbs]]]
            two[apart[~climbs]] = parent[two[apart[~climbs]]]
            apart = apart[one[apart] != two[apart]]
        leaves = np.argsort(position[:n])
        is_leaf = np.zeros(n + merges, dtype=np.intp)
        is_leaf[position[:n]] = 1
        pairs = position[np.concatenate([borders.one, borders.two, one])]
        return cls(
            n, position, size, one, pairs, leaves, _running(is_leaf), *_touching(borders, leaves)
        )

    def sums(self, values: FloatArray) -> FloatArray:
        """Return for each node the sum of the values of its superpixels."""
        ordered = np.zeros(len(self.size))
        ordered[self.position[: self.count]] = values
        return self._node_sums(ordered)

    def within(self, values: FloatArray) -> FloatArray:
        """Return for each node the sum of the values of pairs that lie inside it."""
        joined = self.pair_positions[2 * len(values) :]
        return self._node_sums(self._count(joined, values))

    def sums_across(self, pairs: FloatArray, superpixels: FloatArray | float = 0.0) -> FloatArray:
        """Return for each node the sum of its superpixels and of the pairs across its border."""
        # A pair counts at both of its superpixels; where they are joined, it is taken off twice.
        ordered = self._count(self.pair_positions, np.concatenate([pairs, pairs, -2.0 * pairs]))
        ordered[self.position[: self.count]] += superpixels
        return self._node_sums(ordered)

    def places(self, node: int) -> slice:
        """Return which of the leaves a node is made of."""
        first = self.position[node]
        return slice(self.first_leaf[first], self.first_leaf[first + self.size[node]])

    def side(self, node: int) -> Side:
        """Return which superpixels a node is made of."""
        side = np.zeros(self.count, dtype=bool)
        side[self.leaves[self.places(node)]] = True
        return side

    def touched(self, node: int) -> NDArray[np.intp]:
        """Return places of leaves: all that touch one of a node, among them some of its own."""
        some = self.places(node)
        return self.touching[self.first_touching[some.start] : self.first_touching[some.stop]]

    def _count(self, positions: NDArray[np.intp], values: FloatArray) -> FloatArray:
        # Of no values at all bincount returns integers.
        return np.bincount(positions, values, len(self.size)).astype(np.float64, copy=False)

    def _node_sums(self, ordered: FloatArray) -> FloatArray:
        """Return for each node the sum of what it and its descendants have, by their positions."""
        total = np.zeros(len(ordered) + 1)
        np.cumsum(ordered, out=total[1:])
        return np.asarray(total.take(self.position + self.size) - total.take(self.position))


def _running(counts: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.concatenate([[0], np.cumsum(counts)])


def _touching(
    borders: Borders, leaves: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of the leaves that each leaf touches, and where those of each begin."""
    place = np.empty(borders.count, dtype=np.intp)
    place[leaves] = np.arange(borders.count)
    one = place[np.concatenate([borders.one, borders.two])]
    two = place[np.concatenate([borders.two, borders.one])]
    return two[np.argsort(one, kind="stable")], _running(np.bincount(one, minlength=borders.count))


def merge_order(borders: Borders) -> list[tuple[int, int]]:
    """Return the two nodes that each merge joins, by rising mean evidence of their border."""
    # Of each node what it touches: mean, evidence and length of their border.
    near: list[dict[int, tuple[float, float, float]]] = [{} for _ in range(borders.count)]
    means = borders.evidence / borders.length
    columns = (borders.one, borders.two, means, borders.evidence, borders.length)
    queue = []
    for i, j, *border in zip(*(column.tolist() for column in columns), strict=True):
        near[i][j] = near[j][i] = tuple(border)
        queue.append((border[0], i, j))
    heapq.heapify(queue)
    push, pop = heapq.heappush, heapq.heappop
    children: list[tuple[int, int]] = []
    while queue:
        mean, i, j = pop(queue)
        found = near[i].get(j)
        # Either was merged since, or the border has grown.
        if found is None or found[0] != mean:
            continue
        joint, others = near[i], near[j]
        near[i] = near[j] = {}
        del joint[j], others[i]
        for k in joint:
            del near[k][i]
        for k, border in others.items():
            del near[k][j]
            if k in joint:
                evidence, length = joint[k][1] + border[1], joint[k][2] + border[2]
                joint[k] = evidence / length, evidence, length
            else:
                joint[k] = border
        merged = len(near)
        for k, border in joint.items():
            near[k][merged] = border
            push(queue, (border[0], k, merged))
        near.append(joint)
        children.append((i, j))
    return children
