"""What a file contains by its headers: size, EXIF data and other metadata.

EXIF data have the form of a TIFF's directory, so both are read by the same class. Strangers write
them: no entry is trusted, and the work is bounded. (Pillow's `getexif` copies every value at once,
and warns once for each entry of a hostile file.)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cpcapp._io.messages import MessageError

if TYPE_CHECKING:
    from cpcapp.splicing.photo.jpeg_file import JpegFile

CUT_OFF = "is cut off; use a complete copy"
DAMAGED = "is damaged; use an undamaged copy"

# More than any real file has. They limit the work that a hostile file can cause.
MAX_TAGS = 4096
_MAX_VALUES = 1 << 18
_MAX_TEXT = 200
_MAX_THUMBNAIL = 1 << 20

_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 13: 4}
_WHOLE = {1: "B", 3: "H", 4: "I", 7: "B", 13: "I"}

_TIME = re.compile(r"(\d{4})[:/-](\d{2})[:/-](\d{2})[ T](\d{2}):(\d{2}):(\d{2})")
_MAKE, _MODEL, _ORIENTATION, _SOFTWARE, _CHANGED = 271, 272, 274, 305, 306
_PROCESSING_SOFTWARE, _EXIF_DIRECTORY, _GPS_DIRECTORY = 11, 34665, 34853
_TAKEN, _WIDTH, _HEIGHT, _LENS = 36867, 40962, 40963, 42036
_THUMBNAIL, _THUMBNAIL_SIZE = 513, 514
_PLACE = {2, 4}  # latitude and longitude
_SENSELESS = 9  # for an orientation


class ImageError(MessageError):
    """An image can't be used. The message is one line that names it and says what to do.

    What reads a file leaves its name out; `cpcapp.splicing.read_image` puts it in front.
    """


@dataclass(frozen=True)
class Exif:
    """What the EXIF data of a file say; empty and None where they are silent."""

    make: str = ""
    model: str = ""
    lens: str = ""
    software: str = ""
    taken: datetime | None = None
    changed: datetime | None = None
    size: tuple[int, int] | None = None  # width and height that the writer of the data gave
    orientation: int = 1  # of the pixels and the thumbnail; more than 8 if the data are broken
    gps: bool = False  # whether a place is stored; the place itself is never read
    thumbnail: bytes = b""  # a JPEG file

    @property
    def notes(self) -> list[str]:
        """What there is to say of the data themselves."""
        return ["broken EXIF ignored"] if self.orientation >= _SENSELESS else []

    @property
    def camera(self) -> str:
        """Maker and model, the maker once."""
        if self.model.casefold().startswith(self.make.casefold()):
            return self.model
        return f"{self.make} {self.model}".strip()


@dataclass(frozen=True)
class Metadata:
    """The metadata of a file; empty where there are none."""

    exif: Exif = field(default_factory=Exif)
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
    #: Returns pixels, (height, width, channels), or an image for Pillow to decode, and adds to the
    #: notes that it is given; raises if data are missing.
    open: Callable[[list[str]], Any] = field(kw_only=True)
    orientation: int = 1  # as EXIF counts it
    deep: bool = False  # colours of 16 bits, of which Pillow gives the upper 8
    wide: bool = False  # pixels of more than 8 bits
    inverted: bool = False  # 0 is white
    memory: int = 0  # bytes that decoding takes, beside those of the pixels: the file and buffers
    metadata: Metadata = field(default_factory=Metadata)
    jpeg: JpegFile | None = None


def decode_text(value: bytes) -> str:
    """Return a text as UTF-8, or else as Latin-1, up to the first zero."""
    # Some writers leave rubbish behind the first zero.
    value = value.partition(b"\0")[0]
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def clean_text(value: bytes | str) -> str:
    """Return printable text on one line, of at most 200 characters."""
    text = decode_text(value[: 4 * _MAX_TEXT]) if isinstance(value, bytes) else value
    kept = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * _MAX_TEXT])
    return " ".join(kept.split())[:_MAX_TEXT].strip()


class Directory:
    """The tags of a directory; without ``at``, of the first one. Empty if it can't be read."""

    def __init__(self, data: bytes, place: int | None = None) -> None:
        self.data = data
        self.order = _ORDERS.get(data[:4], "")
        self.entries: dict[int, tuple[int, int, int]] = {}  # kind, count, place of the value
        self.twice: list[int] = []
        self.following = self.n_entries = 0
        #: Where it begins; 0 for none.
        self.place = (self._number_at(4) if place is None else place) if self.order else 0
        if self.place:
            self.n_entries = self._number_at(self.place, "H")
        end = self.place + 2 + 12 * self.n_entries
        #: Whether it is of an impossible size, or not wholly in the data.
        self.broken = not self.n_entries or self.n_entries > MAX_TAGS or end > len(data)
        if not 0 < self.n_entries <= MAX_TAGS:
            return
        for entry in range(self.place + 2, min(end, len(data) - 11), 12):
            tag, kind, count = struct.unpack_from(self.order + "HHI", data, entry)
            if tag in self.entries:
                self.twice.append(tag)
            self.entries.setdefault(tag, (kind, count, entry + 8))
        self.following = self._number_at(end)

    def _number_at(self, place: int, code: str = "I") -> int:
        """Return a whole number; 0 beyond the end."""
        if place + struct.calcsize(code) > len(self.data):
            return 0
        return int(struct.unpack_from(self.order + code, self.data, place)[0])

    def raw(self, tag: int, longest: int = 4 << 20) -> bytes:
        """Return the bytes of a tag; empty if it is missing."""
        kind, count, place = self.entries.get(tag, (0, 0, 0))
        size = _SIZES.get(kind, 0) * count
        if size > 4:
            place = self._number_at(place)
        return self.data[place : place + min(size, longest)]

    def numbers(self, tag: int, most: int = _MAX_VALUES) -> tuple[int, ...]:
        """Return all numbers of a tag, or raise unless they are 1 to ``most`` whole ones."""
        kind, count, _ = self.entries[tag]
        raw = self.raw(tag, 4 * _MAX_VALUES)
        if kind not in _WHOLE or not 1 <= count <= most or len(raw) < _SIZES[kind] * count:
            raise ImageError(f"has a senseless TIFF tag {tag}; use an undamaged copy")
        return struct.unpack(f"{self.order}{count}{_WHOLE[kind]}", raw)

    def number(self, tag: int) -> int:
        """Return the first whole number of a tag; 0 if there is none."""
        kind, count, _ = self.entries.get(tag, (0, 0, 0))
        value = self.raw(tag)[: _SIZES.get(kind, 0)]
        if kind == 7 or kind not in _WHOLE or not count or len(value) < _SIZES[kind]:
            return 0
        return int(struct.unpack(self.order + _WHOLE[kind], value)[0])

    def text(self, tag: int) -> str:
        """Return the printable text of a tag; empty if there is none."""
        kind = self.entries.get(tag, (0, 0, 0))[0]
        return clean_text(self.raw(tag)) if kind in (1, 2, 7) else ""


