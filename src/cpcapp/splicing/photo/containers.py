"""Inspecting image files without decoding a pixel.

Pillow's decoders get only the parts of a file that the pixels need. Comments, thumbnails, profiles
and EXIF are left out, and the directory of a TIFF is checked first.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from cpcapp.splicing.photo.contents import CUT_OFF, DAMAGED, Contents, UnreadableError
from cpcapp.splicing.photo.heif import (
    INSTALL,
    HeifError,
    can_read,
    decode_pixels,
    is_heif,
    read_container,
)
from cpcapp.splicing.photo.library_output import jpeg_warning
from cpcapp.splicing.photo.tiff import inspect_tiff, read_tags

# More than any real file has. They limit the work that a hostile file can cause.
_MAX_SEGMENTS = 1_000_000
_MAX_SCANS = 100
# Usual files have 10. Each scan passes over the whole picture, which takes 0.7 s for 100
# megapixels: if there are more scans, so many pixels in all.
_USUAL_SCANS = 12
_MAX_SCANNED = 600_000_000


def inspect_container(data: bytes) -> Contents:
    """Inspect a file. The content decides the format, not the name.

    Examples
    --------
    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (3, 2)).save(file, "BMP")
    >>> inspect_container(file.getvalue()).size
    (3, 2)
    """
    for magic, reader in (
        (rb"\xff\xd8\xff", _jpeg),
        (rb"\x89PNG\r\n\x1a\n", _png),
        (rb"II\*\0|MM\0\*", inspect_tiff),
        (rb"RIFF....WEBP", _webp),
        (rb"BM", _bmp),
    ):
        if re.match(magic, data, re.DOTALL):
            try:
                return reader(data)
            except (struct.error, LookupError) as error:
                raise UnreadableError(DAMAGED) from error
    if is_heif(data):
        return _heif(data)
    raise UnreadableError(
        "is not a JPEG, PNG, plain TIFF, WebP, BMP, HEIC or AVIF; convert it to one of them"
    )


def _heif(data: bytes) -> Contents:
    try:
        found = read_container(data)
    except HeifError as error:
        raise UnreadableError(str(error)) from error.__cause__
    if not can_read(found.format):
        raise UnreadableError(
            f"is {found.format}, which needs another package: run {INSTALL}, or save it as PNG"
        )
    notes = []
    if found.n_images > 1:
        notes.append(f"main one of {found.n_images} images")
    if found.animated:
        notes.append("one frame of an animation")
    if found.bits > 8:
        # Pillow gives 8 bits of AVIF.
        reduced = " reduced to 8" if found.format == "AVIF" else ""
        notes.append(f"{found.bits} bits{reduced}")
    if found.turns:
        notes.append("turned by the stored orientation")
    wide = found.bits > 8 and found.format == "HEIC"

    def decode() -> NDArray[Any]:
        try:
            return decode_pixels(data, found)
        except HeifError as error:
            raise UnreadableError(str(error)) from error.__cause__

    def open_file() -> ImageFile.ImageFile:
        raise UnreadableError(DAMAGED)

    # Of the other process, measured: planes of light and colour, and the pixels once or more.
    bytes_per_pixel = 17 if found.format == "AVIF" else 16 if wide else 6
    memory = 3 * len(data) + bytes_per_pixel * found.size[0] * found.size[1]
    memory += (2 if wide else 1) * 2 * found.tile_pixels
    return Contents(
        *(found.format, found.size, open_file, tuple(notes)),
        wide=wide,
        memory=memory,
        decode=decode,
    )


def _bmp(data: bytes) -> Contents:
    image = BmpImageFile(io.BytesIO(data))
    # Pillow decodes these pixel by pixel in Python: a small file could take minutes.
    if image.info["compression"] in (1, 2):
        raise UnreadableError("is a BMP with run lengths, which is not read; save it as PNG")
    return Contents("BMP", image.size, lambda: image, memory=len(data))


def _webp(data: bytes) -> Contents:
    if len(data) < max(30, int.from_bytes(data[4:8], "little") + 8):
        raise UnreadableError(CUT_OFF)
    # Read from the header, because opening the file allocates memory for the pixels.
    if data[12:16] == b"VP8X":
        width, height = (1 + int.from_bytes(data[i : i + 3], "little") for i in (24, 27))
    elif data[12:16] == b"VP8L":
        both = int.from_bytes(data[21:25], "little")
        width, height = 1 + (both & 0x3FFF), 1 + (both >> 14 & 0x3FFF)
    else:
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    exif, n_frames, at = b"", 0, 12
    for _ in range(_MAX_SEGMENTS):
        if at + 8 > len(data):
            break
        kind, size = struct.unpack_from("<4sI", data, at)
        if kind == b"EXIF":
            exif = exif or data[at + 8 : at + 8 + size]
        n_frames += kind == b"ANMF"
        at += 8 + size + size % 2
    orientation, notes = _orientation(exif)
    if n_frames > 1:
        notes.append(f"first of {n_frames} frames")

    def open_file() -> WebPImageFile:
        return WebPImageFile(io.BytesIO(data))

    # Two canvases and one result of 4 bytes a pixel each.
    memory = 2 * len(data) + 12 * width * height
    return Contents("WebP", (width, height), open_file, tuple(notes), orientation, memory=memory)


def _png(data: bytes) -> Contents:
    view = memoryview(data)
    kept, exif, extras, at = [view[:8]], b"", [], 8
    for _ in range(_MAX_SEGMENTS):
        size, kind = struct.unpack_from(">I4s", data, at)
        chunk = view[at : at + 12 + size]
        at += 12 + size
        if at > len(data):
            raise UnreadableError(CUT_OFF)
        if kind in (b"IHDR", b"PLTE", b"IDAT", b"IEND"):
            if zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
                raise UnreadableError(DAMAGED)
            kept.append(chunk)
        elif kind == b"tRNS":
            extras.append("transparency ignored")
        elif kind == b"acTL":
            extras.append(f"first of {int.from_bytes(chunk[8:12], 'big')} frames")
        elif kind == b"eXIf":
            exif = exif or bytes(chunk[8:-4])
        if kind == b"IEND":
            break
    else:
        raise UnreadableError(f"has more than {_MAX_SEGMENTS} chunks; save it anew")
    file, sizes = b"".join(kept), [len(chunk) for chunk in kept]
    del data, view, chunk, kept  # so that the file is in memory once
    width, height, bits, colours, interlaced = struct.unpack_from(">II2B2xB", file, 16)
    if (bits, colours) == (16, 4):
        extras.append("16 bits reduced to 8")
    orientation, notes = _orientation(exif)

    def open_file() -> PngImageFile:
        return PngImageFile(io.BytesIO(file))

    def find_defect() -> str:
        pixel_bits = bits * {2: 3, 4: 2, 6: 4}.get(colours, 1)
        needed = 0
        for left, top, across, down in _PNG_PASSES[interlaced]:
            columns, rows = -(-(width - left) // across), -(-(height - top) // down)
            needed += rows * (1 + -(-columns * pixel_bits // 8)) if columns else 0
        return "" if _unpacks_to(_png_data(file, sizes), needed) else CUT_OFF

    return Contents(
        *("PNG", (width, height), open_file, (*extras, *notes), orientation),
        deep=bits == 16 and colours in (2, 6),
        wide=bits == 16 and colours != 4,
        memory=len(file),
        find_defect=find_defect,
    )


def _png_data(file: bytes, sizes: Sequence[int]) -> Iterator[memoryview]:
    """Yield the packed pixels of a PNG, given the sizes of its chunks."""
    at = 0
    for size in sizes:
        if file[at + 4 : at + 8] == b"IDAT":
            yield memoryview(file)[at + 8 : at + size - 4]
        at += size


# First column and row of each pass over the pixels, and the step sizes.
_PNG_PASSES = (
    ((0, 0, 1, 1),),
    (
        *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
        *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
    ),
)


def _unpacks_to(parts: Iterable[memoryview], needed: int) -> bool:
    """Return whether a PNG has at least so many bytes: Pillow leaves missing pixels black."""
    engine, size = zlib.decompressobj(), 0
    for part in parts:
        rest: bytes | memoryview = part
        while size < needed and (piece := engine.decompress(rest, 1 << 20)):
            size += len(piece)
            rest = engine.unconsumed_tail
    return size >= needed


# A marker that is followed by a segment. Fill bytes, stuffed zeros and the like are skipped.
_JPEG_MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")


def _jpeg_parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the tables needed to decode a JPEG, the scans, and the EXIF data."""
    head, exif, at = [b"\xff\xd8"], b"", 2
    for _ in range(_MAX_SEGMENTS):
        found = _JPEG_MARKER.search(data, at)
        if not found or found[1] == b"\xd9":
            raise UnreadableError(CUT_OFF)
        marker, start = found[1][0], found.end()
        if marker == 0xDA:
            return b"".join(head), data[found.start() :], exif
        at = start + int.from_bytes(data[start : start + 2], "big")
        if marker == 0xE1 and data.startswith(b"Exif\0\0", start + 2):
            exif = exif or data[start + 2 : at]
        # Tables and frames, and the segments that give the colour space: JFIF and Adobe.
        if marker < 0xD0 or marker in (0xDB, 0xDD, 0xE0, 0xEE):
            head.append(data[found.start() : at])
    raise UnreadableError(f"has more than {_MAX_SEGMENTS} segments; save it anew")


