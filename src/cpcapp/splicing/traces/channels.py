"""What patches are cut from: the colours of a photo, their Laplacian, or the error level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photos.pixels import FloatMap, as_unit_float

# As error level analysis is mostly done.
_ERROR_LEVEL_QUALITY = 90
# JPEG allows sides up to 65,500 pixels: longer photos are compressed in parts of whole blocks.
_MAX_JPEG_SIDE = 65_488
_ROWS_PER_STRIP = 64


def rgb(image: FloatMap) -> FloatMap:
    """Return the colours as they are: the paper's choice."""
    planes = _empty_planes(image)
    _copy_channels(image, planes)
    return planes


def laplacian(image: FloatMap) -> FloatMap:
    """Return each colour minus the mean of its four neighbours, times four."""
    planes = _empty_planes(image)
    _copy_channels(
        cv2.Laplacian(image, cv2.CV_32F, ksize=1, borderType=cv2.BORDER_REFLECT_101), planes
    )
    return planes


def error_level(image: FloatMap) -> FloatMap:
    """Return what JPEG at quality 90 removes.

    Parts that were compressed before, and parts that were not, lose differently.
    """
    planes = _empty_planes(image)
    for top in range(0, image.shape[0], _MAX_JPEG_SIDE):
        for left in range(0, image.shape[1], _MAX_JPEG_SIDE):
            cols = slice(left, left + _MAX_JPEG_SIDE)
            part = image[top : top + _MAX_JPEG_SIDE, cols]
            compressed = _recompress(part)
            # In strips: copying a whole large photo takes as long as the difference.
            for first in range(0, len(compressed), _ROWS_PER_STRIP):
                strip = slice(first, first + _ROWS_PER_STRIP)
                kept = as_unit_float(cv2.cvtColor(compressed[strip], cv2.COLOR_BGR2RGB))
                lost = np.subtract(part[strip], kept, out=kept)
                _copy_channels(lost, planes[:, top + first : top + first + len(lost), cols])
    return planes


def _empty_planes(image: FloatMap) -> FloatMap:
    return np.empty((3, *image.shape[:2]), dtype=np.float32)


def _copy_channels(image: Any, planes: FloatMap) -> None:
    """Copy the channels of a picture to planes."""
    for number, plane in enumerate(planes):
        plane[...] = cv2.extractChannel(image, number)


def _recompress(image: FloatMap) -> NDArray[np.uint8]:
    """Return the pixels after JPEG, in OpenCV's order: blue, green, red."""
    pixels = np.empty(image.shape, dtype=np.uint8)
    for first in range(0, len(image), _ROWS_PER_STRIP):
        rows = slice(first, first + _ROWS_PER_STRIP)
        levels = image[rows] * np.float32(255.0)
        pixels[rows] = np.rint(levels, out=levels)[:, :, ::-1]
    _, data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _ERROR_LEVEL_QUALITY])
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), dtype=np.uint8)


CHANNELS: dict[str, Callable[[FloatMap], FloatMap]] = {
    "error-level": error_level,
    "laplacian": laplacian,
    "rgb": rgb,
}


def image_planes(image: FloatMap, channels: str) -> NDArray[np.float32]:
    """Return the channels of a photo as separate planes.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
    channels : {"rgb", "laplacian", "error-level"}

    Returns
    -------
    ndarray of shape (3, height, width), float32

    Examples
    --------
    >>> import numpy as np
    >>> image_planes(np.zeros((4, 5, 3), dtype=np.float32), "rgb").shape
    (3, 4, 5)
    """
    if channels not in CHANNELS:
        raise ValueError(f"channels={channels!r} must be one of {', '.join(CHANNELS)}")
    return CHANNELS[channels](np.ascontiguousarray(image))
