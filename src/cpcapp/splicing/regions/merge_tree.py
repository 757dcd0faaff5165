"""The tree of successive merges of superpixels."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photos.pixels import FloatArray
from cpcapp.splicing.regions.borders import Borders, Side


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
    leaves: NDArray[np.intp]
    first_leaf: NDArray[np.intp]
    touching: NDArray[np.intp]
    first_touching: NDArray[np.intp]

    @classmethod
    def build(cls, borders: Borders) -> MergeTree:
        """Merge the superpixels.

        Raises
        ------
        ValueError
            If the evidence is not finite, also in sum: its order would have no meaning, and the
            climbing below no end.
        """
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
        return cls(n, position, size, one, leaves, _running(is_leaf), *_touching(borders, leaves))

    def sums(self, values: FloatArray) -> FloatArray:
        """Return for each node the sum of the values of its superpixels."""
        return self._node_sums(np.concatenate([values, np.zeros(len(self.size) - self.count)]))

    def within(self, values: FloatArray) -> FloatArray:
        """Return for each node the sum of the values of pairs that lie inside it."""
        return self._node_sums(
            np.bincount(self.joined_by, values, len(self.size)).astype(np.float64)
        )

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

    def _node_sums(self, values: FloatArray) -> FloatArray:
        ordered = np.empty(len(values))
        ordered[self.position] = values
        total = np.concatenate([[0.0], np.cumsum(ordered)])
        return np.asarray(total[self.position + self.size] - total[self.position])


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
