"""Running a structured forest on a photo: all patches go down their trees together.

The steps and their rounding are those of OpenCV's ``StructuredEdgeDetection``, whose features are
used. There are two differences. A forest is read from a file in milliseconds. And one level of the
trees is one operation on many patches, which waits less for memory than one patch after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from threading import Lock
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import map_threads, spare_threads
from cpcapp.splicing.measure.edges.features import EdgeOptions, feature_table, smooth_maps, triangle
from cpcapp.splicing.measure.edges.forest import Forest

# The integer type that NumPy uses for indexing: others would be converted each time.
Indices = NDArray[np.intp]

# All were chosen by hand for speed; the result does not depend on them.
# Pixels down and across whose features are computed together.
_TILE = (768, 1024)
# Walks that are done together: one for each patch and each of its trees.
_WALKS_TOGETHER = 3 << 14
# Walks that have reached a leaf are removed when they are more than one in this many.
_ARRIVED = 4
# Lower tiles would compute more features twice than is won by another thread.
_MIN_PATCHES_DOWN = 64
_ROWS_PER_STRIP = 256


# The data of a node side by side, for one memory access: the number of its right child, the
# positions in the maps of a tile of the two values whose difference it tests, and the threshold.
_NODE = np.dtype([("child", "i4"), ("ahead", "i4"), ("behind", "i4"), ("threshold", "f4")])


class ForestEngine:
    """Finds edges with a forest.

    Parameters
    ----------
    forest : Forest
    """

    def __init__(self, forest: Forest) -> None:
        self.options = o = forest.options
        self._tile = [max(1, n // o.stride) for n in _TILE]
        side = [o.stride // o.shrinkNumber * (n - 1) + o.width for n in self._tile]
        # Channels are followed by a 0; those of a pixel begin at the start of a cache line.
        self._maps_shape = (2, *side, 16 * (o.n_channels // 16 + 1))
        self._pitch = o.stride * (self._tile[1] - 1) + o.patchInnerSize
        n_trees, n_nodes = forest.childs.shape
        self._roots: Indices = np.arange(0, n_trees * n_nodes, n_nodes)
        self._nodes = self._all_nodes(forest).view(np.complex128)
        self._first: Indices = forest.edgeBoundaries.astype(np.intp)
        col, row = np.indices((o.patchInnerSize, o.patchInnerSize), dtype=np.int32)
        pixel = np.tile((row * self._pitch + col).ravel(), o.n_channels)
        self._pixels = pixel.take(forest.edgeBins)

    def _all_nodes(self, forest: Forest) -> NDArray[Any]:
        o, table = self.options, feature_table(self.options)
        _, height, width, depth = self._maps_shape
        ahead = (table.rows1 * width + table.cols1) * depth + table.channels
        behind = (table.rows2 * width + table.cols2) * depth + table.channels
        ahead[o.n_regular :] += height * width * depth
        behind[o.n_regular :] += height * width * depth
        # A feature that is a single value subtracts the 0 after the channels.
        behind[: o.n_regular] = o.n_channels
        childs = forest.childs.ravel()
        leaf = childs == 0
        feature = np.where(leaf, 0, forest.featureIds.ravel())
        nodes = np.empty(leaf.size, dtype=_NODE)
        # A leaf is its own child on both sides: a walk that has arrived stays there.
        right = childs + np.repeat(self._roots, forest.childs.shape[1])
        nodes["child"] = np.where(leaf, np.arange(leaf.size), right)
        nodes["threshold"] = np.where(leaf, -np.inf, forest.thresholds.ravel())
        nodes["ahead"], nodes["behind"] = ahead.take(feature), behind.take(feature)
        return nodes

    def detect(self, image: NDArray[np.float32], margin: int) -> NDArray[np.float32]:
        """Return the strength of the edge at each pixel.

        ``margin``: pixels that are added around the photo by reflection, and processed like the
        photo; at least 1.
        """
        o = self.options
        height, width = image.shape[:2]
        row_of, col_of = (_mirror_indices(n, margin, o.padding) for n in (height, width))
        counts = np.zeros([len(side) - 2 * o.padding for side in (row_of, col_of)], dtype=np.int32)
        down, across = (_n_patches(len(side), o) for side in (row_of, col_of))
        tiles = self._tiles(down, across)
        jobs = min(spare_threads(), len(tiles))
        buffers = SimpleQueue[NDArray[np.float32]]()
        for _ in range(jobs):
            buffers.put(np.zeros(self._maps_shape, dtype=np.float32))
        lock = Lock()

        def count(tile: tuple[range, range]) -> None:
            maps, (rows, cols) = buffers.get(), tile
            tall, wide = (_side(some, o, n) for some, n in ((rows, row_of), (cols, col_of)))
            pixels = _cut(image, row_of[tall.pixels], col_of[wide.pixels])
            for kept, smooth in zip(maps, smooth_maps(pixels, o), strict=True):
                part = smooth[tall.kept, wide.kept]
                kept[: part.shape[0], : part.shape[1], : o.n_channels] = part
            self._count(counts, maps, rows, cols, lock)
            buffers.put(maps)

        for _ in map_threads(count, tiles, jobs=jobs, divide_cores=False):
            pass
        edges = np.empty((height, width), dtype=np.float32)
        sums = self._sums(int(counts.max(initial=0)))
        for some in _split(height, _ROWS_PER_STRIP):
            # The filter sees one row more on either side.
            strip = counts[margin + some.start - 1 : margin + some.stop + 1]
            smooth = triangle(sums.take(strip), 1)
            edges[some.start : some.stop] = smooth[1:-1, margin : margin + width]
        return edges

    def _tiles(self, down: int, across: int) -> list[tuple[range, range]]:
        """Divide the patches into tiles of about one size, at least one for each thread."""
        rows = -(-down // self._tile[0])
        cols = -(-across // self._tile[1])
        if rows * cols < spare_threads():
            rows = min(spare_threads(), max(1, down // _MIN_PATCHES_DOWN))
        parts = [
            [range(n * i // count, n * (i + 1) // count) for i in range(count)]
            for n, count in ((down, rows), (across, cols))
        ]
        return [(some, others) for some in parts[0] for others in parts[1]]

    def _sums(self, most: int) -> NDArray[np.float32]:
        """Return the strength of an edge by the number of votes for it, up to ``most``."""
        o = self.options
        # As in OpenCV, the sum is rounded after each addition.
        step = np.float32(2.0 * o.stride**2 / o.patchInnerSize**2 / o.numberOfTreesToEvaluate)
        sums = np.zeros(most + 1, dtype=np.float32)
        np.add.accumulate(np.full(most, step), out=sums[1:])
        return sums

    def _count(
        self,
        counts: NDArray[np.int32],
        maps: NDArray[np.float32],
        rows: range,
        cols: range,
        lock: Lock,
    ) -> None:
        """Add the votes of the patches of a tile; those of neighbouring tiles overlap."""
        o = self.options
        left = slice(o.stride * cols.start, o.stride * (cols.stop - 1) + o.patchInnerSize)
        together = max(1, _WALKS_TOGETHER // (len(cols) * o.numberOfTreesToEvaluate))
        for some in _split(len(rows), together):
            row, col = np.arange(some.start, some.stop)[:, None], np.arange(len(cols))
            tree = (row + rows.start + col + cols.start) % (2 * o.numberOfTreesToEvaluate)
            corner = o.stride // o.shrinkNumber * (row * maps.shape[2] + col) * maps.shape[3]
            leaves = self._descend(maps.ravel(), corner.ravel(), tree.ravel())
            top = o.stride * (rows.start + some.start)
            band = counts[top : top + o.stride * (len(some) - 1) + o.patchInnerSize, left]
            corner = o.stride * ((row - some.start) * self._pitch + col)
            votes = self._votes(leaves, corner.ravel(), len(band))[:, : band.shape[1]]
            with lock:
                band += votes

    def _descend(self, values: NDArray[np.float32], corner: Indices, tree: Indices) -> Indices:
        """Return the leaf that each patch reaches in each of its trees, (patches * trees,)."""
        o = self.options
        tree = (tree[:, None] + np.arange(o.numberOfTreesToEvaluate)) % o.numberOfTrees
        node = self._roots.take(tree.ravel())
        place = np.repeat(corner, o.numberOfTreesToEvaluate)
        leaves, going = node.copy(), np.arange(node.size)
        while node.size:
            here = self._nodes.take(node).view(_NODE)
            difference = values.take(here["ahead"] + place)
            difference -= values.take(here["behind"] + place)
            after = here["child"] - (difference < here["threshold"]).astype(np.intp)
            arrived = after == node
            node = after
            if np.count_nonzero(arrived) * _ARRIVED > node.size:
                leaves[going[arrived]] = node[arrived]
                goes = np.flatnonzero(~arrived)
                node, place, going = node.take(goes), place.take(goes), going.take(goes)
        return leaves

    def _votes(self, leaves: Indices, corner: Indices, rows: int) -> NDArray[np.intp]:
        """Return for each pixel how many leaves have an edge there, (rows, pitch)."""
        first = self._first.take(leaves)
        number = self._first.take(leaves + 1) - first
        voting = np.flatnonzero(number)
        first, number = first.take(voting), number.take(voting)
        corner = corner.take(voting // self.options.numberOfTreesToEvaluate)
        # The pixels of all leaves, one leaf after the other, each counted up from its first pixel.
        before = np.cumsum(number) - number
        which = np.repeat(first - before, number)
        which += np.arange(which.size)
        pixel = np.repeat(corner, number)
        pixel += self._pixels.take(which)
        return np.bincount(pixel, minlength=rows * self._pitch).reshape(rows, self._pitch)


class _Side(NamedTuple):
    """One side of a tile: pixels of the photo with its borders, and pixels of the maps to keep."""

    pixels: slice
    kept: slice


def _side(patches: range, options: EdgeOptions, line: Indices) -> _Side:
    shrink, step = options.shrinkNumber, options.stride // options.shrinkNumber
    first, last = patches.start * step, (patches.stop - 1) * step + options.width
    # Gradients are also computed at half the size: every tile must halve the same pairs of pixels.
    unit = 2 * shrink
    start = max(first * shrink - options.reach, 0) // unit * unit
    stop = min(-(-(last * shrink + options.reach) // unit) * unit, len(line))
    return _Side(slice(start, stop), slice(first - start // shrink, last - start // shrink))


def _n_patches(length: int, options: EdgeOptions) -> int:
    seen = length // options.shrinkNumber * options.shrinkNumber
    return -(-(seen - options.patchSize) // options.stride)


def _split(n: int, size: int) -> Iterator[range]:
    for first in range(0, n, size):
        yield range(first, min(first + size, n))


def _mirror_indices(n: int, margin: int, padding: int) -> Indices:
    """Return which pixels a side has after both borders were put around it."""
    side = np.arange(n, dtype=np.int32)[:, None]
    # The length is made even, because OpenCV halves it.
    side = cv2.copyMakeBorder(side, margin, margin + n % 2, 0, 0, cv2.BORDER_REFLECT)
    side = cv2.copyMakeBorder(side, padding, padding, 0, 0, cv2.BORDER_REFLECT)
    return np.asarray(side[:, 0], dtype=np.intp)


def _cut(image: NDArray[np.float32], rows: Indices, cols: Indices) -> NDArray[np.float32]:
    """Return a part of the photo with its borders."""
    left, right = cols.min(), cols.max() + 1
    return np.asarray(image[rows, left:right].take(cols - left, axis=1))
