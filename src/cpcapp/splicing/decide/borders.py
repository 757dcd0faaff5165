"""Superpixels that touch, and the evidence along their common borders."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.decide.superpixels import Labels
from cpcapp.splicing.photo.pixels import FloatArray

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