def _jpeg(data: bytes) -> Contents:
    head, scans, exif = _jpeg_parts(data)
    file = head + scans
    # A scan of a few bytes can update the whole picture.
    headers = _scan_headers(file, len(head))
    if len(headers) > _MAX_SCANS:
        raise UnreadableError(f"has more than {_MAX_SCANS} scans; save it anew")
    image = JpegImageFile(io.BytesIO(file))
    width, height = image.size
    if len(headers) > _USUAL_SCANS and len(headers) * width * height > _MAX_SCANNED:
        raise UnreadableError(
            f"has {len(headers)} scans of {width} × {height} pixels, which would take long to "
            "read; save it anew"
        )
    orientation, notes = _orientation(exif)
    progressive = "progressive" in image.info
    # If there are several scans, all coefficients are kept, 2 bytes each.
    layers = getattr(image, "layer", [])
    most = max((across * down for _, across, down, _ in layers), default=1)
    samples = sum(across * down for _, across, down, _ in layers) / max(most, 1)
    buffers = 2 * samples * width * height if len(headers) > 1 else 0

    def find_defect() -> str:
        if not _scans_are_complete(headers, [layer[0] for layer in layers], progressive):
            return CUT_OFF
        output = jpeg_warning([file])
        if output.says_cut_off:
            return CUT_OFF
        return "damaged JPEG data" if output.text else ""

    return Contents(
        *("JPEG", image.size, lambda: image, tuple(notes), orientation),
        memory=len(file) + int(buffers),
        find_defect=find_defect,
    )


