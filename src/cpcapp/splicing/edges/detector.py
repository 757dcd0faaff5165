"""Detecting edges with a structured forest, on OpenCV's engine."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.edges.features import EdgeOptions
from cpcapp.splicing.edges.forest import Forest

# Strength at which thinned edges agree best with people: on the validation photos of BSDS500, by a
# forest trained without them.
BEST_THRESHOLD = 0.085

# Each pixel must lie in as many patches as any other, also at the border of the photo.
_MARGIN = 16
# OpenCV holds over 100 bytes for each pixel: a large photo goes through it in tiles of this side.
_TILE = 1400


class EdgeDetector:
    """A structured edge detector.

    Parameters
    ----------
    forest : path, optional
        A forest in OpenCV's format, by default the one that comes with the package. It is
        checked before OpenCV sees it, since OpenCV does not check.
    """

    def __init__(self, forest: str | os.PathLike[str] | None = None) -> None:
        if forest is None:
            options = EdgeOptions()
            with as_file(files("cpcapp.splicing.edges") / "forest.yml.gz") as path:
                self._engine = cv2.ximgproc.createStructuredEdgeDetection(str(path))
        else:
            options = Forest.load(forest).options
            self._engine = cv2.ximgproc.createStructuredEdgeDetection(os.fspath(forest))
        self._period, self._reach = _geometry(options)

    def detect(self, image: Any, *, scales: Sequence[float] = (1.0,)) -> NDArray[np.float32]:
        """Return the strength of the edge at each pixel.

        Parameters
        ----------
        image : array-like of shape (height, width[, channels])
            Grey, RGB or RGBA; whole numbers of 8 or 16 bits, or floats in [0, 1].
        scales : sequence of float, default=(1.0,)
            Sizes at which to look; the mean is returned. ``(0.5, 1.0, 2.0)`` is more accurate
            and takes five times as long.

        Returns
        -------
        ndarray of shape (height, width), float32 in [0, 1]
        """
        rgb = as_rgb_float(image)
        if not len(scales) or not all(np.isfinite(s) and 0.0 < s <= 8.0 for s in scales):
            raise ValueError(f"scales={scales!r} must be numbers above 0 and at most 8")
        total = np.zeros(rgb.shape[:2], dtype=np.float32)
        for scale in scales:
            total += self._detect_at(rgb, scale)
        return np.clip(total / len(scales), 0.0, 1.0)

    def thin(self, edges: NDArray[np.float32], *, border: int = 0) -> NDArray[np.float32]:
        """Keep an edge only where it is strongest across its direction.

        Parameters
        ----------
        edges : ndarray of shape (height, width)
            What `detect` returns.
        border : int, default=0
            Fade out edges that are closer than this to the border of the photo, where the
            detector sees reflections. The scores on BSDS500 use 5.

        Returns
        -------
        ndarray of shape (height, width), float32
        """
        edges = np.ascontiguousarray(edges, dtype=np.float32)
        if edges.ndim != 2 or edges.size == 0:
            raise ValueError(f"edges have shape {edges.shape}; they must be (height, width)")
        # OpenCV's suppression reads beside a map that is one pixel wide.
        padded = cv2.copyMakeBorder(edges, 4, 4, 4, 4, cv2.BORDER_REPLICATE)
        orientation = self._engine.computeOrientation(padded)
        thinned = self._engine.edgesNms(padded, orientation, r=2, s=0, m=1.01, isParallel=True)
        return np.ascontiguousarray(thinned[4:-4, 4:-4] * _fade(edges.shape, border))

    def _detect_at(self, rgb: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
        height, width = rgb.shape[:2]
        if scale != 1.0:
            size = (max(1, round(width * scale)), max(1, round(height * scale)))
            shrinks = scale < 1.0
            rgb = cv2.resize(
                rgb, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
            )
        edges = self._run(rgb)
        if edges.shape != (height, width):
            edges = cv2.resize(edges, (width, height), interpolation=cv2.INTER_LINEAR)
        return np.asarray(edges)

    def _run(self, rgb: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what the engine finds, in tiles that overlap so far that nobody can tell."""
        step = self._period * max(1, round(_TILE / self._period))
        found = np.empty(rgb.shape[:2], dtype=np.float32)
        for rows in _tiles(rgb.shape[0], step, self._reach):
            for cols in _tiles(rgb.shape[1], step, self._reach):
                padded = cv2.copyMakeBorder(
                    rgb[rows.seen, cols.seen], *rows.border, *cols.border, cv2.BORDER_REFLECT
                )
                tile = self._engine.detectEdges(padded)
                found[rows.kept, cols.kept] = tile[rows.of_tile, cols.of_tile]
        return found


def _geometry(options: EdgeOptions) -> tuple[int, int]:
    """Return the pixels after which the engine repeats itself, and how far it sees.

    Which trees look at a patch depends on its place; the reach is a multiple of the period.
    """
    period = math.lcm(
        2 * options.stride * options.numberOfTreesToEvaluate, 2 * options.shrinkNumber
    )
    # Half of a patch of labels, half of one of features, the smoothing of features, and that of
    # gradients, which are also taken at half the size.
    smoothing = max(options.regFeatureSmoothingRadius, options.ssFeatureSmoothingRadius)
    gradients = options.gradientNormalizationRadius + options.gradientSmoothingRadius + 2
    reach = (options.patchInnerSize + options.patchSize) // 2 + smoothing + 2 * gradients
    return period, period * math.ceil(reach / period)


class _Tile(NamedTuple):
    """One side of a tile: the pixels of the photo that it sees and keeps, and its own."""

    seen: slice
    border: tuple[int, int]
    kept: slice
    of_tile: slice


def _tiles(n: int, step: int, reach: int) -> Iterator[_Tile]:
    """Yield the tiles along a side of a photo.

    The photo has a border on both sides, and then an even length; tiles begin at multiples of
    ``step``, counted from the outside, and are ``2 * reach`` longer than that.
    """
    length = n + n % 2 + 2 * _MARGIN
    for start in range(0, max(length - 2 * reach, 1), step):
        stop = min(start + step + 2 * reach, length)
        first = start + reach if start else _MARGIN
        last = stop - reach if stop < length else _MARGIN + n
        seen = slice(max(start - _MARGIN, 0), min(stop - _MARGIN, n))
        border = (max(_MARGIN - start, 0), max(stop - _MARGIN - n, 0))
        kept = slice(first - _MARGIN, last - _MARGIN)
        yield _Tile(seen, border, kept, slice(first - start, last - start))


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
    """Return the strength of the edge at each pixel, by the detector of the package.

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
        pixels = pixels.astype(np.float32) / np.float32(np.iinfo(pixels.dtype).max)
    elif pixels.dtype.kind == "f":
        if not np.isfinite(pixels).all() or pixels.min() < 0.0 or pixels.max() > 1.0:
            raise ValueError("an image of floats must lie in [0, 1] without NaN")
        pixels = pixels.astype(np.float32, copy=False)
    else:
        raise ValueError(f"image has dtype {pixels.dtype}; it must be uint8, uint16, bool or float")
    colours = pixels[:, :, :1] if pixels.shape[2] < 3 else pixels[:, :, :3]
    return np.ascontiguousarray(np.broadcast_to(colours, (*pixels.shape[:2], 3)))
