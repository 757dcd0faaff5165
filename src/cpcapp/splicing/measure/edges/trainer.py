"""Training a structured edge forest (Dollár and Zitnick 2013) on human segmentations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import map_threads
from cpcapp.splicing.datasets.sources import BSDSPhoto
from cpcapp.splicing.measure.edges._grow import gather_bins, gather_values, grow
from cpcapp.splicing.measure.edges.features import (
    EdgeOptions,
    FeatureTable,
    feature_maps,
    feature_table,
)
from cpcapp.splicing.measure.edges.forest import Forest

# As many as a byte can number: features are compared by bins.
_N_BINS = 256
# Nodes that lie together in memory: three lists of 32 numbers, two cache lines each.
_NODES_TOGETHER = 30
# Rough share of the time of a tree that gathering its patches takes, for progress.
_GATHERING = 0.4
# Patches from which the bounds of the bins are taken; chosen by hand, 80 for each bin.
_SAMPLES_FOR_BINS = 20_000

# Of the method's authors, but for the last: the share of the features that a tree may use at all,
# pixel pairs that describe a segmentation patch at a node, fewest patches in a child, and depth.
_FEATURE_SHARE = 0.25
_N_PAIRS = 256
_MIN_CHILD = 8
_MAX_DEPTH = 64
# A question is left out if at least this share of its patches ends in "no edge" whatever the
# answer: most of a photo has no edge, and is decided sooner.
_FLAT_SHARE = 0.9


@dataclass
class _Photo:
    """A training photo, and where patches can be cut from it."""

    image: NDArray[np.float32]
    segmentations: list[NDArray[np.uint8]]
    near: list[NDArray[np.bool_]]  # for each annotator, patch positions on a boundary

    def mirror(self) -> _Photo:
        return _Photo(
            np.ascontiguousarray(self.image[:, ::-1]),
            [segments[:, ::-1] for segments in self.segmentations],
            [near[:, ::-1] for near in self.near],
        )


def train_forest(
    photos: Sequence[BSDSPhoto],
    options: EdgeOptions,
    *,
    n_samples: int,
    seed: int = 0,
    jobs: int = 2,
    progress: Callable[[float], None] | None = None,
) -> Forest:
    """Train a forest.

    ``n_samples``: patches for each tree, half of them on boundaries. ``jobs``: trees grown at the
    same time; each holds about 2 GB for a million patches.
    """
    done = np.zeros(options.numberOfTrees)  # the share of each tree, which trees write
    with _reported(done, progress):
        read = list(map_threads(partial(_read, options), photos, jobs=jobs))
        grow_tree = partial(_grow_tree, read, options, n_samples, seed, done)
        trees = list(map_threads(grow_tree, range(len(done)), jobs=jobs))
    return _plant(trees, options)


@contextmanager
def _reported(
    shares: NDArray[np.float64], progress: Callable[[float], None] | None
) -> Iterator[None]:
    """Report the mean of shares each second, as compiled code can't call back."""
    if progress is None:
        yield
        return
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(1.0):
            progress(float(shares.mean()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
    progress(1.0)


def _read(options: EdgeOptions, photo: BSDSPhoto) -> _Photo:
    image = photo.image()
    inner, stride = options.patchInnerSize, options.stride
    segmentations, near = [], []
    for segments, boundary in zip(photo.segmentations(), photo.boundaries(), strict=True):
        # Segments are only compared for equality, so their number modulo 256 is enough.
        segmentations.append((segments & 255).astype(np.uint8))
        distance = cv2.distanceTransform((~boundary).astype(np.uint8), cv2.DIST_L2, 5)
        centres = distance[inner // 2 :: stride, inner // 2 :: stride]
        rows, cols = ((n - inner) // stride + 1 for n in boundary.shape)
        near.append(centres[:rows, :cols] <= inner / 2)
    return _Photo(image, segmentations, near)


def _sample_positions(
    photos: list[_Photo], n_samples: int, rng: np.random.Generator
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return for each photo the annotator and patch position of its samples.

    Half of the samples lie on a boundary, and every annotator of every photo has the same share.
    """
    share = n_samples / (2 * len(photos))
    chosen = []
    for photo in photos:
        positions, annotators = [], []
        for a, near in enumerate(photo.near):
            for wanted in (True, False):
                places = np.argwhere(near == wanted)
                n = min(len(places), int(np.ceil(share / len(photo.near))))
                positions.append(places[rng.permutation(len(places))[:n]])
                annotators.append(np.full(n, a))
        chosen.append((np.concatenate(annotators), np.concatenate(positions)))
    return chosen


def _grow_tree(
    photos: list[_Photo],
    options: EdgeOptions,
    n_samples: int,
    seed: int,
    done: NDArray[np.float64],
    number: int,
) -> tuple[Any, ...]:
    rng = np.random.default_rng([seed, number])
    table = feature_table(options)
    n_used = max(1, round(options.n_features * _FEATURE_SHARE))
    ids = np.sort(rng.permutation(options.n_features)[:n_used])
    photos = [p.mirror() if rng.random() < 0.5 else p for p in photos]
    chosen = _sample_positions(photos, n_samples, rng)
    edges = _bin_edges(photos, chosen, ids, table, options, rng)
    n = sum(len(annotators) for annotators, _ in chosen)
    binned = np.empty((len(ids), n), dtype=np.uint8)
    labels = np.empty((n, options.patchInnerSize**2), dtype=np.uint8)
    first = 0
    for i, (photo, (annotators, positions)) in enumerate(zip(photos, chosen, strict=True)):
        gather_bins(
            *feature_maps(photo.image, options),
            positions * (options.stride // options.shrinkNumber),
            ids,
            *table,
            options.n_regular,
            edges,
            binned,
            first,
        )
        _gather_labels(photo, annotators, positions, options, labels[first:])
        first += len(annotators)
        done[number] = _GATHERING * (i + 1) / len(photos)
    n_candidates = max(1, round(np.sqrt(len(ids))))
    feature, split, child, chosen_sample, size = grow(
        binned,
        labels,
        n_candidates,
        _N_PAIRS,
        _MIN_CHILD,
        _MAX_DEPTH,
        int(rng.integers(2**31)),
        done[number : number + 1],
    )
    patches = labels[chosen_sample].reshape(-1, options.patchInnerSize, options.patchInnerSize)
    bins = [_edge_bins(p) if not c else _NO_BINS for p, c in zip(patches, child, strict=True)]
    child = _prune(child, size, np.array([len(b) == 0 for b in bins]))
    order, child = _lay_out(child, size)
    feature, split = feature[order], split[order]
    leaf = child == 0
    thresholds = np.where(leaf, 0.0, edges[feature, np.minimum(split, _N_BINS - 2)])
    return (
        np.where(leaf, 0, child + 1).astype(np.int32),
        np.where(leaf, 0, ids[feature]).astype(np.int32),
        _round_digits(thresholds),
        [bins[node] for node in order],
    )


_NO_BINS = np.empty(0, dtype=np.int32)


def _prune(
    child: NDArray[np.int32],
    size: NDArray[np.int64],
    empty: NDArray[np.bool_],
) -> NDArray[np.int32]:
    """Return the children without the splits that nearly always end in "no edge"."""
    flat = np.where((child == 0) & empty, size, 0)
    for node in range(len(child) - 1, -1, -1):  # children come after their parents
        if child[node]:
            flat[node] = flat[child[node]] + flat[child[node] + 1]
    return np.where(flat >= _FLAT_SHARE * size, 0, child).astype(np.int32)


def _lay_out(
    child: NDArray[np.int32], size: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the reachable nodes in a new order, and their children in it.

    In this order a walk from the root stays in nearby memory, which makes it twice as fast. A block
    holds the nodes below its first one that are visited most often.
    """
    order = np.zeros(len(child), dtype=np.int64)
    moved = np.zeros(len(child), dtype=np.int32)
    placed, waiting = 1, [0]
    while waiting:
        block = [(0, waiting.pop())]
        until = placed + _NODES_TOGETHER
        while block and placed < until:
            _, place = heappop(block)
            left = child[order[place]]
            if not left:
                continue
            moved[place] = placed
            for node in (left, left + 1):
                order[placed] = node
                if child[node]:
                    heappush(block, (-int(size[node]), placed))
                placed += 1
        waiting += [place for _, place in sorted(block, reverse=True)]
    return order[:placed], moved[:placed]


def _round_digits(thresholds: NDArray[Any]) -> NDArray[np.float32]:
    """Round to four digits: the file is a seventh smaller, edges change by a hundredth at most."""
    size = np.where(thresholds == 0.0, 1.0, np.abs(thresholds))
    unit = 10.0 ** (np.floor(np.log10(size)) - 3)
    return np.asarray(np.round(thresholds / unit) * unit, dtype=np.float32)


def _bin_edges(
    photos: list[_Photo],
    chosen: list[Any],
    ids: NDArray[np.int64],
    table: FeatureTable,
    options: EdgeOptions,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Return for each feature 255 thresholds that split a sample of patches evenly."""
    each = max(1, _SAMPLES_FOR_BINS // len(photos))
    values = []
    for photo, (_, positions) in zip(photos, chosen, strict=True):
        some = positions[rng.permutation(len(positions))[:each]]
        corner = some * (options.stride // options.shrinkNumber)
        block = np.empty((len(corner), len(ids)), dtype=np.float32)
        maps = feature_maps(photo.image, options)
        gather_values(*maps, corner, ids, *table, options.n_regular, block)
        values.append(block)
    levels = np.arange(1, _N_BINS) / _N_BINS
    stacked = np.sort(np.concatenate(values), axis=0)
    rows = np.round(levels * (len(stacked) - 1)).astype(int)
    return np.ascontiguousarray(stacked[rows].T)


def _gather_labels(
    photo: _Photo, annotators: Any, positions: Any, options: EdgeOptions, out: NDArray[np.uint8]
) -> None:
    inner = options.patchInnerSize
    for a, segments in enumerate(photo.segmentations):
        windows = np.lib.stride_tricks.sliding_window_view(segments, (inner, inner))
        mine = np.flatnonzero(annotators == a)
        rows, cols = (positions[mine] * options.stride).T
        out[mine] = windows[rows, cols].reshape(len(mine), -1)


def _edge_bins(patch: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return the pixels of a segmentation patch that lie beside another segment.

    In OpenCV's order, which runs down the columns.
    """
    edge = np.zeros(patch.shape, dtype=bool)
    for axis in (0, 1):
        differs = np.diff(patch, axis=axis) != 0
        before = [slice(None), slice(None)]
        after = [slice(None), slice(None)]
        before[axis], after[axis] = slice(None, -1), slice(1, None)
        edge[tuple(before)] |= differs
        edge[tuple(after)] |= differs
    return np.flatnonzero(edge.T.ravel()).astype(np.int32)


def _plant(trees: list[tuple[Any, ...]], options: EdgeOptions) -> Forest:
    """Put trees of different sizes into one forest: the smaller ones get unreachable leaves."""
    n_nodes = max(len(child) for child, _, _, _ in trees)

    def pad(column: int, dtype: Any) -> NDArray[Any]:
        out = np.zeros((len(trees), n_nodes), dtype=dtype)
        for row, tree in zip(out, trees, strict=True):
            row[: len(tree[column])] = tree[column]
        return out

    counts = np.zeros((len(trees), n_nodes), dtype=np.int64)
    for row, tree in zip(counts, trees, strict=True):
        row[: len(tree[3])] = [len(b) for b in tree[3]]
    bounds = np.concatenate([[0], np.cumsum(counts.ravel())]).astype(np.int32)
    bins = np.concatenate([b for tree in trees for b in tree[3]])
    return Forest(
        replace(options, numberOfTrees=len(trees)),
        pad(0, np.int32),
        pad(1, np.int32),
        pad(2, np.float32),
        bounds,
        bins,
    )
