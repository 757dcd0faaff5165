"""JPEG: encoding, decoding, and the quality that the tables of a file stand for."""

from __future__ import annotations

from itertools import product
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cpcapp.splicing.photo.pixels import FloatMap, as_bytes

BLOCK = 8
_STRIP = 512
# JPEG allows sides up to 65,500 pixels: longer photos are compressed in parts of whole blocks.
_MAX_SIDE = 65_488
_FREQUENCIES = np.arange(BLOCK)
# The orthonormal discrete cosine transform, as JPEG has it.
_COSINES = (
    np.cos(np.pi / BLOCK * np.outer(_FREQUENCIES, _FREQUENCIES + 0.5))
    * np.where(_FREQUENCIES == 0, 1.0, 2.0**0.5)[:, None]
    / BLOCK**0.5
).astype(np.float32)


def recompress(pixels: ArrayLike, quality: int) -> NDArray[np.uint8]:
    """Compress a photo as JPEG and return the decoded pixels.

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
    whole = as_bytes(array)
    out = np.empty_like(whole)
    for top, left in product(*(range(0, side, _MAX_SIDE) for side in whole.shape[:2])):
        part = slice(top, top + _MAX_SIDE), slice(left, left + _MAX_SIDE)
        out[part] = decode_jpeg(encode_jpeg(whole[part], quality))
    return out


def encode_jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Encode a photo as a JPEG file.

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


def block_cosines(plane: NDArray[Any]) -> FloatMap:
    """Return the cosine transform of each whole 8 x 8 block.

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
    light = np.empty(array.shape[:2], dtype=np.float32)
    # In strips, as three colours of a large photo in floats would take much memory.
    for top in range(0, len(array), _STRIP):
        levels = array[top : top + _STRIP].astype(np.float32)
        if white != 255:
            levels *= np.float32(255.0 / white)
        grey = levels if levels.ndim == 2 else cv2.cvtColor(levels, cv2.COLOR_RGB2GRAY)
        light[top : top + _STRIP] = grey
    return light
