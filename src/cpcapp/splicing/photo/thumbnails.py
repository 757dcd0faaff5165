"""Comparing the thumbnail in a file with its photo: some editors forget to renew it.

Both are made small, smoothed and matched in brightness and contrast, since cameras sharpen and
brighten thumbnails. Then a difference that covers a part of the picture remains only if the content
differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.contents import ImageError
from cpcapp.splicing.photo.pixels import FloatMap, Pixels, as_bytes, turn_upright
from cpcapp.splicing.photo.read import read_image

# Of a thumbnail; real ones have at most 640 x 480 pixels.
_MAX_PIXELS = 2_000_000
_MIN_SIDE = 16
# Both are compared at this longer side, in pixels: about that of the smallest thumbnails.
_SIDE = 128
# Of the smoothing, and side of the window that differences are averaged over, in these pixels.
_SMOOTHING = 1.5
_WINDOW = 9
# Mean difference in the window where it is largest, in standard deviations of the photo's light;
# see benchmarks/file_facts.py.
_MIN_DIFFERENCE = 0.6
# In grey levels: in photos of less contrast, small errors of a thumbnail would look large.
_MIN_SPREAD = 32.0
# Thumbnails are shifted by a fraction of a pixel, or by a pixel or two.
_MAX_SHIFT = 3.0
# Aspects that differ by less are the same, after rounding to whole pixels.
_SAME_ASPECT = 0.03


@dataclass(frozen=True)
class Thumbnail:
    """The thumbnail in a file."""

    pixels: NDArray[np.uint8]
    differs: bool
    difference: float

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]


def read_thumbnail(data: bytes, pixels: Pixels, orientation: int = 1) -> Thumbnail | None:
    """Decode a thumbnail and compare it with its photo."""
    try:
        small = as_bytes(read_image(data, max_pixels=_MAX_PIXELS).pixels)
    except ImageError:
        return None
    if min(small.shape[:2]) < _MIN_SIDE or min(pixels.shape[:2]) < _MIN_SIDE:
        return None
    photo = as_bytes(_shrink(pixels))
    best: tuple[float, NDArray[np.uint8]] | None = None
    # Some programs turn the thumbnail and leave the photo as it is, or the other way round.
    for turned in dict.fromkeys((orientation, 1)):
        upright = np.ascontiguousarray(turn_upright(small, turned))
        for one, other in _same_aspect(photo, upright):
            difference = measure_difference(one, other)
            if best is None or difference < best[0]:
                best = difference, upright
    assert best is not None
    return Thumbnail(best[1], best[0] >= _MIN_DIFFERENCE, best[0])


def _shrink(pixels: Pixels) -> Pixels:
    """Return a photo at a size that is cheap to compare, still larger than most thumbnails."""
    step = max(1, max(pixels.shape[:2]) // (8 * _SIDE))
    height, width = (max(1, n // step) for n in pixels.shape[:2])
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA))


def _same_aspect(
    photo: NDArray[np.uint8], small: NDArray[np.uint8]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Yield photo and thumbnail as they may belong together.

    A thumbnail of another aspect was squeezed, has black bars, or shows the middle of the photo.
    """
    yield photo, small
    ratio = _aspect(photo) / _aspect(small)
    if abs(ratio - 1.0) > _SAME_ASPECT:
        yield photo, _crop(small, _aspect(photo))
        yield _crop(photo, _aspect(small)), small


def _aspect(pixels: NDArray[np.uint8]) -> float:
    return float(pixels.shape[1] / pixels.shape[0])


def _crop(pixels: NDArray[np.uint8], aspect: float) -> NDArray[np.uint8]:
    """Return the middle of an image, as large as it can be with an aspect."""
    height, width = pixels.shape[:2]
    across = max(1, min(width, round(height * aspect)))
    down = max(1, min(height, round(width / aspect)))
    left, top = (width - across) // 2, (height - down) // 2
    return pixels[top : top + down, left : left + across]


def measure_difference(photo: NDArray[np.uint8], small: NDArray[np.uint8]) -> float:
    """Measure how much two pictures differ where they differ most."""
    scale = _SIDE / max(photo.shape[:2])
    size = tuple(max(_WINDOW, round(n * scale)) for n in photo.shape[1::-1])
    one, other = (_prepare(picture, size) for picture in (photo, small))
    spread = max(float(one.std()), _MIN_SPREAD)
    other = _align(one, other)
    total = np.zeros(one.shape[:2], dtype=np.float32)
    for channel in range(3):
        total += np.abs(_match(one[..., channel], other[..., channel]))
    mean = cv2.boxFilter(total, -1, (_WINDOW, _WINDOW), borderType=cv2.BORDER_REFLECT)
    # Borders may be cut off by a pixel or two, or blended with a bar.
    inner = mean[_WINDOW // 2 : -(_WINDOW // 2), _WINDOW // 2 : -(_WINDOW // 2)]
    return float((inner if inner.size else mean).max() / (3.0 * spread))


def _prepare(picture: NDArray[np.uint8], size: tuple[int, ...]) -> FloatMap:
    shrunk = cv2.resize(np.ascontiguousarray(picture), size, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.GaussianBlur(shrunk.astype(np.float32), (0, 0), _SMOOTHING))


def _align(one: FloatMap, other: FloatMap) -> FloatMap:
    """Return the second picture, shifted to where it fits the first one, if that is near."""
    light = [np.ascontiguousarray(picture.mean(axis=2)) for picture in (one, other)]
    window = cv2.createHanningWindow(light[0].shape[::-1], cv2.CV_32F)
    (right, down), _ = cv2.phaseCorrelate(light[0], light[1], window)
    if not max(abs(right), abs(down)) <= _MAX_SHIFT:
        return other
    move = np.array([[1.0, 0.0, -right], [0.0, 1.0, -down]], dtype=np.float32)
    size = other.shape[1::-1]
    return np.asarray(cv2.warpAffine(other, move, size, borderMode=cv2.BORDER_REPLICATE))


def _match(one: FloatMap, other: FloatMap) -> FloatMap:
    """Return what a line through the levels of both leaves unexplained, fitted to most pixels."""
    x, y = other.ravel(), one.ravel()
    keep = np.ones(len(x), dtype=bool)
    slope, shift = 0.0, 0.0
    for _ in range(3):
        centre = x[keep].mean()
        variance = float(np.square(x[keep] - centre).mean())
        slope = float(((x[keep] - centre) * y[keep]).mean() / variance) if variance > 1e-3 else 0.0
        shift = float(y[keep].mean() - slope * centre)
        rest = np.abs(y - slope * x - shift)
        # A changed part of up to a quarter does not move the line.
        keep = rest <= np.quantile(rest, 0.75)
    return np.asarray(one - np.float32(slope) * other - np.float32(shift))
