"""Single traces as pictures, as people know them from other tools.

Each shows one thing that differs across a photo, whatever the cause. They are for a person to look
at; the verdict does not use them in this form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.measure.classic_traces import STRIDE, WINDOW, noise_levels
from cpcapp.splicing.measure.jpeg_traces import coefficients_from_pixels, double_jpeg_trace
from cpcapp.splicing.measure.mosaic import mosaic_trace
from cpcapp.splicing.output.draw import Picture
from cpcapp.splicing.photo.jpeg import (
    BLOCK,
    JpegCoefficients,
    luminance,
    near_zeros,
    recompress,
    smooth_blocks,
)
from cpcapp.splicing.photo.pixels import FloatMap, Pixels, as_bytes, as_unit_float, turn_upright
from cpcapp.splicing.photo.read import ImageError, ReadImage, read_coefficients

# The longer side of a picture, at most: more than a screen shows.
_MAX_SIDE = 1600
# Some views keep several numbers for each pixel and take seconds for each ten million.
_MAX_PIXELS = 50_000_000
_NO_GRID = (
    "No grid of JPEG shows: the photo was never saved as JPEG, was resized since, or has too "
    "little detail."
)
# At which error level analysis is mostly done. A file that was saved at about this quality would
# not change at all: then the other one is used.
_QUALITY, _OTHER_QUALITY = 90, 95
_SAME_QUALITY = range(_QUALITY - 3, _QUALITY + 3)
# In grey levels: the largest change is shown white only from here on.
_MIN_WHITE = 4.0
# Share of values that may lie beyond the darkest and beyond the brightest colour.
_CLIPPED = 0.01
# Below it a photo shows no mosaic, see `cpcapp.splicing.measure.mosaic.MosaicLevels`.
_MIN_MOSAIC = 0.1
# In grey levels: less noise is that of rounding.
_MIN_NOISE = 0.2


@dataclass(frozen=True, eq=False)
class TraceView:
    """One trace of a photo as a picture."""

    name: str  # "error_level", "jpeg_grid", "double_jpeg", "mosaic" or "noise"
    title: str
    text: str  # what is seen, in two sentences
    picture: Picture | None  # of the size of the photo, or of an integer fraction of it
    note: str = ""  # why there is no picture


def draw_views(image: ReadImage, data: bytes | None = None) -> list[TraceView]:
    """Draw the single traces of a photo: always the same five, in the same order.

    ``data``: the file. With that of a JPEG, double compression is measured on its coefficients,
    else on the pixels. A trace that a photo does not have comes without a picture and with a note.
    """
    height, width = image.pixels.shape[:2]
    views = []
    for name, title, text, draw in _VIEWS:
        drawn: Picture | str
        if min(height, width) < 2 * BLOCK:
            drawn = "The photo is too small for this view."
        elif height * width > _MAX_PIXELS:
            limit = f"{_MAX_PIXELS // 10**6} megapixels"
            drawn = f"Photos of more than {limit} are too large for this view."
        else:
            drawn = draw(image, data)
        if isinstance(drawn, str):
            views.append(TraceView(name, title, text, None, drawn))
        else:
            views.append(TraceView(name, title, text, drawn))
    return views


def _draw_error_level(image: ReadImage, data: bytes | None) -> Picture | str:
    """Return the change of each colour by JPEG, amplified."""
    factor, (height, width) = _scale(image.pixels)
    quality = _OTHER_QUALITY if image.jpeg_quality in _SAME_QUALITY else _QUALITY
    photo = as_bytes(image.pixels)
    lost = cv2.absdiff(photo, recompress(photo, quality))
    whole = lost[: height * factor, : width * factor].astype(np.float32)
    change = cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA)
    white = float(np.quantile(change, 1.0 - _CLIPPED))
    # A photo that hardly changes is shown dark, not as amplified rounding.
    change *= np.float32(1.0 / max(white, _MIN_WHITE))
    # The square root makes small changes visible beside those at edges.
    np.sqrt(change, out=change)
    return np.asarray(np.rint(255.0 * np.minimum(change, 1.0)), dtype=np.uint8)


def _draw_jpeg_grid(image: ReadImage, data: bytes | None) -> Picture | str:
    """Return where the grid of JPEG is missing."""
    if not image.grid.certain:
        return _NO_GRID
    row, column = offset = image.grid.offset
    missing = -near_zeros(luminance(image.pixels)[row:, column:])
    return _colour(_expand(missing, image.pixels, BLOCK, offset))


def _draw_double_jpeg(image: ReadImage, data: bytes | None) -> Picture | str:
    """Return how likely each block was compressed once only."""
    coefficients, offset = _coefficients(image, data), (0, 0)
    orientation = 1
    if coefficients is None:
        photo = as_bytes(image.pixels)
        if not image.grid.certain:
            return _NO_GRID
        offset = image.grid.offset
        coefficients = coefficients_from_pixels(photo[offset[0] :, offset[1] :])
    else:
        orientation = coefficients.orientation
    trace = double_jpeg_trace(coefficients)
    values = trace.aligned
    scale: tuple[float, float] | None = (0.0, 1.0)
    if not np.ptp(values) > 0.0:
        values, scale = trace.shifted, None
        if not np.ptp(values) > 0.0:
            return "No earlier JPEG compression shows."
    if orientation != 1:
        # The blocks are those of the file as it is stored.
        values, offset = turn_upright(values, orientation), image.grid.offset
    return _colour(_expand(values, image.pixels, BLOCK, offset), scale)


def _coefficients(image: ReadImage, data: bytes | None) -> JpegCoefficients | None:
    if data is None or image.format != "JPEG":
        return None
    try:
        found = read_coefficients(data)
    except ImageError:
        return None
    # A file of another size is not that of these pixels.
    if found is None or sorted(found.plane.shape) != sorted(image.pixels.shape[:2]):
        return None
    return found


def _draw_mosaic(image: ReadImage, data: bytes | None) -> Picture | str:
    """Return how strongly each part shows the mosaic of the photo, in its phase."""
    photo = image.pixels
    trace = mosaic_trace(as_unit_float(photo))
    # At the resolution of the picture, but in whole cells of two pixels.
    factor = max(1, _scale(photo)[0] // 2)
    values, known = trace.statistics[:, ::factor, ::factor], trace.usable[::factor, ::factor]
    median = np.median(values[:, known], axis=1) if known.any() else np.zeros(len(values))
    level = float(np.linalg.norm(median))
    if level < _MIN_MOSAIC:
        return (
            "No colour mosaic shows: photos that were made smaller, compressed strongly or "
            "processed by a phone have lost it."
        )
    component = np.tensordot((median / level).astype(np.float32), values, axes=1)
    component[~known] = 0.0
    # In units of the photo: 1 is the trace of most parts, -1 that of the opposite phase.
    return _colour(_expand(component / np.float32(level), photo, 2 * factor), (-1.0, 2.0))


def _draw_noise(image: ReadImage, data: bytes | None) -> Picture | str:
    """Return the level of noise, dark where there is little."""
    levels = np.log(np.maximum(noise_levels(image.pixels), np.float32(_MIN_NOISE)))
    if not np.ptp(levels) > 0.0:
        return "The photo has no noise at all."
    shift = (WINDOW - STRIDE) // 2
    return _colour(_expand(smooth_blocks(levels, 3), image.pixels, STRIDE, (shift, shift)))


def _scale(pixels: Pixels) -> tuple[int, tuple[int, int]]:
    """Return by how much the picture of a photo is smaller, and its height and width."""
    height, width = pixels.shape[:2]
    factor = -(-max(height, width) // _MAX_SIDE)
    # A power of two, so that blocks are whole.
    factor = 1 << (factor - 1).bit_length()
    return factor, (max(1, height // factor), max(1, width // factor))


def _expand(
    values: NDArray[np.float32], photo: Pixels, cell: int, offset: tuple[int, int] = (0, 0)
) -> FloatMap:
    """Return a map of cells of some pixels at the size of the picture."""
    factor, size = _scale(photo)
    rows, cols = (
        np.clip(((np.arange(length) + 0.5) * factor - start) // cell, 0, count - 1).astype(int)
        for length, start, count in zip(size, offset, values.shape, strict=True)
    )
    return np.asarray(values[rows][:, cols], dtype=np.float32)


def _colour(values: FloatMap, scale: tuple[float, float] | None = None) -> Picture:
    """Return a map in colours that get lighter with it.

    From the lowest to the highest value of a scale, by default those of the map without its rarest.
    """
    low, high = scale or np.quantile(values, (_CLIPPED, 1.0 - _CLIPPED)).tolist()
    if not high > low:
        low, high = float(values.min()), float(values.max())
    level = np.clip((values - low) / max(high - low, 1e-9), 0.0, 1.0)
    grey = np.rint(255 * level).astype(np.uint8)
    return np.asarray(
        cv2.cvtColor(cv2.applyColorMap(grey, cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB)
    )


_Draw = Callable[[ReadImage, bytes | None], Picture | str]
_VIEWS: tuple[tuple[str, str, str, _Draw], ...] = (
    (
        "error_level",
        "Error level",
        f"What changes when the photo is saved as JPEG at quality {_QUALITY} (or "
        f"{_OTHER_QUALITY}, if it was saved at about {_QUALITY}), amplified. Compare parts of the "
        "same texture: one that is much brighter or darker may have been saved less or more often.",
        _draw_error_level,
    ),
    (
        "jpeg_grid",
        "JPEG grid",
        "Light where the 8 × 8 grid of JPEG is missing. A light part in a dark photo may have been "
        "pasted after the photo was saved as JPEG; texture is light too.",
        _draw_jpeg_grid,
    ),
    (
        "double_jpeg",
        "Double compression",
        "Light where a block was compressed once, dark where it was compressed twice. In a photo "
        "that was saved again after a pasting, the pasted part is often the light one.",
        _draw_double_jpeg,
    ),
    (
        "mosaic",
        "Colour mosaic",
        "Light where the trace of the camera's colour sensor is as in most of the photo, dark "
        "where it is missing or shifted. Texture and pure black or white weaken it too.",
        _draw_mosaic,
    ),
    (
        "noise",
        "Noise",
        "Light where the photo has much noise or fine texture, dark where it has little. A part "
        "with another level than surfaces of the same brightness may come from elsewhere.",
        _draw_noise,
    ),
)