# Followed by a segment, for libjpeg too: were a length read after another marker, scans could hide
# behind it.
_NEXT_MARKER = re.compile(rb"\xff+([\x02-\xcf\xd8-\xfe])")


def _scan_headers(file: bytes, at: int) -> list[bytes]:
    """Return what stands at the beginning of each scan, up to the end of the picture."""
    headers: list[bytes] = []
    # What follows the picture may be anything, such as a film.
    while (found := _NEXT_MARKER.search(file, at)) and found[1] != b"\xd9":
        start = found.end()
        at = start + max(int.from_bytes(file[start : start + 2], "big"), 2)
        if found[1] == b"\xda":
            headers.append(file[start + 2 : at])
            if len(headers) > _MAX_SCANS:
                break
    return headers


def _scans_are_complete(
    headers: Sequence[bytes], components: Sequence[int], progressive: bool
) -> bool:
    """Return whether the scans send every coefficient of every component to its last bit.

    libjpeg shows what there is: a picture without its last scans is blurred.
    """
    # Bits that are still missing, of each coefficient.
    missing = {name: np.full(64, 16) for name in components}
    for header in headers:
        count = header[0] if header else 0
        if len(header) != 4 + 2 * count:
            return False
        first, last, bits = header[-3:]
        for name in header[1 : 1 + 2 * count : 2]:
            if name in missing:
                span = slice(first, last + 1) if progressive else slice(None)
                missing[name][span] = bits & 15 if progressive else 0
    return not any(left.any() for left in missing.values())


def _orientation(exif: bytes) -> tuple[int, list[str]]:
    """Return the orientation, and a note if the EXIF data is invalid."""
    if not exif:
        return 1, []
    try:
        tags = read_tags(exif.removeprefix(b"Exif\0\0"), {274})
    except (UnreadableError, struct.error):
        return 1, ["broken EXIF ignored"]
    orientation = tags.get(274, (1,))[0]
    # Some cameras write 0 if they don't know the orientation.
    return orientation, [] if orientation <= 8 else ["broken EXIF ignored"]
