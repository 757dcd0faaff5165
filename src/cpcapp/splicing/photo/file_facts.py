"""What a file says about itself: camera, time, software, compression, thumbnail, hashes.

None of it proves anything: all of it can be written by hand, and most web sites remove it. It is
what a person looks at first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

import cv2
from numpy.typing import NDArray

from cpcapp.splicing.photo.content_kind import judge_content
from cpcapp.splicing.photo.contents import Contents
from cpcapp.splicing.photo.directory import clean_text
from cpcapp.splicing.photo.editors import Origin, find_origin
from cpcapp.splicing.photo.exif import Exif, read_exif
from cpcapp.splicing.photo.formats import inspect_container
from cpcapp.splicing.photo.jpeg_tables import JpegFacts
from cpcapp.splicing.photo.read import ReadImage
from cpcapp.splicing.photo.thumbnails import Thumbnail, read_thumbnail

# Cameras write the time of the file some seconds after that of the photo.
_SAME_TIME = 60.0


@dataclass(frozen=True, eq=False)
class FileFacts:
    """What a file says about itself; names are printable and of bounded length."""

    format: str  # such as "JPEG"
    width: int  # of the upright photo
    height: int
    n_bytes: int
    sha256: str
    md5: str
    camera: str | None = None
    lens: str | None = None
    taken: datetime | None = None
    changed: datetime | None = None
    software: str | None = None  # what wrote the file, mostly the camera's own
    editor: str | None = None  # a program known to change photos
    gps: bool = False  # whether a place is stored; the place itself is not read
    profile: str | None = None  # name of the colour profile
    jpeg: JpegFacts | None = None
    thumbnail: Thumbnail | None = field(default=None, repr=False)
    looks_like_photo: bool = True
    reason: str = ""
    #: What nobody should miss, in plain sentences: another thumbnail, an editor or a generator that
    #: is named, a picture that is no photo.
    warnings: tuple[str, ...] = ()
    #: The warnings and all else that there is to say, the most important first.
    remarks: tuple[str, ...] = ()

    @property
    def thumbnail_png(self) -> bytes | None:
        """The thumbnail as a PNG file, upright."""
        return None if self.thumbnail is None else _png(self.thumbnail.pixels)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as values that JSON has; without the pixels of the thumbnail."""
        names = {one.name: one.name for one in fields(self)} | {"n_bytes": "bytes"}
        small = self.thumbnail
        return {key: getattr(self, name) for name, key in names.items()} | {
            "taken": _time_text(self.taken),
            "changed": _time_text(self.changed),
            "jpeg": self.jpeg and asdict(self.jpeg),
            "thumbnail": small
            and {
                "width": small.size[0],
                "height": small.size[1],
                "differs": small.differs,
                "difference": round(small.difference, 3),
            },
            "warnings": list(self.warnings),
            "remarks": list(self.remarks),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return label and text of each fact, for a table; without facts that are missing."""
        jpeg, megapixels = self.jpeg, self.width * self.height / 1e6
        thumbnail = None
        if self.thumbnail is not None:
            width, height = self.thumbnail.size
            same = "differs from the photo" if self.thumbnail.differs else "shows the same photo"
            thumbnail = f"{width} × {height} pixels, {same}"
        rows = [
            ("Format", self.format),
            ("Size", f"{self.width} × {self.height} pixels ({megapixels:.1f} megapixels)"),
            ("File", f"{_size_text(self.n_bytes)} ({self.n_bytes:,} bytes)"),
            ("Camera", self.camera),
            ("Lens", self.lens),
            ("Taken", _time_text(self.taken)),
            ("File changed", _time_text(self.changed)),
            ("Software", self.software),
            ("Editor", self.editor if self.editor != self.software else None),
            ("Place", "stored in the file (not shown here)" if self.gps else "none stored"),
            ("JPEG quality", jpeg and _quality_text(jpeg)),
            ("JPEG tables", jpeg and (jpeg.tables or "of a camera or an editor, not standard")),
            (
                "JPEG colours",
                jpeg and f"{jpeg.subsampling}, {'progressive' if jpeg.progressive else 'baseline'}",
            ),
            ("Colour profile", self.profile),
            ("Thumbnail", thumbnail),
            ("Kind", self.reason),
            ("SHA-256", self.sha256),
            ("MD5", self.md5),
        ]
        return [(label, text) for label, text in rows if text]


def read_file_facts(data: bytes, image: ReadImage) -> FileFacts:
    """Read what a file says about itself.

    ``image`` is what `cpcapp.splicing.read_image` read from the file. Damaged metadata are left
    out: this never raises because of what stands in a file, and time and memory are bounded.

    >>> from importlib.resources import files
    >>> from cpcapp.splicing import read_image
    >>> data = (files("cpcapp.splicing.examples") / "astronaut.jpg").read_bytes()
    >>> facts = read_file_facts(data, read_image(data))
    >>> facts.camera, facts.gps, facts.jpeg.tables, facts.jpeg.subsampling
    (None, False, 'standard tables at quality 95', '4:2:0')
    >>> facts.rows()[1]
    ('Size', '512 × 512 pixels (0.3 megapixels)')
    """
    try:
        contents = inspect_container(data)
    except Exception:  # libraries raise all kinds of errors on damaged files
        contents = Contents(image.format, (0, 0))
    metadata = contents.metadata()
    exif = read_exif(metadata.exif)
    origin = find_origin(metadata, exif, image.name)
    # The orientation of a HEIC or AVIF file stands in its container, and EXIF's does not count.
    orientation = exif.orientation if image.format not in ("HEIC", "AVIF") else 1
    small = read_thumbnail(exif.thumbnail, image.pixels, orientation) if exif.thumbnail else None
    kind = judge_content(image.pixels)
    height, width = image.pixels.shape[:2]
    facts = FileFacts(
        format=image.format,
        width=width,
        height=height,
        n_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        md5=hashlib.md5(data, usedforsecurity=False).hexdigest(),
        camera=exif.camera or None,
        lens=exif.lens or None,
        taken=exif.taken,
        changed=exif.changed,
        software=origin.software or None,
        editor=origin.editor or None,
        gps=exif.gps,
        profile=_profile_name(metadata.icc) or None,
        jpeg=JpegFacts.of_file(contents.jpeg) if contents.jpeg else None,
        thumbnail=small,
        looks_like_photo=kind.looks_like_photo,
        reason=kind.reason,
    )
    warnings = dict.fromkeys(_warnings(facts, origin))
    remarks = warnings | dict.fromkeys(_remarks(facts, origin, exif))
    return replace(facts, warnings=tuple(warnings), remarks=tuple(remarks))


def _warnings(facts: FileFacts, origin: Origin) -> Iterator[str]:
    """Yield what nobody should miss, the most important first."""
    if facts.thumbnail is not None and facts.thumbnail.differs:
        yield "The thumbnail in the file shows something else than the photo."
    yield from origin.generators
    if facts.editor:
        quality = origin.photoshop_quality
        yield (
            f"Saved by {facts.editor}."
            if quality is None
            else (f"Saved by {facts.editor} (quality {quality} of 12).")
        )
    if not facts.looks_like_photo:
        yield (
            "It looks like a screenshot or a drawing, not a photo: verdicts are made for photos, "
            "and this one says little."
        )


def _remarks(facts: FileFacts, origin: Origin, exif: Exif) -> Iterator[str]:
    """Yield what else a person should know, the most important first."""
    tables = facts.jpeg.tables if facts.jpeg else None
    if tables and "Photoshop" in tables and not (facts.editor or "").startswith("Adobe"):
        yield "Its JPEG tables are those of Adobe's programs, though the file names none of them."
    yield from _time_remarks(facts)
    yield from _size_remarks(facts, exif)
    yield from origin.remarks
    if facts.gps:
        yield "The file stores the place where it was taken."
    if not (facts.camera or facts.software or facts.editor or origin.generators or origin.remarks):
        yield (
            "The file names no camera and no program. Web sites and messengers remove such data, "
            "so this says little."
        )


def _time_remarks(facts: FileFacts) -> Iterator[str]:
    if facts.taken is None or facts.changed is None:
        return
    later = (facts.changed - facts.taken).total_seconds()
    if later > _SAME_TIME:
        yield (
            f"The file was changed after the photo was taken: taken {_time_text(facts.taken)}, "
            f"changed {_time_text(facts.changed)}."
        )
    elif later < -_SAME_TIME:
        yield (
            f"Its times contradict each other: taken {_time_text(facts.taken)}, but changed "
            f"{_time_text(facts.changed)}."
        )


def _size_remarks(facts: FileFacts, exif: Exif) -> Iterator[str]:
    if exif.size is None or sorted(exif.size) == sorted((facts.width, facts.height)):
        return
    yield (
        f"Its EXIF data speak of {exif.size[0]} × {exif.size[1]} pixels, the photo has "
        f"{facts.width} × {facts.height}: it was cropped or resized by a program that did not "
        "renew them."
    )


def _profile_name(icc: bytes) -> str:
    """Return the description in a colour profile; empty if there is none."""
    n_tags = int.from_bytes(icc[128:132], "big")
    for entry in range(132, 132 + 12 * min(n_tags, 100), 12):
        if icc[entry : entry + 4] != b"desc":
            continue
        start = int.from_bytes(icc[entry + 4 : entry + 8], "big")
        size = min(int.from_bytes(icc[entry + 8 : entry + 12], "big"), 2000)
        tag = icc[start : start + size]
        if tag.startswith(b"desc"):
            return clean_text(tag[12 : 12 + int.from_bytes(tag[8:12], "big")])
        if tag.startswith(b"mluc"):
            length, at = (int.from_bytes(tag[i : i + 4], "big") for i in (20, 24))
            return clean_text(tag[at : at + length].decode("utf-16-be", "ignore"))
    return ""


def _quality_text(jpeg: JpegFacts) -> str:
    if jpeg.quality is None:
        return "unknown"
    exact = jpeg.tables is not None and jpeg.tables.startswith("standard")
    return f"{jpeg.quality}" if exact else f"about {jpeg.quality}"


def _time_text(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def _size_text(n_bytes: int) -> str:
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    return f"{n_bytes / 1e3:.0f} kB" if n_bytes < 1e6 else f"{n_bytes / 1e6:.1f} MB"


def _png(pixels: NDArray[Any]) -> bytes:
    return bytes(cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))[1])
