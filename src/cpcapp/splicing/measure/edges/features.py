"""The features of a patch that a structured tree may use: OpenCV's channels and their differences.

The maps come from OpenCV's feature getter, which its own edge detector uses. So a forest gets the
same features in use as in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EdgeOptions:
    """Geometry of patches and features; the names are those of OpenCV's file format."""

    stride: int = 2
    shrinkNumber: int = 2  # noqa: N815
    patchSize: int = 32  # noqa: N815
    patchInnerSize: int = 16  # noqa: N815
    numberOfGradientOrientations: int = 4  # noqa: N815
    gradientSmoothingRadius: int = 0  # noqa: N815
    regFeatureSmoothingRadius: int = 2  # noqa: N815
    ssFeatureSmoothingRadius: int = 8  # noqa: N815
    gradientNormalizationRadius: int = 4  # noqa: N815
    selfsimilarityGridSize: int = 5  # noqa: N815
    numberOfTrees: int = 8  # noqa: N815
    numberOfTreesToEvaluate: int = 3  # noqa: N815

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


@dataclass(frozen=True)
class FeatureTable:
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


def feature_maps(
    image: NDArray[np.float32], options: EdgeOptions
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the maps of a photo, smoothed for values and for differences."""
    p = options.padding
    maps = _maps(cv2.copyMakeBorder(image, p, p, p, p, cv2.BORDER_REFLECT), options)
    radii = (options.regFeatureSmoothingRadius, options.ssFeatureSmoothingRadius)
    regular, similar = (triangle(maps, round(r / options.shrinkNumber)) for r in radii)
    return regular, similar


def put_maps(
    out: NDArray[np.float32],
    padded: NDArray[np.float32],
    options: EdgeOptions,
    rows: slice,
    cols: slice,
) -> None:
    """Write a part of the maps of a photo that has the detector's border already.

    ``out``: the maps for values and for differences are written to its beginning. It must be large
    enough for them.
    """
    maps = _maps(padded, options)
    height, width = maps[rows, cols].shape[:2]
    radii = (options.regFeatureSmoothingRadius, options.ssFeatureSmoothingRadius)
    for smooth, radius in zip(out, radii, strict=True):
        found = triangle(maps, round(radius / options.shrinkNumber))
        smooth[:height, :width, : options.n_channels] = found[rows, cols]


def _maps(padded: Any, options: EdgeOptions) -> NDArray[np.float32]:
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
    return maps


def triangle(maps: Any, radius: int) -> NDArray[np.float32]:
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
