"""How well detected edges agree with drawn ones: the protocol of BSDS500."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numba
import numpy as np
from numpy.typing import NDArray

# Both as in the benchmark of BSDS500.
THRESHOLDS = np.arange(1, 100) / 100.0
# Two pixels correspond if they are no further apart than this share of the photo's diagonal.
MAX_DISTANCE = 0.0075


@dataclass(frozen=True)
class Counts:
    """Correspondences of one photo, or of many, at each threshold."""

    found: NDArray[np.int64]  # drawn pixels that were found, over all annotators
    drawn: NDArray[np.int64]
    right: NDArray[np.int64]  # detected pixels that any annotator drew
    detected: NDArray[np.int64]

    def __add__(self, other: Counts) -> Counts:
        mine, others = vars(self).values(), vars(other).values()
        return Counts(*(a + b for a, b in zip(mine, others, strict=True)))

    def at(self, threshold: int) -> Counts:
        """Return what it counts at one of the thresholds."""
        return Counts(*(part[threshold : threshold + 1] for part in vars(self).values()))

    @property
    def recall(self) -> NDArray[np.float64]:
        """Share of the drawn pixels that were found."""
        return self.found / np.maximum(self.drawn, 1)

    @property
    def precision(self) -> NDArray[np.float64]:
        """Share of the detected pixels that were drawn; 1 where nothing was detected."""
        return np.where(self.detected > 0, self.right / np.maximum(self.detected, 1), 1.0)

    @property
    def f_measure(self) -> NDArray[np.float64]:
        """Harmonic mean of precision and recall."""
        p, r = self.precision, self.recall
        return 2 * p * r / np.maximum(p + r, 1e-12)


@dataclass(frozen=True)
class EdgeScores:
    """The figures by which edge detectors are compared."""

    ods: float  # F-measure at the one threshold that is best over all photos
    ods_threshold: float
    ois: float  # F-measure with the best threshold for each photo
    ap: float  # area under precision over recall
    curve: Counts  # over all photos


def count_correspondences(
    edges: NDArray[Any],
    truths: Sequence[NDArray[np.bool_]],
    *,
    thresholds: NDArray[np.float64] = THRESHOLDS,
    thin: bool = True,
) -> Counts:
    """Compare a map of edge strength with the boundaries that people drew.

    ``thin``: thin the binary map at each threshold to lines of one pixel.

    From a one-to-one assignment of detected to drawn pixels with as many pairs as possible.
    """
    for truth in truths:
        if truth.shape != edges.shape:
            raise ValueError(f"edges have shape {edges.shape}, but a truth has {truth.shape}")
    radius = MAX_DISTANCE * float(np.hypot(*edges.shape))
    offsets = _disk(radius)
    drawn = sum(int(truth.sum()) for truth in truths)
    rows = []
    for threshold in thresholds:
        binary = edges >= threshold
        if thin and binary.any():
            binary = cv2.ximgproc.thinning(binary.astype(np.uint8) * 255) > 0
        pixels = np.argwhere(binary)
        matched = np.zeros(len(pixels), dtype=bool)
        found = 0
        for truth in truths:
            mine = match_pixels(pixels, truth, offsets)
            found += int(mine.sum())
            matched |= mine
        rows.append((found, drawn, int(matched.sum()), len(pixels)))
    return Counts(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


def summarize(counts: Iterable[Counts], thresholds: NDArray[np.float64] = THRESHOLDS) -> EdgeScores:
    """Return the scores over photos."""
    every = list(counts)
    if not every:
        raise ValueError("there are no counts to summarize")
    total = sum(every[1:], every[0])
    best = [one.at(int(one.f_measure.argmax())) for one in every]
    ois = sum(best[1:], best[0]).f_measure[0]
    top = int(total.f_measure.argmax())
    return EdgeScores(
        ods=float(total.f_measure[top]),
        ods_threshold=float(thresholds[top]),
        ois=float(ois),
        ap=_average_precision(total),
        curve=total,
    )


def _average_precision(counts: Counts) -> float:
    """Return the area under precision over recall, on a grid of recalls as in the protocol."""
    order = np.argsort(counts.recall)
    recall, precision = counts.recall[order], counts.precision[order]
    recall, first = np.unique(recall, return_index=True)
    grid = np.arange(101) / 100.0
    return float(np.interp(grid, recall, precision[first], left=0.0, right=0.0).sum() / 100.0)


def _disk(radius: float) -> NDArray[np.int64]:
    """Return the steps to all pixels within a radius, the nearest first."""
    reach = int(np.floor(radius))
    steps = np.array(
        [(i, j) for i in range(-reach, reach + 1) for j in range(-reach, reach + 1)], dtype=np.int64
    )
    length = np.hypot(steps[:, 0], steps[:, 1])
    inside = length <= radius
    return steps[inside][np.argsort(length[inside], kind="stable")]


def match_pixels(
    pixels: NDArray[np.int64], truth: NDArray[np.bool_], offsets: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which pixels have a partner of their own among the drawn ones.

    A maximum one-to-one assignment between ``pixels`` (n, 2) and the drawn pixels within reach.
    """
    number = np.full(truth.shape, -1, dtype=np.int64)
    number[truth] = np.arange(int(truth.sum()))
    return np.asarray(_assign(pixels, number, int(truth.sum()), offsets))


@numba.njit(nogil=True, cache=True)
def _assign(pixels, number, n_truth, offsets):
    """Find augmenting paths, pixel by pixel.

    A drawn pixel from which no path was found will not have one later. So all searches together
    visit each pair at most once or twice.
    """
    n, reach = pixels.shape[0], offsets.shape[0]
    height, width = number.shape
    partner = np.full(n_truth, -1, dtype=np.int64)
    dead = np.zeros(n_truth, dtype=np.bool_)
    seen = np.full(n_truth, -1, dtype=np.int64)
    matched = np.zeros(n, dtype=np.bool_)
    stack = np.empty(n + 1, dtype=np.int64)
    position = np.empty(n + 1, dtype=np.int64)
    via = np.empty(n + 1, dtype=np.int64)
    visited = np.empty(n_truth, dtype=np.int64)
    for start in range(n):
        depth, n_visited = 0, 0
        stack[0], position[0] = start, 0
        success = False
        while depth >= 0 and not success:
            d = stack[depth]
            advanced = False
            while position[depth] < reach:
                k = position[depth]
                position[depth] += 1
                r, c = pixels[d, 0] + offsets[k, 0], pixels[d, 1] + offsets[k, 1]
                if r < 0 or c < 0 or r >= height or c >= width:
                    continue
                t = number[r, c]
                if t < 0 or dead[t] or seen[t] == start:
                    continue
                seen[t] = start
                visited[n_visited] = t
                n_visited += 1
                via[depth] = t
                if partner[t] < 0:
                    success = True
                else:
                    depth += 1
                    stack[depth], position[depth] = partner[t], 0
                advanced = True
                break
            if not advanced:
                depth -= 1
        if success:
            for level in range(depth, -1, -1):
                partner[via[level]] = stack[level]
            matched[start] = True
        else:
            for i in range(n_visited):
                dead[visited[i]] = True
    return matched
