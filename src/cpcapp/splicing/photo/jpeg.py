"""JPEG: encoding, decoding, and the quality that the tables of a file stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.splicing.photo.pixels import FloatMap, as_bytes
from cpcapp.splicing.photo.standard_table import STANDARD_TABLE as STANDARD_TABLE

BLOCK = 8
_FREQUENCIES = np.arange(BLOCK)
# The orthonormal discrete cosine transform, as JPEG has it.
_COSINES = (
    np.cos(np.pi / BLOCK * np.outer(_FREQUENCIES, _FREQUENCIES + 0.5))
    * np.where(_FREQUENCIES == 0, 1.0, 2.0**0.5)[:, None]
    / BLOCK**0.5
).astype(np.float32)


def recompress(pixels: ArrayLike, quality: int) -> NDArray[np.uint8]:
    """Compress a photo as JPEG and return the decoded pixels.

    Parameters
    ----------
    pixels : array-like of shape (height, width, 3), uint8 or uint16
        RGB.
    quality : int
        From 1 to 100.

    Returns
    -------
    ndarray of shape (height, width, 3), uint8

    Examples
    --------
    >>> import numpy as np
    >>> photo = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    >>> errors = [np.abs(recompress(photo, q) - photo.astype(float)).mean() for q in (95, 50)]
    >>> bool(0 < errors[0] < errors[1])
    True
    """
    array = np.asarray(pixels)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype not in (np.uint8, np.uint16):
        raise ValueError(
            f"pixels of shape {array.shape} and type {array.dtype} must be an RGB photo: "
            "(height, width, 3), uint8 or uint16"
        )
    return decode_jpeg(encode_jpeg(as_bytes(array), quality))


def encode_jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Encode a photo as a JPEG file.

    Parameters
    ----------
    pixels : ndarray of shape (height, width, 3), uint8
        RGB.
    quality : int
        From 1 to 100.

    Returns
    -------
    bytes

    Examples
    --------
    >>> import numpy as np
    >>> b"JFIF" in encode_jpeg(np.zeros((8, 8, 3), dtype=np.uint8), quality=90)
    True
    """
    if not 1 <= quality <= 100:
        raise ValueError(f"quality={quality!r} must be from 1 to 100")
    settings = [cv2.IMWRITE_JPEG_QUALITY, int(quality)]
    _, data = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), settings)
    return bytes(data)


def decode_jpeg(data: bytes) -> NDArray[np.uint8]:
    """Decode a JPEG file that this package wrote; return RGB, (height, width, 3)."""
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB))


def table_quality(relative: float) -> int:
    """Return the quality for which libjpeg scales the standard table by a factor.

    Parameters
    ----------
    relative : float
        Steps of the table over those of the standard one.

    Returns
    -------
    int
        From 1 to 100.

    Examples
    --------
    >>> table_quality(1.0), table_quality(0.2), table_quality(2.0)
    (50, 90, 25)
    """
    percent = 100.0 * relative
    quality = 5000.0 / percent if percent > 100.0 else (200.0 - percent) / 2.0
    return int(np.clip(round(quality), 1, 100))


def file_quality(table: Sequence[int]) -> int:
    """Return the quality that the luminance table of a JPEG file stands for.

    Cameras and editors use their own tables. For these the result is the quality of libjpeg with
    about the same mean step.

    Parameters
    ----------
    table : sequence of 64 int
        In any order: only the sum is used.

    Returns
    -------
    int
        From 1 to 100; for tables of libjpeg at most 1 off.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from PIL import Image
    >>> for quality in (50, 90):
    ...     file = io.BytesIO()
    ...     Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(file, "JPEG", quality=quality)
    ...     print(file_quality(Image.open(file).quantization[0]))
    50
    90
    """
    if len(table) != 64 or min(table) < 0:
        raise ValueError(f"table of {len(table)} entries must have 64, none below 0")
    return table_quality(sum(table) / float(STANDARD_TABLE.sum()))


def block_cosines(plane: NDArray[Any]) -> FloatMap:
    """Return the cosine transform of each whole 8 x 8 block.

    Parameters
    ----------
    plane : ndarray of shape (height, width)
        Blocks begin at its upper left corner.

    Returns
    -------
    ndarray of shape (height // 8, width // 8, 8, 8), float32
        Orthonormal; vertical frequencies before horizontal ones.

    Examples
    --------
    >>> import numpy as np
    >>> block_cosines(np.full((8, 20), 3.0))[0, :, 0, 0].round(3)
    array([24., 24.], dtype=float32)
    """
    height, width = (n // BLOCK * BLOCK for n in plane.shape)
    whole = np.ascontiguousarray(plane[:height, :width], dtype=np.float32)
    if not whole.size:
        return np.zeros((height // BLOCK, width // BLOCK, BLOCK, BLOCK), dtype=np.float32)
    # Two multiplications of tall matrices: faster than two small ones for each block.
    across = whole.reshape(-1, BLOCK) @ _COSINES.T
    across = across.reshape(height // BLOCK, BLOCK, width).swapaxes(1, 2)
    both = np.ascontiguousarray(across).reshape(-1, BLOCK) @ _COSINES.T
    shape = (height // BLOCK, width // BLOCK, BLOCK, BLOCK)
    return np.asarray(both.reshape(shape).swapaxes(2, 3))


def luminance(pixels: ArrayLike) -> FloatMap:
    """Return JPEG's luminance of a photo, in grey levels from 0 to 255, not rounded.

    Parameters
    ----------
    pixels : array-like of shape (height, width, 3) or (height, width)
        uint8 or uint16, or floats in [0, 1].

    Returns
    -------
    ndarray of shape (height, width), float32

    Examples
    --------
    >>> import numpy as np
    >>> luminance(np.array([[[255, 0, 0], [9, 9, 9]]], np.uint8)).round(2)
    array([[76.24,  9.  ]], dtype=float32)
    """
    array = np.asarray(pixels)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3):
        raise ValueError(
            f"pixels of shape {array.shape} must be (height, width, 3) or (height, width)"
        )
    white = np.iinfo(array.dtype).max if array.dtype.kind in "ui" else 1
    levels = array.astype(np.float32)
    if white != 255:
        levels *= np.float32(255.0 / white)
    return levels if levels.ndim == 2 else np.asarray(cv2.cvtColor(levels, cv2.COLOR_RGB2GRAY))
