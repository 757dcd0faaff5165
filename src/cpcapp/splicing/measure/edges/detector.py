"""Detecting edges with a structured forest: all patches go down their trees together.

The steps and their rounding are those of OpenCV's ``StructuredEdgeDetection``, whose features are
used. There are two differences. A forest is read from a file in milliseconds. And one level of the
trees is one operation on many patches, which waits less for memory than one patch after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import map_threads, spare_threads
from cpcapp.splicing.measure.edges.features import EdgeOptions, feature_table, smooth_maps, triangle
from cpcapp.splicing.measure.edges.forest import Forest
from cpcapp.splicing.photo.pixels import FloatMap, as_unit_float

# The strength at which thinned edges agree best with people, on validation photos of BSDS500, by a
# forest trained without them.
BEST_THRESHOLD = 0.085

# With it, each pixel lies in as many patches as any other, also at the border of the photo.
_MARGIN = 16

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


class EdgeDetector:
    """A structured edge detector.

    Parameters
    ----------
    forest : path or Forest, optional
        A forest that `Forest.save` wrote, or one in OpenCV's format; by default the one that
        comes with the package. It is checked before it is used.
    """

    def __init__(self, forest: str | os.PathLike[str] | Forest | None = None) -> None:
        if forest is None:
            with as_file(files("cpcapp.splicing.measure.edges") / "forest.safetensors.gz") as path:
                forest = Forest.load(path)
        elif not isinstance(forest, Forest):
            forest = Forest.load(forest)
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

    def detect(self, image: Any, *, scales: Sequence[float] = (1.0,)) -> NDArray[np.float32]:
        """Return the strength of the edge at each pixel.

        ``image``: grey, RGB or RGBA; whole numbers of 8 or 16 bits, or floats in [0, 1].

        ``scales``: sizes at which edges are detected; the mean is returned. ``(0.5, 1.0, 2.0)`` is
        more accurate and takes five times as long.
        """
        rgb = _as_rgb(image)
        if not len(scales) or not all(np.isfinite(s) and 0.0 < s <= 8.0 for s in scales):
            raise ValueError(f"scales={scales!r} must be numbers above 0 and at most 8")
        total = self._detect_at(rgb, scales[0])
        for scale in scales[1:]:
            total += self._detect_at(rgb, scale)
        total /= len(scales)
        return np.clip(total, 0.0, 1.0, out=total)

    def _detect_at(self, rgb: NDArray[Any], scale: float) -> FloatMap:
        if scale == 1.0:
            return self._detect_once(rgb)
        height, width = rgb.shape[:2]
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        resized = cv2.resize(
            rgb if rgb.dtype == np.float32 else as_unit_float(rgb),
            size,
            interpolation=cv2.INTER_AREA if scale < 1.0 else cv2.INTER_LINEAR,
        )
        edges = self._detect_once(resized)
        return np.asarray(cv2.resize(edges, (width, height), interpolation=cv2.INTER_LINEAR))

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

    def _detect_once(self, image: NDArray[Any]) -> FloatMap:
        """Return the strength of the edge at each pixel, at the size of the photo."""
        o = self.options
        height, width = image.shape[:2]
        row_of, col_of = (_mirror_indices(n, o.padding) for n in (height, width))
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
            strip = counts[_MARGIN + some.start - 1 : _MARGIN + some.stop + 1]
            smooth = triangle(sums.take(strip), 1)
            edges[some.start : some.stop] = smooth[1:-1, _MARGIN : _MARGIN + width]
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


def detect_edges(image: Any, *, scales: Sequence[float] = (1.0,)) -> NDArray[np.float32]:
    """Return the strength of the edge at each pixel, with the shipped detector.

    Parameters
    ----------
    image : array-like of shape (height, width[, channels])
        Grey, RGB or RGBA; whole numbers of 8 or 16 bits, or floats in [0, 1].
    scales : sequence of float, default=(1.0,)

    Returns
    -------
    ndarray of shape (height, width), float32 in [0, 1]

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((60, 80), dtype=np.uint8)
    >>> image[:, 40:] = 200
    >>> int(detect_edges(image)[30].argmax()) in (39, 40)
    True
    """
    return _default_detector().detect(image, scales=scales)


@lru_cache(maxsize=1)
def _default_detector() -> EdgeDetector:
    """Return the detector that comes with the package, loaded once."""
    return EdgeDetector()


def _as_rgb(image: Any) -> NDArray[Any]:
    """Return an image as (height, width, 3), as it is or in float32 in [0, 1]; alpha is dropped."""
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 2, 3, 4) or pixels.size == 0:
        raise ValueError(
            f"image has shape {np.shape(image)}; it must be (height, width) or (height, width, "
            "channels) with 1 to 4 channels"
        )
    if pixels.dtype == bool:
        pixels = pixels.astype(np.float32)
    elif pixels.dtype.kind == "f":
        # A NaN is the minimum and no number.
        if not (pixels.min() >= 0.0 and pixels.max() <= 1.0):
            raise ValueError("an image of floats must lie in [0, 1] without NaN")
        pixels = pixels.astype(np.float32, copy=False)
    elif pixels.dtype not in (np.uint8, np.uint16):
        raise ValueError(f"image has dtype {pixels.dtype}; it must be uint8, uint16, bool or float")
    colours = pixels[:, :, :1] if pixels.shape[2] < 3 else pixels[:, :, :3]
    return np.ascontiguousarray(np.broadcast_to(colours, (*pixels.shape[:2], 3)))


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


def _mirror_indices(n: int, padding: int) -> Indices:
    """Return which pixels a side has after both borders were put around it."""
    side = np.arange(n, dtype=np.int32)[:, None]
    # The length is made even, because OpenCV halves it.
    side = cv2.copyMakeBorder(side, _MARGIN, _MARGIN + n % 2, 0, 0, cv2.BORDER_REFLECT)
    side = cv2.copyMakeBorder(side, padding, padding, 0, 0, cv2.BORDER_REFLECT)
    return np.asarray(side[:, 0], dtype=np.intp)


def _cut(image: NDArray[Any], rows: Indices, cols: Indices) -> FloatMap:
    """Return a part of the photo with its borders; floats of the whole would take much memory."""
    left, right = cols.min(), cols.max() + 1
    part = image[rows, left:right].take(cols - left, axis=1)
    return part if part.dtype == np.float32 else as_unit_float(part)


def thin_edges(edges: NDArray[np.float32], *, border: int = 0) -> NDArray[np.float32]:
    """Keep an edge only where it is strongest across its direction.

    ``border``: fade out edges closer than this to the border of the photo, where the detector
    uses reflected pixels. The scores on BSDS500 use 5.
    """
    edges = np.ascontiguousarray(edges, dtype=np.float32)
    if edges.ndim != 2 or edges.size == 0:
        raise ValueError(f"edges have shape {edges.shape}; they must be (height, width)")
    # OpenCV's suppression reads outside of a map that is one pixel wide.
    padded = cv2.copyMakeBorder(edges, 4, 4, 4, 4, cv2.BORDER_REPLICATE)
    engine = _opencv()
    orientation = engine.computeOrientation(padded)
    thinned = engine.edgesNms(padded, orientation, r=2, s=0, m=1.01, isParallel=True)
    return np.ascontiguousarray(thinned[4:-4, 4:-4] * _fade(edges.shape, border))


@lru_cache(maxsize=1)
def _opencv() -> Any:
    """Return OpenCV's engine to thin edges. It works with any forest: here one without splits."""
    trivial = Forest(
        EdgeOptions(numberOfTrees=1, numberOfTreesToEvaluate=1),
        childs=np.zeros((1, 1), np.int32),
        featureIds=np.zeros((1, 1), np.int32),
        thresholds=np.zeros((1, 1), np.float32),
        edgeBoundaries=np.zeros(2, np.int32),
        edgeBins=np.zeros(1, np.int32),
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trivial.yml"
        trivial.save(path)
        return cv2.ximgproc.createStructuredEdgeDetection(str(path))


def _fade(shape: tuple[int, ...], border: int) -> NDArray[np.float32]:
    """Return a map that rises from 0 at the border to 1 at a distance of ``border`` pixels."""
    if border < 0:
        raise ValueError(f"border={border} must be at least 0")
    ramps = []
    for n in shape:
        distance = np.minimum(np.arange(n), np.arange(n)[::-1])
        ramps.append(np.minimum(distance / max(border, 1), 1.0) if border else np.ones(n))
    return np.multiply.outer(*ramps).astype(np.float32)
