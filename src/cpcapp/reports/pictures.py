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
    """Return a picture of 8 bits as JPEG, made smaller if a side is longer than allowed."""
    # The quality was chosen by eye, without subsampling: edges and colours of a drawn map stay
    # clean. Not with optimize=True, which fails on noise: Pillow's buffer for it is too small.
    return _encode(picture, max_side, format="JPEG", quality=quality, subsampling=0)


def encode_png(picture: NDArray[Any], max_side: int) -> EncodedPicture:
    """Return a picture as `encode_jpeg` does, as PNG."""
    return _encode(picture, max_side, format="PNG")


def _encode(picture: NDArray[Any], max_side: int, **options: Any) -> EncodedPicture:
    # Here, as pages without pictures need no Pillow.
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    # A thin strip keeps at least one pixel.
    image.thumbnail((max_side, max_side), Image.Resampling.LANCZOS, reducing_gap=3.0)
    file = io.BytesIO()
    image.save(file, **options)
    return EncodedPicture(file.getvalue(), image.width, image.height)
