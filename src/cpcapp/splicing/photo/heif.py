"""HEIC and AVIF files. Another process reads them: see `cpcapp._io.heif_worker`."""

from __future__ import annotations

import os
import re
import threading
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.worker import Answer, Worker, WorkerError
from cpcapp.splicing.photo.contents import Contents, ImageError, Metadata, read_exif
from cpcapp.splicing.photo.pixels import turn_upright

_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"})
_OTHER_BRANDS = frozenset({b"mif1", b"msf1", b"mif2", b"miaf"})
_FILMS = frozenset({b"avis", b"msf1", b"hevc", b"hevx", b"hevm", b"hevs"})
# What the boxes say of the picture stands in front of it.
_HEAD = 1 << 20
_TURNED = re.compile(rb"\0\0\0\x09(?:irot[\1-\3]|imir)")
_AVIF_BITS = re.compile(rb"av1C..([\x40-\x7f\xc0-\xff])", re.DOTALL)
#: What installs the decoders.
INSTALL = 'pip install "cpcapp[heif]"'

# Memory for each pixel, and in any case, in the process that decodes: planes of 2 bytes, colours of
# 2 bytes, and copies of both; the same again for tiles.
_BYTES_PER_PIXEL = 64
_SPARE_MEMORY = 512 << 20
# Time to decode, and for each megapixel: set by hand, ten times what a slow machine takes.
_SECONDS, _SECONDS_PER_MEGAPIXEL = 8.0, 4.0


def is_heif(data: bytes) -> bool:
    """Return whether a file begins like a HEIC or AVIF file."""
    return bool(_brands(data) & (_AVIF_BRANDS | _HEIC_BRANDS | _OTHER_BRANDS))


def _brands(data: bytes) -> set[bytes]:
    if data[4:8] != b"ftyp":
        return set()
    end = min(int.from_bytes(data[:4], "big"), 1024)
    return {data[8:12], *(data[place : place + 4] for place in range(16, end, 4))}


@cache
def can_read(form: str) -> bool:
    """Return whether files of a format, HEIC or AVIF, can be decoded here."""
    if form == "HEIC":
        return find_spec("pillow_heif") is not None
    from PIL import features

    # Older versions of Pillow do not know the name.
    return "avif" in features.modules and bool(features.check_module("avif"))


def read_heif(data: bytes) -> Contents:
    """Inspect a HEIC or AVIF file."""
    brands, head = _brands(data), data[:_HEAD]
    coded_as_avif = b"av01" in head and b"hvc1" not in head
    form = "AVIF" if brands & _AVIF_BRANDS or coded_as_avif else "HEIC"
    if not can_read(form):
        raise ImageError(
            f"is {form}, which needs another package: run {INSTALL}, or save it as PNG"
        )
    answer, (exif, xmp) = _ask(data, {"do": "inspect", "format": form}, 0)
    (width, height), bits, orientation = answer["size"], answer["bits"], answer["orientation"]
    notes = []
    if answer["images"] > 1:
        notes.append(f"main one of {answer['images']} images")
    if brands & _FILMS:
        notes.append("one frame of an animation")
    if form == "AVIF" and (deep := _AVIF_BITS.search(head)):
        # Pillow gives 8 bits of AVIF.
        notes.append(f"{12 if deep[1][0] & 0x20 else 10} bits reduced to 8")
    elif bits > 8:
        notes.append(f"{bits} bits")
    if orientation > 1 or (form == "HEIC" and _TURNED.search(head)):
        notes.append("turned by the stored orientation")

    def decode(notes: list[str]) -> NDArray[Any]:
        _, arrays = _ask(data, {"do": "decode", "format": form}, width * height)
        pixels = turn_upright(arrays[0], orientation)
        return pixels if pixels.ndim == 3 else pixels[:, :, None]

    # Of the other process, measured: planes of light and colour, of HEIC of tiles too, and pixels.
    bytes_per_pixel = 17 if form == "AVIF" else 20 if bits > 8 else 8
    return Contents(
        form,
        (width, height),
        tuple(notes),
        open=decode,
        wide=bits > 8,
        memory=3 * len(data) + bytes_per_pixel * width * height,
        metadata=Metadata(read_exif(exif.tobytes()), xmp.tobytes()),
    )


_lock = threading.Lock()
_worker: tuple[int, Worker] | None = None


def _ask(data: bytes, request: dict[str, Any], n_pixels: int) -> Answer:
    """Return the answer of the process that decodes, or raise."""
    global _worker
    seconds = _SECONDS + _SECONDS_PER_MEGAPIXEL * n_pixels / 1e6
    request["memory"] = _SPARE_MEMORY + _BYTES_PER_PIXEL * n_pixels + 4 * len(data)
    with _lock:
        # A process that was forked has none of its own.
        if _worker is None or _worker[0] != os.getpid():
            _worker = os.getpid(), Worker("cpcapp._io.heif_worker")
        worker = _worker[1]
        try:
            return worker.ask(request, seconds, [np.frombuffer(data, np.uint8)])
        except WorkerError as error:
            texts = {
                "start": "can't be read: the process that decodes it did not start",
                "stopped": "is damaged: decoding it was stopped, because it crashed or took more "
                f"than {seconds:.0f} seconds; use an undamaged copy",
            }
            if error.kind in texts:
                _worker = None
            other = f"is damaged or of a kind that is not read ({error}); use an undamaged copy"
            text = texts.get(error.kind, f"{other} or save it as PNG")
            raise ImageError(text) from error
