"""What a file says about itself: camera, time, software, compression, thumbnail, hashes.

None of it proves anything: all of it can be written by hand, and most web sites remove it. It is
what a person looks at first.

The name of a program is evidence that it wrote the file, not that anything was pasted: a crop or a
change of brightness leaves the same name.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from itertools import islice
from typing import Any

import cv2
from numpy.typing import NDArray

from cpcapp.splicing.photo.contents import Exif, Metadata, clean_text
from cpcapp.splicing.photo.jpeg_file import JpegFacts
from cpcapp.splicing.photo.read import ReadImage
from cpcapp.splicing.photo.thumbnails import Thumbnail, read_thumbnail

# As these programs write themselves into EXIF, XMP, PNG or comments.
_EDITORS = re.compile(
    r"(?:adobe )?photoshop (?:lightroom|camera raw|elements|express)|adobe photoshop"
    r"|\bphotoshop\b|adobe lightroom|\blightroom\b|adobe camera raw|adobe firefly"
    r"|adobe (?:illustrator|indesign|imageready|fireworks|express|bridge)|\bgimp\b"
    r"|affinity (?:photo|designer)|^affinity\b|\bsnapseed\b|\bpicsart\b|\bcanva\b|pixelmator"
    r"|paint\.net|paint ?shop|corel|ulead|\bkrita\b|\bphotopea\b|\bpixlr\b|\bfotor\b|\bbefunky\b"
    r"|\bpicmonkey\b|photoscape|\bfaceapp\b|\bfacetune\b|\bmeitu\b|beautyplus|\bluminar\b|skylum"
    r"|\bvsco\b|\bacdsee\b|acd systems|\bpicasa\b|faststone|irfanview|xnview|capture one|\bdxo\b"
    r"|darktable|rawtherapee|digikam|\bon1\b|imagemagick|graphicsmagick|inkscape"
    r"|(?:microsoft )?windows (?:live )?photo|microsoft photo|mspaint|paint 3d|capture ?nx|view ?nx"
    r"|nx studio|digital photo professional",
    re.IGNORECASE,
)
# What is written into comments by libraries that save, not by editors.
_SAVERS = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (r"gd-jpeg", "the library GD, which many web sites use"),
        (r"\blavc[\d.]+", "FFmpeg"),
        (r"lead technologies", "a library of LEAD Technologies"),
        (r"jpegmini", "JPEGmini"),
        (r"intel\(r\) ipp jpeg", "a library of Intel"),
    )
)
# IPTC's words for pictures that a program made, https://cv.iptc.org/newscodes/digitalsourcetype/
_SOURCE_TYPES = {
    "trainedalgorithmicmedia": "an AI generator made it",
    "compositewithtrainedalgorithmicmedia": "parts of it were made by an AI generator",
    "compositesynthetic": "it was put together from photos and synthetic parts",
    "algorithmicmedia": "a program made it",
    "composite": "it was put together from several photos",
    "compositecapture": "it was put together from several photos",
}
# As comments begin: "Created with GIMP", "File written by Adobe Photoshop".
_BEGINNING = re.compile(
    r"^(?:file )?(?:created|made|edited|processed|written|saved|generated) (?:with|by|using|in) ",
    re.IGNORECASE,
)
_CREATOR_TOOL = re.compile(
    rb"xmp:CreatorTool(?:\s*=\s*[\"']([^\"'<>]{1,400})|\s*>\s*([^<]{1,400})<)"
)
_AGENT = re.compile(rb"stEvt:softwareAgent(?:\s*=\s*[\"']([^\"'<>]{1,400})|\s*>\s*([^<]{1,400})<)")
_SOURCE_TYPE = re.compile(
    rb"[Dd]igital[Ss]ource[Tt]ype[^A-Za-z/]{0,20}[\w:/.]*?/?([A-Za-z]{9,40})\b"
)
_WHATSAPP = re.compile(r"(IMG-\d{8}-WA\d{4}|WhatsApp Image \d{4}-\d\d-\d\d)", re.IGNORECASE)
_MAX_AGENTS = 100
_MAX_RESOURCES = 1000
# Of Photoshop's image resources: its settings for JPEG, and IPTC data.
_JPEG_SETTINGS, _IPTC = 0x0406, 0x0404
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

    ``image`` is what `cpcapp.splicing.read_image` read from ``data``. Damaged metadata are left
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
    metadata = image.metadata
    exif = metadata.exif
    origin = find_origin(metadata, image.name)
    # The orientation of a HEIC or AVIF file stands in its container, and EXIF's does not count.
    orientation = exif.orientation if image.format not in ("HEIC", "AVIF") else 1
    small = read_thumbnail(exif.thumbnail, image.pixels, orientation) if exif.thumbnail else None
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
        jpeg=JpegFacts.of_file(image.jpeg) if image.jpeg else None,
        thumbnail=small,
        looks_like_photo=image.content_kind.looks_like_photo,
        reason=image.content_kind.reason,
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
            "and it gets none."
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


@dataclass(frozen=True)
class Origin:
    """Which programs left their name in a file."""

    software: str  # that the file names, in its words; a camera's firmware mostly
    editor: str  # in the words of the file; empty if none is known
    generators: tuple[str, ...]  # plain sentences
    remarks: tuple[str, ...]  # the same about all other programs
    photoshop_quality: int | None = None  # from 0 to 12


def find_origin(metadata: Metadata, name: str = "") -> Origin:
    """Find the programs that left their name in a file.

    >>> xmp = b'<x xmp:CreatorTool="Adobe Photoshop 25.0 (Windows)"/>'
    >>> find_origin(Metadata(xmp=xmp)).editor
    'Adobe Photoshop 25.0 (Windows)'
    """
    texts = {keyword.casefold(): text for keyword, text in metadata.texts}
    tool = _first(_CREATOR_TOOL, metadata.xmp)
    software = metadata.exif.software or clean_text(texts.get("software", "")) or tool
    comments = [clean_text(text) for keyword, text in metadata.texts if not keyword]
    named = [software, tool, *_agents(metadata.xmp), *comments]
    editor = next((found for text in named if (found := _editor(text))), "")
    resources = dict(_resources(metadata.photoshop))
    quality = _photoshop_quality(resources.get(_JPEG_SETTINGS, b""))
    if not editor and quality is not None:
        editor = "Adobe Photoshop"
    remarks = [
        f"Saved by {saver}, says its comment."
        for pattern, saver in _SAVERS
        if any(pattern.search(comment) for comment in comments)
    ]
    if b"FBMD" in resources.get(_IPTC, b""):
        remarks.append("Saved by Facebook or Instagram, says a mark that they leave.")
    if metadata.credentials:
        remarks.append("The file has content credentials (C2PA), which are not checked here.")
    if _WHATSAPP.match(name):
        remarks.append("Its name is of the kind that WhatsApp gives to photos.")
    generators = tuple(_generators(metadata, texts))
    return Origin(software, editor, generators, tuple(remarks), quality)


def _editor(text: str) -> str:
    """Return the editor that a text names, in the words of the text; empty if none is known."""
    text = _BEGINNING.sub("", text)
    named = _EDITORS.search(text)
    # A long text has the name somewhere in it.
    return (text if len(text) <= 60 else named[0]) if named else ""


def _first(pattern: re.Pattern[bytes], data: bytes) -> str:
    found = pattern.search(data)
    return clean_text(found[1] or found[2]) if found else ""


def _agents(xmp: bytes) -> list[str]:
    """Return the programs in the history of an XMP packet, the last one first."""
    agents = islice(_AGENT.finditer(xmp), _MAX_AGENTS)
    return [clean_text(agent[1] or agent[2]) for agent in agents][::-1]


def _generators(metadata: Metadata, texts: dict[str, str]) -> Iterator[str]:
    """Yield what a file says about a generator, or about how it was made."""
    for match in _SOURCE_TYPE.finditer(metadata.xmp):
        meaning = _SOURCE_TYPES.get(match[1].decode("latin-1").casefold())
        if meaning:
            yield f"The file itself says that {meaning} (IPTC digital source type)."
            break
    if "Steps:" in texts.get("parameters", "") and "Sampler:" in texts["parameters"]:
        yield "The file holds the settings of the AI generator Stable Diffusion."
    if '"class_type"' in texts.get("prompt", ""):
        yield "The file holds the settings of the AI generator ComfyUI."


def _resources(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of Photoshop's image resources."""
    place = 0
    for _ in range(_MAX_RESOURCES):
        if data[place : place + 4] != b"8BIM" or place + 12 > len(data):
            return
        number, name_size = struct.unpack_from(">HB", data, place + 4)
        # A name and its length, padded to an even number of bytes.
        start = place + 6 + (name_size + 2) // 2 * 2
        if start + 4 > len(data):
            return
        (size,) = struct.unpack_from(">I", data, start)
        yield number, data[start + 4 : start + 4 + size]
        place = start + 4 + size + size % 2


def _photoshop_quality(settings: bytes) -> int | None:
    """Return the quality in Photoshop's settings for JPEG, which counts from -4."""
    if len(settings) < 2:
        return None
    quality = int(struct.unpack_from(">h", settings)[0]) + 4
    return quality if 0 <= quality <= 12 else None
