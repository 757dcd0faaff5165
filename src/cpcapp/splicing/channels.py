"""What the patches are cut from: the photo itself, or what is left of it after a filter."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.patches import FloatMap

_ERROR_LEVEL_QUALITY = 90
# JPEG ends at 65,500 pixels: longer photos are compressed in parts of whole blocks.
_LONGEST_JPEG = 65_488


def rgb(image: FloatMap) -> FloatMap:
    """Return the colours as they are: the paper's choice."""
    return image


def laplacian(image: FloatMap) -> FloatMap:
    """Return each colour minus the mean of its four neighbours, times four."""
    return np.asarray(cv2.Laplacian(image, cv2.CV_32F, ksize=1, borderType=cv2.BORDER_REFLECT_101))


def error_level(image: FloatMap) -> FloatMap:
    """Return what JPEG at quality 90 takes away.

    Parts of a photo that were compressed before, or not, lose differently.
    """
    lost = np.empty_like(image)
    for top in range(0, image.shape[0], _LONGEST_JPEG):
        for left in range(0, image.shape[1], _LONGEST_JPEG):
            part = (slice(top, top + _LONGEST_JPEG), slice(left, left + _LONGEST_JPEG))
            np.subtract(image[part], _compressed(image[part]), out=lost[part])
    return lost


def _compressed(image: FloatMap) -> FloatMap:
    pixels = np.rint(255.0 * image).astype(np.uint8)
    _, data = cv2.imencode(
        ".jpg", pixels[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, _ERROR_LEVEL_QUALITY]
    )
    again = np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR))[:, :, ::-1]
    return np.asarray(np.divide(again, np.float32(255.0), dtype=np.float32))


CHANNELS: dict[str, Callable[[FloatMap], FloatMap]] = {
    "error-level": error_level,
    "laplacian": laplacian,
    "rgb": rgb,
}


def planes_of(image: FloatMap, channels: str) -> NDArray[np.float32]:
    """Return the channels of a photo, one after the other.

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
    >>> planes_of(np.zeros((4, 5, 3), dtype=np.float32), "rgb").shape
    (3, 4, 5)
    """
    if channels not in CHANNELS:
        raise ValueError(f"channels={channels!r} must be one of {', '.join(CHANNELS)}")
    return np.ascontiguousarray(CHANNELS[channels](image).transpose(2, 0, 1))
