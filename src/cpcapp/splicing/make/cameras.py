"""Simulated cameras: they add the traces that a real camera leaves in every pixel.

A sensor measures one colour at each pixel, behind a mosaic of filters. The other two are
interpolated from the neighbours. Noise grows with light. Sharpening comes last. Two cameras do all
this differently, and these traces separate a pasted part from its host. Scanned or resized photos
have lost them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.pixels import BoolArray, FloatMap, as_unit_float

DEMOSAICING = ("bilinear", "gradient-corrected", "edge-aware")
# Of sRGB, nearly.
_GAMMA = 2.2

# H. Malvar, L. He, R. Cutler, "High-quality linear interpolation for demosaicing of
# Bayer-patterned color images", ICASSP 2004: bilinear plus a Laplacian of the colour that is
# known at the pixel. Eighths.
_GREEN = np.zeros((5, 5))
_GREEN[2], _GREEN[:, 2] = [-1, 2, 4, 2, -1], [-1, 2, 4, 2, -1]
_ALONG = np.array([[0, 0, 0.5, 0, 0], [0, -1, 0, -1, 0], [-1, 4, 5, 4, -1]])
_ALONG = np.concatenate([_ALONG, _ALONG[1::-1]])
_DIAGONAL = np.array([[0, 0, -1.5, 0, 0], [0, 2, 0, 2, 0], [-1.5, 0, 6, 0, -1.5]])
_DIAGONAL = np.concatenate([_DIAGONAL, _DIAGONAL[1::-1]])


@dataclass(frozen=True)
class Camera:
    """The settings of a simulated camera.

    ``phase`` is the row and column, each 0 or 1, of the first red filter of the mosaic. The noise
    at light ``x`` in [0, 1] has the variance ``shot_noise * x + read_noise``. ``sharpening`` is the
    share of the difference to a slightly blurred copy that is added at the end.
    """

    phase: tuple[int, int] = (0, 0)
    demosaicing: str = "bilinear"
    shot_noise: float = 1e-4
    read_noise: float = 1e-6
    sharpening: float = 0.0

    @classmethod
    def random(cls, rng: np.random.Generator) -> Camera:
        """Draw a camera: any phase, any interpolation, noise of 0.3 to 3 grey levels."""
        return cls(
            phase=(int(rng.integers(2)), int(rng.integers(2))),
            demosaicing=DEMOSAICING[rng.integers(len(DEMOSAICING))],
            shot_noise=float(10 ** rng.uniform(-5.0, -3.5)),
            read_noise=float(10 ** rng.uniform(-7.0, -5.5)),
            sharpening=float(rng.uniform(0.0, 0.8)) if rng.random() < 0.5 else 0.0,
        )

    def shoot(self, scene: NDArray[Any], rng: np.random.Generator) -> NDArray[np.uint8]:
        """Simulate the photo that this camera takes of a scene."""
        light = as_unit_float(scene) ** np.float32(_GAMMA)
        raw = mosaic(light, self.phase)
        deviation = np.sqrt(np.float32(self.shot_noise) * raw + np.float32(self.read_noise))
        raw += deviation * rng.standard_normal(raw.shape, dtype=np.float32)
        colours = demosaic(np.clip(raw, 0.0, 1.0), self.phase, self.demosaicing)
        photo = np.clip(colours, 0.0, 1.0) ** np.float32(1.0 / _GAMMA)
        if self.sharpening:
            photo += np.float32(self.sharpening) * (photo - cv2.GaussianBlur(photo, (0, 0), 0.8))
        return np.asarray(np.clip(np.rint(photo * 255.0), 0, 255), dtype=np.uint8)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings in types that JSON knows."""
        return asdict(self) | {"phase": list(self.phase)}


def mosaic(light: FloatMap, phase: tuple[int, int]) -> FloatMap:
    """Keep only the colour that the sensor measures: (height, width, 3) to (height, width)."""
    raw = light[:, :, 1].copy()
    r, c = phase
    raw[r::2, c::2] = light[r::2, c::2, 0]
    raw[1 - r :: 2, 1 - c :: 2] = light[1 - r :: 2, 1 - c :: 2, 2]
    return raw


def demosaic(raw: FloatMap, phase: tuple[int, int], method: str) -> FloatMap:
    """Interpolate the colours that the sensor did not measure."""
    # Reflected so that the pattern of the mosaic continues beyond the border.
    padded = cv2.copyMakeBorder(raw, 4, 4, 4, 4, cv2.BORDER_REFLECT_101)
    h, w = padded.shape
    row, col = np.arange(h)[:, None] % 2 == phase[0], np.arange(w)[None, :] % 2 == phase[1]
    is_red, is_blue = row & col, ~row & ~col
    is_green = ~is_red & ~is_blue
    if method == "bilinear":
        out = [_bilinear(padded, known) for known in (is_red, is_green, is_blue)]
    elif method == "gradient-corrected":
        out = _gradient_corrected(padded, row, is_red, is_green, is_blue)
    else:
        out = _edge_aware(padded, is_red, is_green, is_blue)
    return np.ascontiguousarray(np.dstack(out)[4:-4, 4:-4])


def _bilinear(raw: FloatMap, known: BoolArray) -> FloatMap:
    """Fill in with the weighted mean of the nearest known values; nearer ones weigh more."""
    kernel = np.outer([1, 2, 1], [1, 2, 1])
    values = np.where(known, raw, 0.0)
    weight = _filter(known.astype(np.float32), kernel)
    mean = _filter(values.astype(np.float32), kernel) / np.maximum(weight, 1e-12)
    return np.where(known, values, mean).astype(np.float32)


def _filter(values: FloatMap, kernel: Any) -> FloatMap:
    kernel = np.asarray(kernel, dtype=np.float32)
    return np.asarray(cv2.filter2D(values, -1, kernel, borderType=cv2.BORDER_REFLECT_101))


def _gradient_corrected(
    raw: FloatMap,
    red_row: BoolArray,
    is_red: BoolArray,
    is_green: BoolArray,
    is_blue: BoolArray,
) -> list[FloatMap]:
    along, across = _filter(raw, _ALONG / 8.0), _filter(raw, _ALONG.T / 8.0)
    diagonal = _filter(raw, _DIAGONAL / 8.0)
    green = np.where(is_green, raw, _filter(raw, _GREEN / 8.0))
    beside = is_green & red_row  # red left and right, blue above and below
    red = np.where(is_red, raw, np.where(is_blue, diagonal, np.where(beside, along, across)))
    blue = np.where(is_blue, raw, np.where(is_red, diagonal, np.where(beside, across, along)))
    return [red, green, blue]


def _edge_aware(
    raw: FloatMap,
    is_red: BoolArray,
    is_green: BoolArray,
    is_blue: BoolArray,
) -> list[FloatMap]:
    """Interpolate green along the direction of less change; red and blue as differences to it."""
    mean = np.array([[0.5, 0.0, 0.5]])
    slope = np.array([[1.0, 0.0, -1.0]])
    across, down = np.abs(_filter(raw, slope)), np.abs(_filter(raw, slope.T))
    level = np.where(across < down, _filter(raw, mean), _filter(raw, mean.T))
    level = np.where(across == down, (_filter(raw, mean) + _filter(raw, mean.T)) / 2.0, level)
    green = np.where(is_green, raw, level).astype(np.float32)
    colours = [green + _bilinear(raw - green, known) for known in (is_red, is_blue)]
    return [colours[0], green, colours[1]]
