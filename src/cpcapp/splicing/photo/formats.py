"""One walker for each file format: size, orientation, bits, completeness, metadata, refusals.

No pixel is decoded here. Pillow's decoders get only the parts of a file that the pixels need:
comments, thumbnails, profiles and EXIF are left out, and the directory of a TIFF is checked first.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from cpcapp.splicing.photo.contents import (
    CUT_OFF,
    DAMAGED,
    Contents,
    ImageError,
    Metadata,
    decode_text,
    read_exif,
)
from cpcapp.splicing.photo.heif import is_heif, read_heif
from cpcapp.splicing.photo.jpeg_file import JpegFile
from cpcapp.splicing.photo.tiff import read_tiff

# More than any real file has. They limit the work that a hostile file can cause.
_MAX_CHUNKS = 1_000_000
_MAX_TEXTS = 50
_XMP = "XML:com.adobe.xmp"  # the keyword of a PNG
# Longer blocks of metadata are cut off: no fact that is looked for stands beyond.
_MAX_BLOCK = 4 << 20
# Of all texts of a PNG together: little data may become much.
_MAX_UNPACKED = 16 << 20


def inspect_container(data: bytes) -> Contents:
    """Inspect a file. The content decides the format, not the name.

    >>> file = io.BytesIO()
    >>> Image.new("RGB", (3, 2)).save(file, "BMP")
    >>> inspect_container(file.getvalue()).size
    (3, 2)
    """
    for magic, reader in (
        (rb"\xff\xd8\xff", _jpeg),
        (rb"\x89PNG\r\n\x1a\n", _png),
        (rb"II\*\0|MM\0\*", read_tiff),
        (rb"RIFF....WEBP", _webp),
        (rb"BM", _bmp),
    ):
        if re.match(magic, data, re.DOTALL):
            try:
                return reader(data)
            except (struct.error, LookupError) as error:
                raise ImageError(DAMAGED) from error
    if is_heif(data):
        return read_heif(data)
    raise ImageError(
        "is not a JPEG, PNG, plain TIFF, WebP, BMP, HEIC or AVIF; convert it to one of them"
    )


def _bmp(data: bytes) -> Contents:
    image = BmpImageFile(io.BytesIO(data))
    # Pillow decodes these pixel by pixel in Python: a small file could take minutes.
    if image.info["compression"] in (1, 2):
        raise ImageError("is a BMP with run lengths, which is not read; save it as PNG")

    def open_file(notes: list[str]) -> BmpImageFile:
        tile: Any = image.tile[0]
        # Told to make do with truncated files, Pillow would leave missing pixels black.
        if len(data) < tile.offset + tile.args[1] * image.height:
            raise ImageError(CUT_OFF)
        return image

    return Contents("BMP", image.size, open=open_file, memory=len(data))


def _webp(data: bytes) -> Contents:
    if len(data) < max(30, int.from_bytes(data[4:8], "little") + 8):
        raise ImageError(CUT_OFF)
    # Read from the header, because opening the file allocates memory for the pixels.
    if data[12:16] == b"VP8X":
        width, height = (1 + int.from_bytes(data[i : i + 3], "little") for i in (24, 27))
    elif data[12:16] == b"VP8L":
        both = int.from_bytes(data[21:25], "little")
        width, height = 1 + (both & 0x3FFF), 1 + (both >> 14 & 0x3FFF)
    else:
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    blocks: dict[bytes, bytes] = {}
    n_frames, place = 0, 12
    for _ in range(_MAX_CHUNKS):
        if place + 8 > len(data):
            break
        kind, size = struct.unpack_from("<4sI", data, place)
        if kind in (b"EXIF", b"XMP ", b"ICCP"):
            blocks.setdefault(kind, data[place + 8 : place + 8 + min(size, _MAX_BLOCK)])
        n_frames += kind == b"ANMF"
        place += 8 + size + size % 2
    exif = read_exif(blocks.get(b"EXIF", b""))
    notes = exif.notes
    if n_frames > 1:
        notes.append(f"first of {n_frames} frames")
    return Contents(
        "WebP",
        (width, height),
        tuple(notes),
        open=lambda notes: WebPImageFile(io.BytesIO(data)),
        orientation=exif.orientation,
        # Two canvases and one result of 4 bytes a pixel each.
        memory=2 * len(data) + 12 * width * height,
        metadata=Metadata(exif, blocks.get(b"XMP ", b""), icc=blocks.get(b"ICCP", b"")),
    )


# First column and row of each pass over the pixels of a PNG, and the step sizes.
_PASSES = (
    ((0, 0, 1, 1),),
    (
        *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
        *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
    ),
)


def _png(data: bytes) -> Contents:
    view = memoryview(data)
    kept, extras, place, spare = [view[:8]], [], 8, 4 * _MAX_BLOCK
    blocks: dict[bytes, bytes] = {}
    texts: list[tuple[bytes, bytes]] = []
    for _ in range(_MAX_CHUNKS):
        size, kind = struct.unpack_from(">I4s", data, place)
        chunk = view[place : place + 12 + size]
        place += 12 + size
        if place > len(data):
            raise ImageError(CUT_OFF)
        content = chunk[8 : min(len(chunk) - 4, _MAX_BLOCK)]
        if kind in (b"IHDR", b"PLTE", b"IDAT", b"IEND"):
            if zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
                raise ImageError(DAMAGED)
            kept.append(chunk)
        elif kind == b"tRNS":
            extras.append("transparency ignored")
        elif kind == b"acTL":
            extras.append(f"first of {int.from_bytes(chunk[8:12], 'big')} frames")
        elif kind in (b"eXIf", b"caBX", b"iCCP"):
            blocks.setdefault(kind, bytes(content))
        elif kind in (b"tEXt", b"zTXt", b"iTXt"):
            spare -= len(content)
            if len(texts) < _MAX_TEXTS and spare >= 0:
                texts.append((kind, bytes(content)))
        if kind == b"IEND":
            break
    else:
        raise ImageError(f"has more than {_MAX_CHUNKS} chunks; save it anew")
    file = b"".join(kept)
    del data, view, chunk, content, kept  # so that the file is in memory once
    width, height, bits, colours, interlaced = struct.unpack_from(">II2B2xB", file, 16)
    if (bits, colours) == (16, 4):
        extras.append("16 bits reduced to 8")
    pixel_bits = bits * {2: 3, 4: 2, 6: 4}.get(colours, 1)

    def open_file(notes: list[str]) -> PngImageFile:
        needed = 0
        for left, top, across, down in _PASSES[interlaced]:
            columns, rows = -(-(width - left) // across), -(-(height - top) // down)
            needed += rows * (1 + -(-columns * pixel_bits // 8)) if columns else 0
        _check_unpacked(file, needed)
        return PngImageFile(io.BytesIO(file))

    metadata = _png_metadata(blocks, texts)
    return Contents(
        "PNG",
        (width, height),
        (*extras, *metadata.exif.notes),
        open=open_file,
        orientation=metadata.exif.orientation,
        deep=bits == 16 and colours in (2, 6),
        wide=bits == 16 and colours != 4,
        memory=len(file),
        metadata=metadata,
    )


def _png_metadata(blocks: dict[bytes, bytes], chunks: list[tuple[bytes, bytes]]) -> Metadata:
    xmp, texts, spare = b"", [], _MAX_UNPACKED
    for kind, content in chunks:
        name, _, text = content.partition(b"\0")
        packed = kind == b"zTXt"
        if kind == b"iTXt":
            packed = text[:1] == b"\1"
            # In front of it stand the language, and the keyword in it.
            text = text[2:].partition(b"\0")[2].partition(b"\0")[2]
        elif packed:
            text = text[1:]
        if packed:
            text = _unpack(text, min(spare, _MAX_BLOCK))
            spare -= len(text)
        if (keyword := name.decode("latin-1")) != _XMP:
            texts.append((keyword, text.decode("utf-8", "replace")))
        else:
            xmp = xmp or text
    return Metadata(
        read_exif(blocks.get(b"eXIf", b"")),
        xmp,
        icc=_unpack(blocks.get(b"iCCP", b"").partition(b"\0")[2][1:], _MAX_BLOCK),
        texts=tuple(texts),
        credentials=b"caBX" in blocks,
    )


def _unpack(packed: bytes, longest: int) -> bytes:
    with suppress(zlib.error):
        # No limit is written as 0.
        return zlib.decompressobj().decompress(packed, longest) if longest else b""
    return b""


def _check_unpacked(file: bytes, needed: int) -> None:
    """Raise unless a PNG has so many bytes: Pillow leaves missing pixels black."""
    engine, unpacked, place = zlib.decompressobj(), 0, 8
    while place < len(file) and unpacked < needed:
        size, kind = struct.unpack_from(">I4s", file, place)
        left: Any = memoryview(file)[place + 8 : place + 8 + size] if kind == b"IDAT" else b""
        while unpacked < needed and (piece := engine.decompress(left, 1 << 20)):
            unpacked += len(piece)
            left = engine.unconsumed_tail
        place += 12 + size
    if unpacked < needed:
        raise ImageError(CUT_OFF)


def _jpeg(data: bytes) -> Contents:
    jpeg = JpegFile.read(data)
    del data  # so that the file is in memory once
    parts: dict[str, list[bytes]] = {"exif": [], "xmp": [], "photoshop": [], "icc": []}
    texts: list[tuple[str, str]] = []
    credentials = False
    for code, content in jpeg.segments:
        for name, marker, start, skipped in _JPEG_BLOCKS:
            # Photoshop's resources and profiles go on in further segments.
            if (
                code == marker
                and content.startswith(start)
                and not (marker == 0xE1 and parts[name])
            ):
                parts[name].append(content[len(start) + skipped :])
        credentials |= code == 0xEB and b"c2pa" in content
        if code == 0xFE and len(texts) < _MAX_TEXTS:
            texts.append(("", decode_text(content)))
    whole = {name: b"".join(blocks)[:_MAX_BLOCK] for name, blocks in parts.items()}
    exif = read_exif(whole.pop("exif"))
    n_components = len(jpeg.components)
    colours = {1: "GRAY", 3: "RGB", 4: "CMYK"}.get(n_components)
    if colours is None:
        raise ImageError(f"has {n_components} components, which is not read; save it as PNG")

    def decode(notes: list[str]) -> NDArray[np.uint8]:
        pixels, damage = jpeg.decode(colours)
        notes += damage
        if colours != "CMYK":
            return pixels
        notes.append("converted from CMYK")
        rgb = np.empty((*pixels.shape[:2], 3), np.uint8)
        for row, out in zip(np.invert(pixels, out=pixels), rgb, strict=True):
            out[:] = Image.fromarray(row[None], "CMYK").convert("RGB")
        return rgb

    return Contents(
        "JPEG",
        jpeg.size,
        tuple(exif.notes),
        open=decode,
        orientation=exif.orientation,
        memory=len(jpeg.file) + jpeg.buffer_size,
        metadata=Metadata(exif, texts=tuple(texts), credentials=credentials, **whole),
        jpeg=jpeg,
    )


# Name, marker, how it begins, and how many bytes more to leave out.
_JPEG_BLOCKS = (
    ("exif", 0xE1, b"Exif\0\0", 0),
    ("xmp", 0xE1, b"http://ns.adobe.com/xap/1.0/\0", 0),
    ("photoshop", 0xED, b"Photoshop 3.0\0", 0),
    ("icc", 0xE2, b"ICC_PROFILE\0", 2),
)
