"""The features of a patch that a structured tree may use: OpenCV's channels and their differences.

The maps come from OpenCV's feature getter, which its own edge detector uses. So a forest gets the
same features in use as in training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.ranges import check_ranges, ranged
from cpcapp.splicing.photo.pixels import FloatMap


@dataclass(frozen=True)
class EdgeOptions:
    """Geometry of patches and features; the names are those of OpenCV's file format."""

    stride: int = ranged(2, 1, 64)
    shrinkNumber: int = ranged(2, 1, 8)  # noqa: N815
    patchSize: int = ranged(32, 2, 256)  # noqa: N815
    patchInnerSize: int = ranged(16, 1, 256)  # noqa: N815
    numberOfGradientOrientations: int = ranged(4, 1, 64)  # noqa: N815
    gradientSmoothingRadius: int = ranged(0, 0, 64)  # noqa: N815
    regFeatureSmoothingRadius: int = ranged(2, 0, 64)  # noqa: N815
    ssFeatureSmoothingRadius: int = ranged(8, 0, 64)  # noqa: N815
    gradientNormalizationRadius: int = ranged(4, 0, 64)  # noqa: N815
    selfsimilarityGridSize: int = ranged(5, 1, 16)  # noqa: N815
    numberOfTrees: int = ranged(8, 1, 1024)  # noqa: N815
    numberOfTreesToEvaluate: int = ranged(3, 1, 1024)  # noqa: N815

    def __post_init__(self) -> None:
        check_ranges(self)
        if (
            self.patchSize % self.shrinkNumber
            or self.stride % self.shrinkNumber
            or self.patchInnerSize > self.patchSize
        ):
            raise ValueError("patch sizes, stride and shrinkNumber do not fit together")
        if self.numberOfTreesToEvaluate > self.numberOfTrees:
            raise ValueError("numberOfTreesToEvaluate must be at most numberOfTrees")

    @property
    def n_channels(self) -> int:
        """Colour (3), and for each of two scales the gradient and its orientations."""
        return 3 + 2 * (self.numberOfGradientOrientations + 1)

    @property
    def width(self) -> int:
        """Side of a patch in the feature maps."""
        return self.patchSize // self.shrinkNumber

    @property
    def padding(self) -> int:
        """Border that the detector adds around a photo."""
        return (self.patchSize - self.patchInnerSize) // 2

    @property
    def reach(self) -> int:
        """Largest distance of a pixel that a feature depends on; some maps are at half size."""
        smoothing = max(self.regFeatureSmoothingRadius, self.ssFeatureSmoothingRadius)
        gradients = self.gradientNormalizationRadius + self.gradientSmoothingRadius + 2
        return smoothing + 2 * gradients

    @property
    def n_regular(self) -> int:
        """Number of features that are single values."""
        return self.width**2 * self.n_channels

    @property
    def n_features(self) -> int:
        """Number of all features, the differences between grid cells included."""
        cells = self.selfsimilarityGridSize**2
        return self.n_regular + cells * (cells - 1) // 2 * self.n_channels


class FeatureTable(NamedTuple):
    """Where each feature is read in the maps: one value (row1, col1), or a difference of two."""

    rows1: NDArray[np.int64]
    cols1: NDArray[np.int64]
    channels: NDArray[np.int64]
    rows2: NDArray[np.int64]
    cols2: NDArray[np.int64]


@lru_cache(maxsize=8)
def feature_table(options: EdgeOptions) -> FeatureTable:
    """Return the order in which OpenCV numbers the features of a patch."""
    width, grid = options.width, options.selfsimilarityGridSize
    # Values: channel by channel, each column by column.
    channel, col, row = np.meshgrid(
        np.arange(options.n_channels), np.arange(width), np.arange(width), indexing="ij"
    )
    # Differences: channel by channel, all pairs of cells, whose centres lie on a grid.
    half = int(np.rint(width / (2.0 * grid)))
    steps = np.arange(1, grid + 1) * (width + 2 * half - 1) / (grid + 1.0) - half + 0.5
    positions = steps.astype(np.int64)
    a, b = np.triu_indices(grid * grid, k=1)
    pairs = np.arange(options.n_channels).repeat(len(a))
    a, b = np.tile(a, options.n_channels), np.tile(b, options.n_channels)
    unused = np.zeros(options.n_regular, dtype=np.int64)
    return FeatureTable(
        rows1=np.concatenate([row.ravel(), positions[a % grid]]),
        cols1=np.concatenate([col.ravel(), positions[a // grid]]),
        channels=np.concatenate([channel.ravel(), pairs]),
        rows2=np.concatenate([unused, positions[b % grid]]),
        cols2=np.concatenate([unused, positions[b // grid]]),
    )


def feature_maps(image: FloatMap, options: EdgeOptions) -> tuple[FloatMap, FloatMap]:
    """Return the maps of a photo, smoothed for values and for differences."""
    p = options.padding
    padded = cv2.copyMakeBorder(image, p, p, p, p, cv2.BORDER_REFLECT)
    regular, similar = smooth_maps(padded, options)
    return regular, similar


def smooth_maps(padded: Any, options: EdgeOptions) -> Iterator[FloatMap]:
    """Yield the maps for values and those for differences, of a photo with its border."""
    shrink = options.shrinkNumber
    size = (padded.shape[0] // shrink, padded.shape[1] // shrink, options.n_channels)
    maps = np.zeros(size, dtype=np.float32)
    cv2.ximgproc.createRFFeatureGetter().getFeatures(
        padded,
        maps,
        options.gradientNormalizationRadius,
        options.gradientSmoothingRadius,
        shrink,
        options.n_channels,
        options.numberOfGradientOrientations,
    )
    for radius in (options.regFeatureSmoothingRadius, options.ssFeatureSmoothingRadius):
        yield triangle(maps, round(radius / shrink))


def triangle(maps: Any, radius: int) -> FloatMap:
    """Smooth with the separable triangle filter of the detector."""
    if radius == 0:
        return np.asarray(maps)
    if radius == 1:
        p = 12.0 / radius / (radius + 2) - 2
        kernel = np.array([1.0, p, 1.0]) / (p + 2)
    else:
        rise = np.arange(1, radius + 2)
        kernel = np.concatenate([rise, rise[-2::-1]]) / (radius + 1.0) ** 2
    kernel = kernel.astype(np.float32)
    return np.ascontiguousarray(cv2.sepFilter2D(maps, -1, kernel, kernel))
