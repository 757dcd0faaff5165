"""EXIF: the camera, the time and the thumbnail that a file carries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from cpcapp.splicing.photo.directory import Directory

_MAX_THUMBNAIL = 1 << 20
_TIME = re.compile(r"(\d{4})[:/-](\d{2})[:/-](\d{2})[ T](\d{2}):(\d{2}):(\d{2})")

_MAKE, _MODEL, _ORIENTATION, _SOFTWARE, _CHANGED = 271, 272, 274, 305, 306
_PROCESSING_SOFTWARE, _EXIF_DIRECTORY, _GPS_DIRECTORY = 11, 34665, 34853
_TAKEN, _WIDTH, _HEIGHT, _LENS = 36867, 40962, 40963, 42036
_THUMBNAIL, _THUMBNAIL_SIZE = 513, 514
_PLACE = {2, 4}  # latitude and longitude


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
    orientation: int = 1  # of the thumbnail too; pixels are turned by `cpcapp.splicing.photo.read`
    gps: bool = False  # whether a place is stored; the place itself is never read
    thumbnail: bytes = b""  # a JPEG file

    @property
    def camera(self) -> str:
        """Maker and model, the maker once."""
        if self.model.casefold().startswith(self.make.casefold()):
            return self.model
        return f"{self.make} {self.model}".strip()


def read_exif(data: bytes) -> Exif:
    r"""Read EXIF data, with or without ``Exif\0\0`` in front; of damaged ones, what can be read."""
    data = data.removeprefix(b"Exif\0\0")
    main = Directory(data)
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
        orientation=main.number(_ORIENTATION) or 1,
        gps=location.entries.keys() >= _PLACE,
        thumbnail=data[start : start + size] if start and size <= _MAX_THUMBNAIL else b"",
    )


def _parse_time(text: str) -> datetime | None:
    """Return the time of an EXIF date; None for one that is missing or can't be."""
    parts = _TIME.match(text)
    try:
        return datetime(*map(int, parts.groups())) if parts else None  # type: ignore[arg-type]
    except ValueError:
        return None
