"""Detecting edges with a structured forest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.measure.edges.engine import ForestEngine
from cpcapp.splicing.measure.edges.features import EdgeOptions
from cpcapp.splicing.measure.edges.forest import Forest
from cpcapp.splicing.photo.pixels import as_unit_float

# The strength at which thinned edges agree best with people, on validation photos of BSDS500, by a
# forest trained without them.
BEST_THRESHOLD = 0.085

# With it, each pixel lies in as many patches as any other, also at the border of the photo.
_MARGIN = 16


class EdgeDetector:
    """A structured edge detector.

    Parameters
    ----------
    forest : path, optional
        A forest that `Forest.save` wrote, or one in OpenCV's format; by default the one that
        comes with the package. It is checked before it is used.
    """

    def __init__(self, forest: str | os.PathLike[str] | None = None) -> None:
        if forest is not None:
            self._engine = ForestEngine(Forest.load(forest))
            return
        with as_file(files("cpcapp.splicing.measure.edges") / "forest.safetensors.gz") as path:
            self._engine = ForestEngine(Forest.load(path))

    def detect(self, image: Any, *, scales: Sequence[float] = (1.0,)) -> NDArray[np.float32]:
        """Return the strength of the edge at each pixel.

        ``image``: grey, RGB or RGBA; whole numbers of 8 or 16 bits, or floats in [0, 1].

        ``scales``: sizes at which edges are detected; the mean is returned. ``(0.5, 1.0, 2.0)`` is
        more accurate and takes five times as long.
        """
        rgb = as_rgb_float(image)
        if not len(scales) or not all(np.isfinite(s) and 0.0 < s <= 8.0 for s in scales):
            raise ValueError(f"scales={scales!r} must be numbers above 0 and at most 8")
        total = self._detect_at(rgb, scales[0])
        for scale in scales[1:]:
            total += self._detect_at(rgb, scale)
        total /= len(scales)
        return np.clip(total, 0.0, 1.0, out=total)

    def thin(self, edges: NDArray[np.float32], *, border: int = 0) -> NDArray[np.float32]:
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

    def _detect_at(self, rgb: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
        height, width = rgb.shape[:2]
        if scale != 1.0:
            size = (max(1, round(width * scale)), max(1, round(height * scale)))
            shrinks = scale < 1.0
            rgb = cv2.resize(
                rgb, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
            )
        edges = self._engine.detect(rgb, _MARGIN)
        if edges.shape != (height, width):
            edges = cv2.resize(edges, (width, height), interpolation=cv2.INTER_LINEAR)
        return np.asarray(edges)


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
    return default_detector().detect(image, scales=scales)


def thin_edges(edges: NDArray[np.float32], *, border: int = 0) -> NDArray[np.float32]:
    """Keep an edge only where it is strongest across its direction; see `EdgeDetector.thin`."""
    return default_detector().thin(edges, border=border)


@lru_cache(maxsize=1)
def default_detector() -> EdgeDetector:
    """Return the detector that comes with the package, loaded once."""
    return EdgeDetector()


def as_rgb_float(image: Any) -> NDArray[np.float32]:
    """Return an image as (height, width, 3) float32 in [0, 1]; alpha is dropped."""
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
    elif pixels.dtype in (np.uint8, np.uint16):
        pixels = as_unit_float(pixels)
    elif pixels.dtype.kind == "f":
        # A NaN is the minimum and no number.
        if not (pixels.min() >= 0.0 and pixels.max() <= 1.0):
            raise ValueError("an image of floats must lie in [0, 1] without NaN")
        pixels = pixels.astype(np.float32, copy=False)
    else:
        raise ValueError(f"image has dtype {pixels.dtype}; it must be uint8, uint16, bool or float")
    colours = pixels[:, :, :1] if pixels.shape[2] < 3 else pixels[:, :, :3]
    return np.ascontiguousarray(np.broadcast_to(colours, (*pixels.shape[:2], 3)))
