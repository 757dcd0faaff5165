"""What is measured in a photo to judge it."""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np

from cpcapp.splicing.decide.verdict_options import VerdictOptions
from cpcapp.splicing.measure.boundary import BoundaryMap
from cpcapp.splicing.measure.mosaic import MosaicLevels
from cpcapp.splicing.measure.network import LearnedTraces
from cpcapp.splicing.photo.jpeg_grid import grid_strength
from cpcapp.splicing.photo.pixels import FloatArray, FloatMap

# Logarithms of smaller values are not taken.
_TINY = 1e-6
# A pasted part is seen in several blocks; a single one may be an accident.
_PASTED_BLOCKS = 3


class PhotoFeatures(NamedTuple):
    """What is measured in a photo to judge it.

    Attributes
    ----------
    peak : float
        The quantile of the strengths of squares that one in a thousand exceeds: those of
        `seam_strengths` above the photo's own level if there is a network, else of
        `patch_strengths`.
    mean : float
        Logarithm of the mean value of the boundary map, before it was divided by its maximum.
        Photos with much fine detail have more of both: what counts is the peak for such a mean.
    level : float
        Logarithm of how clearly the photo shows a camera's mosaic.
    opposite_phase : float
        How strongly a part of the photo shows another mosaic. For both see
        `cpcapp.splicing.measure.mosaic.MosaicLevels`.
    compression : float
        How clearly the photo shows JPEG's grid; see `cpcapp.splicing.photo.jpeg_grid`. It is no
        evidence by itself, but photos are compared with similar ones.
    learned : tuple of float
        If there is a network: the highest evidence for a pasted part, above its median, and the
        peak of the filters.
    """

    peak: float
    mean: float
    level: float
    opposite_phase: float
    compression: float
    learned: tuple[float, ...] = ()

    @property
    def score_features(self) -> FloatArray:
        """What the score is a weighted sum of: all but compression."""
        return np.array([*self[:4], *self.learned])

    @property
    def similarity_features(self) -> FloatArray:
        """What photos are compared by: mean, level and compression."""
        return np.array([self.mean, self.level, self.compression])

    @classmethod
    def measure(
        cls,
        image: FloatMap,
        boundary: BoundaryMap,
        levels: MosaicLevels,
        options: VerdictOptions,
        traces: LearnedTraces | None = None,
    ) -> tuple[PhotoFeatures, FloatMap]:
        """Measure a photo."""
        scale = max(boundary.scale, _TINY)
        strengths = patch_strengths(boundary, options.patch_size)
        learned: tuple[float, ...] = ()
        if traces is not None:
            pasted = cv2.blur(traces.pasted, (_PASTED_BLOCKS, _PASTED_BLOCKS))
            filters_peak = float(np.quantile(strengths, options.peak_quantile))
            above = np.quantile(pasted, options.peak_quantile) - np.median(pasted)
            learned = float(above), filters_peak
            strengths = seam_strengths(traces.seam, options.patch_size)
            level = np.quantile(strengths, options.background_quantile(strengths.size))
            strengths -= level.astype(np.float32)
        features = cls(
            float(np.quantile(strengths, options.peak_quantile)),
            math.log(scale * max(float(boundary.map.mean()), _TINY)),
            math.log(levels.level + options.min_mosaic_level),
            levels.opposite_phase,
            grid_strength(image),
            learned,
        )
        return features, strengths


def seam_strengths(seam: FloatMap, size: int) -> FloatMap:
    """Return for each square the mean of the network's evidence for a seam.

    ``size``: side of a square in pixels. Those at the right and at the bottom may be smaller.

    >>> import numpy as np
    >>> seam_strengths(np.arange(4, dtype=np.float32).reshape(2, 2), 8)
    array([[1.5]], dtype=float32)
    """
    tops, lefts = (np.arange(0, side, size) for side in seam.shape)
    sums = np.add.reduceat(np.add.reduceat(seam, lefts, axis=1), tops, axis=0)
    rows, columns = (
        np.diff(np.append(starts, side))
        for starts, side in zip((tops, lefts), seam.shape, strict=True)
    )
    return np.asarray(sums / np.outer(rows, columns), np.float32)


def patch_strengths(boundary: BoundaryMap, size: int) -> FloatMap:
    """Return for each square the logarithm of the highest value of the undivided boundary map.

    ``size``: side of a square in pixels. Those at the right and at the bottom may be smaller.

    >>> import numpy as np
    >>> found = BoundaryMap(np.eye(12, dtype=np.float32), 2.0)
    >>> patch_strengths(found, 8).round(2)
    array([[  0.69, -13.82],
           [-13.82,   0.69]], dtype=float32)
    """
    height, width = boundary.map.shape
    across = np.maximum.reduceat(boundary.map, np.arange(0, width, size), axis=1)
    patches = np.maximum.reduceat(across, np.arange(0, height, size), axis=0)
    return np.asarray(np.log(np.maximum(patches * np.float32(boundary.scale), _TINY)))
