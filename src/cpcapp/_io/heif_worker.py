"""The process that reads HEIC and AVIF files, so that a damaged one can do no harm to another.

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
    """Say what each file that comes contains, or send its pixels."""
    answer_requests(_answer, _import_decoders)


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


def _answer(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    limit_memory(request["memory"])
    image, n_images = _open(io.BytesIO(arrays[0].tobytes()), request["format"])
    if request["do"] == "decode":
        return {}, [_pixels(image)]
    # libheif turns and crops as the file says; of AVIF, Pillow says how to turn.
    avif = request["format"] == "AVIF"
    facts = {
        "size": image.size,
        "bits": int(image.info.get("bit_depth", 8)),
        "images": n_images,
        "orientation": int(image.getexif().get(274, 1)) if avif else 1,
    }
    blocks = (image.info.get(name) or b"" for name in ("exif", "xmp"))
    return facts, [np.frombuffer(block, np.uint8) for block in blocks]


def _open(file: io.BytesIO, form: str) -> tuple[Any, int]:
    """Return the main picture, not decoded, and how many there are."""
    if form == "AVIF":
        from PIL.AvifImagePlugin import AvifImageFile

        return AvifImageFile(file), 1
    import pillow_heif

    pictures = pillow_heif.open_heif(file, convert_hdr_to_8bit=False)
    return pictures[pictures.primary_index], len(pictures)


def _pixels(image: Any) -> NDArray[Any]:
    pixels = np.asarray(image)
    if pixels.dtype != np.uint16:
        return pixels
    # Shifted to the left by the library: 10 bits of white are 65472.
    bits = int(image.info["bit_depth"])
    white = (1 << bits) - 1
    levels = np.rint(np.arange(white + 1) * (65535.0 / white)).astype(np.uint16)
    scaled = np.empty_like(pixels)
    # Row by row, so that there is no third copy of them.
    for row, out in zip(pixels, scaled, strict=True):
        np.take(levels, row >> np.uint16(16 - bits), out=out, mode="clip")
    return scaled