def read_exif(data: bytes) -> Exif:
    r"""Read EXIF data, with or without ``Exif\0\0`` in front; of damaged ones, what can be read."""
    return exif_of(Directory(data.removeprefix(b"Exif\0\0"))) if data else Exif()


def exif_of(main: Directory) -> Exif:
    """Return what the directory of EXIF data, or of a TIFF, says of the photo."""
    data = main.data
    details, location, small = (
        Directory(data, place)
        for place in (main.number(_EXIF_DIRECTORY), main.number(_GPS_DIRECTORY), main.following)
    )
    width, height = details.number(_WIDTH), details.number(_HEIGHT)
    start, size = small.number(_THUMBNAIL), small.number(_THUMBNAIL_SIZE)
    lens = details.text(_LENS)
    return Exif(
        make=main.text(_MAKE),
        model=main.text(_MODEL),
        lens=lens if lens.strip("-0 ") else "",
        software=main.text(_SOFTWARE) or main.text(_PROCESSING_SOFTWARE),
        taken=_parse_time(details.text(_TAKEN)),
        changed=_parse_time(main.text(_CHANGED)),
        size=(width, height) if width and height else None,
        orientation=_orientation(main),
        gps=location.entries.keys() >= _PLACE,
        thumbnail=data[start : start + size] if start and size <= _MAX_THUMBNAIL else b"",
    )


def _orientation(directory: Directory) -> int:
    if directory.broken:
        return _SENSELESS
    try:
        # Some cameras write 0 if they don't know it.
        return directory.numbers(_ORIENTATION, 1)[0]
    except KeyError:
        return 1
    except ImageError:
        return _SENSELESS


def _parse_time(text: str) -> datetime | None:
    """Return the time of an EXIF date; None for one that is missing or can't be."""
    parts = _TIME.match(text)
    try:
        return datetime(*map(int, parts.groups())) if parts else None  # type: ignore[arg-type]
    except ValueError:
        return None
