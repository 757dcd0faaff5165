"""What the walker of a file format says of a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from PIL import ImageFile

from cpcapp.splicing.photo.directory import Directory
from cpcapp.splicing.photo.jpeg_file import JpegFile


@dataclass(frozen=True)
class Metadata:
    """The blocks of metadata of a file; empty where there are none."""

    exif: bytes = b""
    xmp: bytes = b""
    photoshop: bytes = b""  # image resources
    icc: bytes = b""
    texts: tuple[tuple[str, str], ...] = ()  # keyword and text of a PNG, or "" and a comment
    credentials: bool = False  # a manifest of content credentials (C2PA)


@dataclass(frozen=True)
class Contents:
    """What a file contains, by its headers."""

    format: str
    size: tuple[int, int]  # width and height, as stored
    notes: tuple[str, ...] = ()
    #: Returns the image for Pillow to decode; raises if data are missing.
    open: Callable[[], ImageFile.ImageFile] | None = None
    #: Returns pixels, (height, width, channels), and notes, where Pillow does not decode.
    decode: Callable[[], tuple[NDArray[Any], list[str]]] | None = None
    orientation: int = 1  # as EXIF counts it
    deep: bool = False  # colours of 16 bits, of which Pillow gives the upper 8
    wide: bool = False  # pixels of more than 8 bits
    inverted: bool = False  # 0 is white
    memory: int = 0  # bytes that decoding takes, beside those of the pixels: the file and buffers
    #: Unpacked when it is asked for: little data may become much.
    metadata: Callable[[], Metadata] = Metadata
    jpeg: JpegFile | None = None


def read_orientation(exif: bytes) -> tuple[int, list[str]]:
    """Return the orientation, and a note if the EXIF data are invalid."""
    directory = Directory(exif.removeprefix(b"Exif\0\0"))
    if not exif or (not directory.broken and 274 not in directory.entries):
        return 1, []
    try:
        orientation = 9 if directory.broken else directory.numbers(274, 1)[0]
    except ValueError:
        orientation = 9
    # Some cameras write 0 if they don't know the orientation.
    return orientation, [] if orientation <= 8 else ["broken EXIF ignored"]
