"""Pictures in the size in which a page shows them."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class EncodedPicture(NamedTuple):
    """A picture as the content of a file, with its size in pixels."""

    content: bytes
    width: int
    height: int


def encode_jpeg(picture: NDArray[Any], max_side: int, *, quality: int = 88) -> EncodedPicture:
    """Return a picture as JPEG, made smaller if it is larger than allowed.

    Parameters
    ----------
    picture : ndarray of shape (height, width, 3) or (height, width), uint8 or uint16
    max_side : int
        Pixels of the longer side, at most.
    quality : int, default=88
        Chosen by eye: edges of a drawn map stay clean.

    Returns
    -------
    EncodedPicture

    Examples
    --------
    >>> small = encode_jpeg(np.zeros((300, 900, 3), dtype=np.uint8), 300)
    >>> small.content[:2] == bytes.fromhex("ffd8"), small.width, small.height
    (True, 300, 100)
    """
    image = _shrink(picture, max_side)
    file = io.BytesIO()
    # Without subsampling: the colours of a drawn map are what matters. Not with optimize=True,
    # which fails on noise: Pillow's buffer for it is too small.
    image.save(file, "JPEG", quality=quality, subsampling=0)
    return EncodedPicture(file.getvalue(), image.width, image.height)


def encode_png(picture: NDArray[Any], max_side: int) -> EncodedPicture:
    """Return a picture as PNG, made smaller if it is larger than allowed.

    Parameters
    ----------
    picture : ndarray of shape (height, width, 3) or (height, width), uint8 or uint16
    max_side : int
        Pixels of the longer side, at most.

    Returns
    -------
    EncodedPicture
    """
    image = _shrink(picture, max_side)
    file = io.BytesIO()
    image.save(file, "PNG")
    return EncodedPicture(file.getvalue(), image.width, image.height)


def _shrink(picture: NDArray[Any], max_side: int) -> Any:
    # Here, as pages without pictures need no Pillow.
    from PIL import Image

    if picture.dtype == np.uint16:
        picture = (picture >> 8).astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(picture))
    # A thin strip keeps at least one pixel.
    image.thumbnail((max_side, max_side), Image.Resampling.LANCZOS, reducing_gap=3.0)
    return image
