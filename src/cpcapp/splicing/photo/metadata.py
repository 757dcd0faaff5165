"""The blocks of metadata in an image file: EXIF, XMP, Photoshop's resources, text, colour profile.

Only what stands beside the pixels is taken, with bounded sizes. Nothing is interpreted here and
nothing raises.
"""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass

from cpcapp.splicing.photo.exif import decode_text, read_directory
from cpcapp.splicing.photo.heif import find_heif_metadata, is_heif
from cpcapp.splicing.photo.jpeg_segments import jpeg_segments

# Longer blocks are cut off: no fact that is looked for stands beyond.
_MAX_BLOCK = 4 << 20
_MAX_CHUNKS = 20_000
_MAX_TEXTS = 50

_XMP_JPEG = b"http://ns.adobe.com/xap/1.0/\0"
_PHOTOSHOP = b"Photoshop 3.0\0"
_ICC_JPEG = b"ICC_PROFILE\0"
_TIFF_XMP, _TIFF_PHOTOSHOP, _TIFF_ICC = 700, 34377, 34675


@dataclass(frozen=True)
class Metadata:
    """The blocks of metadata of a file; empty where there are none.

    Attributes
    ----------
    exif, xmp, photoshop, icc : bytes
        EXIF data, an XMP packet, image resources of Photoshop, a colour profile.
    texts : tuple of (str, str)
        Keyword and text of a PNG, or ``""`` and the comment of a JPEG.
    credentials : bool
        Whether there is a manifest of content credentials (C2PA).
    """

    exif: bytes = b""
    xmp: bytes = b""
    photoshop: bytes = b""
    icc: bytes = b""
    texts: tuple[tuple[str, str], ...] = ()
    credentials: bool = False


def find_metadata(data: bytes) -> Metadata:
    r"""Find the blocks of metadata of an image file.

    Parameters
    ----------
    data : bytes
        A JPEG, PNG, WebP, TIFF, HEIC or AVIF file; other files have none.

    Returns
    -------
    Metadata
        Of a damaged file, what can be found.

    Examples
    --------
    >>> find_metadata(b"\xff\xd8\xff\xfe\0\5hi!\xff\xda\0\2").texts
    (('', 'hi!'),)
    """
    with suppress(struct.error, LookupError, ValueError):
        if data.startswith(b"\xff\xd8"):
            return _of_jpeg(data)
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return _of_png(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _of_webp(data)
        if data[:4] in (b"II*\0", b"MM\0*"):
            return _of_tiff(data)
        if is_heif(data):
            exif, xmp = find_heif_metadata(data)
            return Metadata(exif, xmp)
    return Metadata()


def _of_jpeg(data: bytes) -> Metadata:
    exif = xmp = photoshop = icc = b""
    texts: list[tuple[str, str]] = []
    credentials = False
    for marker, content in jpeg_segments(data):
        if marker == 0xE1 and content.startswith(b"Exif\0\0"):
            exif = exif or content
        elif marker == 0xE1 and content.startswith(_XMP_JPEG):
            xmp = xmp or content[len(_XMP_JPEG) :]
        elif marker == 0xED and content.startswith(_PHOTOSHOP):
            photoshop = (photoshop + content[len(_PHOTOSHOP) :])[:_MAX_BLOCK]
        elif marker == 0xE2 and content.startswith(_ICC_JPEG):
            icc = (icc + content[len(_ICC_JPEG) + 2 :])[:_MAX_BLOCK]
        elif marker == 0xEB and b"c2pa" in content:
            credentials = True
        elif marker == 0xFE and len(texts) < _MAX_TEXTS:
            texts.append(("", decode_text(content)))
    return Metadata(exif, xmp, photoshop, icc, tuple(texts), credentials)


def _of_png(data: bytes) -> Metadata:
    exif = xmp = icc = b""
    texts: list[tuple[str, str]] = []
    credentials = False
    at = 8
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            break
        size, kind = struct.unpack_from(">I4s", data, at)
        content = data[at + 8 : at + 8 + min(size, _MAX_BLOCK)] if kind != b"IDAT" else b""
        at += 12 + size
        if kind == b"eXIf":
            exif = exif or content
        elif kind == b"caBX":
            credentials = True
        elif kind == b"iCCP":
            icc = _unpack(content.partition(b"\0")[2][1:])
        elif kind in (b"tEXt", b"zTXt", b"iTXt") and len(texts) < _MAX_TEXTS:
            keyword, text = _png_text(kind, content)
            if keyword == "XML:com.adobe.xmp":
                xmp = xmp or text
            else:
                texts.append((keyword, text[:_MAX_BLOCK].decode("utf-8", "replace")))
        elif kind == b"IEND":
            break
    return Metadata(exif, xmp, b"", icc, tuple(texts), credentials)


def _png_text(kind: bytes, content: bytes) -> tuple[str, bytes]:
    keyword, _, rest = content.partition(b"\0")
    if kind == b"zTXt":
        rest = _unpack(rest[1:])
    elif kind == b"iTXt":
        packed, rest = rest[:1] == b"\1", rest[2:]
        # The language, and the keyword in it.
        rest = rest.partition(b"\0")[2].partition(b"\0")[2]
        rest = _unpack(rest) if packed else rest
    return keyword.decode("latin-1"), rest


def _unpack(packed: bytes) -> bytes:
    with suppress(zlib.error):
        return zlib.decompressobj().decompress(packed, _MAX_BLOCK)
    return b""


def _of_webp(data: bytes) -> Metadata:
    found: dict[bytes, bytes] = {}
    at = 12
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            break
        kind, size = struct.unpack_from("<4sI", data, at)
        if kind in (b"EXIF", b"XMP ", b"ICCP"):
            found.setdefault(kind, data[at + 8 : at + 8 + min(size, _MAX_BLOCK)])
        at += 8 + size + size % 2
    return Metadata(found.get(b"EXIF", b""), found.get(b"XMP ", b""), icc=found.get(b"ICCP", b""))


def _of_tiff(data: bytes) -> Metadata:
    xmp, photoshop, icc = (
        read_directory(data, tag)[:_MAX_BLOCK] for tag in (_TIFF_XMP, _TIFF_PHOTOSHOP, _TIFF_ICC)
    )
    return Metadata(data, xmp, photoshop, icc)
