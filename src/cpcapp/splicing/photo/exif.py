"""EXIF: the camera, the time and the thumbnail that a file carries.

Strangers write these data. Every offset is checked, and nothing here takes long or raises: what
can't be read is left out.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

# More than any real directory has. They limit the work that a hostile file can cause.
_MAX_ENTRIES = 512
_MAX_TEXT = 200
_MAX_THUMBNAIL = 1 << 20

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 13: 4}
_TIME = re.compile(r"(\d{4})[:/-](\d{2})[:/-](\d{2})[ T](\d{2}):(\d{2}):(\d{2})")

_MAKE, _MODEL, _ORIENTATION, _SOFTWARE, _CHANGED = 271, 272, 274, 305, 306
_PROCESSING_SOFTWARE, _EXIF_DIRECTORY, _GPS_DIRECTORY = 11, 34665, 34853
_TAKEN, _WIDTH, _HEIGHT, _LENS_MAKE, _LENS = 36867, 40962, 40963, 42035, 42036
_THUMBNAIL, _THUMBNAIL_SIZE = 513, 514
_LATITUDE, _LONGITUDE = 2, 4


def clean_text(value: bytes | str, longest: int = _MAX_TEXT) -> str:
    r"""Return printable text on one line, of bounded length.

    Parameters
    ----------
    value : bytes or str
        Bytes are read as UTF-8, or else as Latin-1.
    longest : int, default=200
        In characters.

    Returns
    -------
    str

    Examples
    --------
    >>> clean_text(b"Canon \x1b[31mEOS\0\0")
    'Canon [31mEOS'
    """
    text = decode_text(value[: 4 * longest]) if isinstance(value, bytes) else value[: 4 * longest]
    kept = "".join(sign if sign.isprintable() else " " for sign in text)
    return " ".join(kept.split())[:longest].strip()


def decode_text(value: bytes) -> str:
    r"""Return a text as UTF-8, or else as Latin-1, up to the first zero.

    Examples
    --------
    >>> decode_text("Fußball".encode()), decode_text(b"Fu\xdfball\0\0")
    ('Fußball', 'Fußball')
    """
    # Some writers leave rubbish behind the first zero.
    value = value.partition(b"\0")[0]
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def parse_time(text: str) -> datetime | None:
    """Return the time of an EXIF or XMP date; None for one that is missing or can't be.

    Examples
    --------
    >>> parse_time("2019:07:14 12:01:33"), parse_time("0000:00:00 00:00:00")
    (datetime.datetime(2019, 7, 14, 12, 1, 33), None)
    """
    found = _TIME.match(text)
    if not found:
        return None
    try:
        return datetime(*map(int, found.groups()))  # type: ignore[arg-type]
    except ValueError:
        return None


@dataclass(frozen=True)
class Exif:
    """What the EXIF data of a file say; empty and None where they are silent.

    Attributes
    ----------
    make, model, lens, software : str
    taken, changed : datetime or None
        When the photo was taken, and when the file was last changed.
    size : (int, int) or None
        Width and height that the writer of the data gave.
    orientation : int
        1 for upright.
    gps : bool
        Whether a place is stored. The place itself is never read.
    thumbnail : bytes
        A JPEG file, or nothing.
    """

    make: str = ""
    model: str = ""
    lens: str = ""
    software: str = ""
    taken: datetime | None = None
    changed: datetime | None = None
    size: tuple[int, int] | None = None
    orientation: int = 1
    gps: bool = False
    thumbnail: bytes = b""

    @property
    def camera(self) -> str:
        """Maker and model, the maker once."""
        if self.model.casefold().startswith(self.make.casefold()):
            return self.model
        return f"{self.make} {self.model}".strip()


def read_exif(data: bytes) -> Exif:
    r"""Read EXIF data.

    Parameters
    ----------
    data : bytes
        As in a file: a TIFF, with or without ``Exif\0\0`` in front.

    Returns
    -------
    Exif
        Of damaged data, what can be read.

    Examples
    --------
    >>> from PIL import Image
    >>> tags = Image.Exif()
    >>> tags[271], tags[272], tags[306] = "Canon", "Canon EOS 5D", "2020:05:01 10:00:00"
    >>> found = read_exif(tags.tobytes())
    >>> found.camera, f"{found.changed:%Y}", found.gps
    ('Canon EOS 5D', '2020', False)
    """
    data = data.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        return Exif()
    reader = _Directories(data, order)
    main, following = reader.read(reader.number_at(4))
    details, _ = reader.read(main.number(_EXIF_DIRECTORY))
    place, _ = reader.read(main.number(_GPS_DIRECTORY))
    small, _ = reader.read(following)
    width, height = details.number(_WIDTH), details.number(_HEIGHT)
    start, size = small.number(_THUMBNAIL), small.number(_THUMBNAIL_SIZE)
    lens = details.text(_LENS)
    return Exif(
        make=main.text(_MAKE),
        model=main.text(_MODEL),
        lens=lens if lens.strip("-0 ") else "",
        software=main.text(_SOFTWARE) or main.text(_PROCESSING_SOFTWARE),
        taken=parse_time(details.text(_TAKEN)),
        changed=parse_time(main.text(_CHANGED)),
        size=(width, height) if width and height else None,
        orientation=main.number(_ORIENTATION) or 1,
        gps=place.has((_LATITUDE, _LONGITUDE)),
        thumbnail=data[start : start + size] if start and size <= _MAX_THUMBNAIL else b"",
    )


def read_directory(data: bytes, tag: int) -> bytes:
    r"""Return the raw value of a tag in the first directory of a TIFF; empty if there is none.

    Examples
    --------
    >>> from PIL import Image
    >>> tags = Image.Exif()
    >>> tags[271] = "Canon"
    >>> read_directory(tags.tobytes().removeprefix(b"Exif" + bytes(2)), 271)
    b'Canon\x00'
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        return b""
    reader = _Directories(data, order)
    return reader.read(reader.number_at(4))[0].raw(tag)


