"""The process that decodes HEIC and AVIF files, so that a damaged one can do no harm to another.

The decoders of video frames are large programs in C and C++, in which faults are found every year.
So `cpcapp.splicing.photo.heif` sends them the file here, with limits on memory and time.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.worker import Arrays, answer_requests, limit_memory


def main() -> None:
    """Send the pixels of each file that comes."""
    answer_requests(_answer, _import_decoders)


def _answer(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    limit_memory(request["memory"])
    return {}, [_decode(arrays[0].tobytes(), request)]


def _import_decoders() -> None:
    """Import what decodes, before the first message: its time does not count as reading."""
    import PIL.AvifImagePlugin
    import PIL.Image  # noqa: F401

    try:
        import pillow_heif
    except ImportError:  # AVIF needs none
        return
    # They would be decoded too; nobody asks for them here.
    pillow_heif.options.THUMBNAILS = False
    pillow_heif.options.DEPTH_IMAGES = False
    pillow_heif.options.AUX_IMAGES = False


def _decode(data: bytes, request: dict[str, Any]) -> NDArray[Any]:
    """Return the pixels of the main picture, upright, (height, width, channels)."""
    heic = request["format"] == "HEIC"
    pixels = (_decode_heic if heic else _decode_avif)(data, *request["size"])
    if not heic:  # libheif turns and crops as the file says
        for kind, value in request["turns"]:
            # Counterclockwise; and the top for the bottom, or the left for the right side.
            pixels = np.rot90(pixels, value) if kind == "turn" else np.flip(pixels, value)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _decode_heic(data: bytes, width: int, height: int) -> NDArray[Any]:
    import pillow_heif

    file = pillow_heif.open_heif(io.BytesIO(data), convert_hdr_to_8bit=False)
    image = file[file.primary_index]
    _check_size(image.size, width, height)
    pixels = np.asarray(image)
    if pixels.dtype == np.uint16:
        # Shifted to the left by the library: 10 bits of white are 65472.
        bits = int(image.info["bit_depth"])
        white = (1 << bits) - 1
        levels = np.rint(np.arange(white + 1) * (65535.0 / white)).astype(np.uint16)
        scaled = np.empty_like(pixels)
        # Row by row, so that there is no third copy of them.
        for row, out in zip(pixels, scaled, strict=True):
            np.take(levels, row >> np.uint16(16 - bits), out=out, mode="clip")
        return scaled
    return pixels


def _decode_avif(data: bytes, width: int, height: int) -> NDArray[Any]:
    from PIL.AvifImagePlugin import AvifImageFile

    with AvifImageFile(io.BytesIO(data)) as image:
        _check_size(image.size, width, height)
        return np.asarray(image)


def _check_size(found: tuple[int, int], width: int, height: int) -> None:
    """Raise for a picture that is larger than its container says; a crop is smaller."""
    if found[0] * found[1] > width * height:
        raise ValueError(f"it has {found[0]} × {found[1]} pixels instead of {width} × {height}")
