"""Which programs left their name in a file: editors, generators, web sites.

A name is evidence that a program wrote the file, not that anything was pasted: a crop or a change
of brightness leaves the same name. Without a name nothing follows either, since most web sites and
messengers remove it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from cpcapp.splicing.photo.contents import Metadata
from cpcapp.splicing.photo.directory import clean_text
from cpcapp.splicing.photo.exif import Exif

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


@dataclass(frozen=True)
class Origin:
    """Which programs left their name in a file."""

    software: str  # that the file names, in its words; a camera's firmware mostly
    editor: str  # in the words of the file; empty if none is known
    generators: tuple[str, ...]  # plain sentences
    remarks: tuple[str, ...]  # the same about all other programs
    photoshop_quality: int | None = None  # from 0 to 12


def find_origin(metadata: Metadata, exif: Exif, name: str = "") -> Origin:
    """Find the programs that left their name in a file.

    >>> xmp = b'<x xmp:CreatorTool="Adobe Photoshop 25.0 (Windows)"/>'
    >>> find_origin(Metadata(xmp=xmp), Exif()).editor
    'Adobe Photoshop 25.0 (Windows)'
    """
    texts = {keyword.casefold(): text for keyword, text in metadata.texts}
    tool = _first(_CREATOR_TOOL, metadata.xmp)
    software = exif.software or clean_text(texts.get("software", "")) or tool
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