class _Directory:
    """The entries of a directory, whose values are read when they are asked for."""

    def __init__(self, data: bytes, order: str, entries: dict[int, tuple[int, int, int]]) -> None:
        self._data, self._order, self._entries = data, order, entries

    def has(self, tags: Iterable[int]) -> bool:
        return all(tag in self._entries for tag in tags)

    def raw(self, tag: int) -> bytes:
        if tag not in self._entries:
            return b""
        kind, count, at = self._entries[tag]
        size = _SIZES.get(kind, 0) * count
        if size > 4:
            (at,) = struct.unpack_from(self._order + "I", self._data, at)
        return self._data[at : at + size]

    def text(self, tag: int) -> str:
        kind = self._entries.get(tag, (0, 0, 0))[0]
        return clean_text(self.raw(tag)) if kind in (1, 2, 7) else ""

    def number(self, tag: int) -> int:
        """Return the first whole number of a tag; 0 if there is none."""
        kind, count, _ = self._entries.get(tag, (0, 0, 0))
        code = {1: "B", 3: "H", 4: "I", 13: "I"}.get(kind)
        value = self.raw(tag)[: _SIZES.get(kind, 0)]
        if code is None or not count or len(value) < struct.calcsize(code):
            return 0
        return int(struct.unpack(self._order + code, value)[0])


class _Directories:
    """Reads directories of a TIFF, each from its offset."""

    def __init__(self, data: bytes, order: str) -> None:
        self._data, self._order = data, order

    def number_at(self, at: int, code: str = "I") -> int:
        """Return a whole number; 0 beyond the end."""
        if not 0 <= at <= len(self._data) - struct.calcsize(code):
            return 0
        return int(struct.unpack_from(self._order + code, self._data, at)[0])

    def read(self, at: int) -> tuple[_Directory, int]:
        """Return a directory and the offset of the next one; nothing at offset 0."""
        entries: dict[int, tuple[int, int, int]] = {}
        n_entries = self.number_at(at, "H") if at else 0
        if n_entries > _MAX_ENTRIES:
            n_entries = 0
        for entry in range(at + 2, at + 2 + 12 * n_entries, 12):
            if entry + 12 > len(self._data):
                break
            tag, kind, count = struct.unpack_from(self._order + "HHI", self._data, entry)
            entries.setdefault(tag, (kind, count, entry + 8))
        following = self.number_at(at + 2 + 12 * n_entries) if n_entries else 0
        return _Directory(self._data, self._order, entries), following
