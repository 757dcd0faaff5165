"""Directories of TIFF files. EXIF data have the same form, so both are read by the same class.

Strangers write them: no entry is trusted, and the work is bounded. (Pillow's `getexif` copies every
value at once, and warns once for each entry of a hostile file.)
"""

from __future__ import annotations

import struct

from cpcapp.splicing.photo.contents import UnreadableError

# More than any real file has. They limit the work that a hostile file can cause.
MAX_TAGS = 4096
_MAX_VALUES = 1 << 18
_MAX_TEXT = 200

_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 13: 4}
_WHOLE = {1: "B", 3: "H", 4: "I", 7: "B", 13: "I"}


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
            raise UnreadableError(f"has a senseless TIFF tag {tag}; use an undamaged copy")
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
