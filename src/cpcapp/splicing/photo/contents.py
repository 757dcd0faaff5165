"""What the walker of a file format says of a file, and the error of one that can't be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from PIL import ImageFile

if TYPE_CHECKING:
    from cpcapp.splicing.photo.jpeg_file import JpegFile

CUT_OFF = "is cut off; use a complete copy"
DAMAGED = "is damaged; use an undamaged copy"


class UnreadableError(ValueError):
    """A file can't be read. The message says why and what to do, but not which file."""


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
