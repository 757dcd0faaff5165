"""The JSON file and the pictures of a photo.

The JSON file is written last: if it exists, the pictures are complete.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

from cpcapp import __version__
from cpcapp._io.files import atomic_write, stage_results
from cpcapp._io.text import number
from cpcapp.reports.pictures import encode_jpeg
from cpcapp.splicing.output.files import PICTURE_SUFFIXES, ResultFiles
from cpcapp.splicing.output.overlays import choose_boundary_white, draw_pictures
from cpcapp.splicing.output.png import write_png
from cpcapp.splicing.output.report import PhotoReport, write_reports
from cpcapp.splicing.output.seam import find_strongest_seam
from cpcapp.splicing.photo.read import ReadImage
from cpcapp.splicing.result import Localization

# Pictures that only a calibrated model gives.
MASK_NAMES = ("region", "hot_spots")
# Files that are there only if they were asked for.
REPORT_NAMES = ("report", "report_pdf")
# Pixels of the longer side: a table of them fits on a screen, and has a few kB each.
_THUMBNAIL_SIDE, _THUMBNAIL_QUALITY = 240, 75

# What the JSON file of a result says at least, and of which type it is.
_REQUIRED = {"file": str, "sha256": str, "model": dict, "overlay": str, "boundary": str}
# What is used of the rest, if it is there.
_OPTIONAL: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("verdict", "verdict_code", "region", "hot_spots", "thumbnail"), str),
    **dict.fromkeys(REPORT_NAMES, str),
    **dict.fromkeys(("score", "p_value", "seconds"), (int, float)),
    **dict.fromkeys(("width", "height"), int),
    "notes": list,
    "seam": dict,
}
# Ours have some 2 kB.
_MAX_ENTRY_BYTES = 1 << 20
# Of the PNG specification: the signature, and the last chunk.
_PNG_START, _PNG_END = b"\x89PNG\r\n\x1a\n", b"\0\0\0\0IEND\xaeB`\x82"


def write_result(
    files: ResultFiles,
    image: ReadImage,
    found: Localization,
    *,
    threshold: float,
    origin: dict[str, Any],
    report: PhotoReport | None = None,
    pdf: bool = True,
) -> dict[str, Any]:
    """Write the pictures and the JSON file of a photo, the JSON file last.

    ``origin``: ``sha256`` of the photo and the ``model``, which tell whether the result is still
    valid.
    """
    entry = describe_result(files, image, found, threshold=threshold, origin=origin)
    if report is not None:
        names = REPORT_NAMES if pdf else REPORT_NAMES[:1]
        entry |= {name: getattr(files, name).name for name in names}
    with stage_results(files.folder) as staged:
        new = replace(files, folder=staged.new)
        write_pictures(new, image.pixels, found, threshold)
        if report is not None:
            write_reports(new, report, pdf=pdf)
        with atomic_write(new.entry) as file:
            file.write(json.dumps(entry, indent=1, allow_nan=False).encode())
        staged.commit(marker=files.entry.name, remove=[path.name for path in files.all])
    return entry


def describe_result(
    files: ResultFiles,
    image: ReadImage,
    found: Localization,
    *,
    threshold: float,
    origin: dict[str, Any],
) -> dict[str, Any]:
    """Return what the JSON file of a photo says; the parameters are those of `write_result`."""
    height, width = image.pixels.shape[:2]
    region, hot_spots = found.mask, found.hot_spots
    return {
        "file": str(files.photo),
        **origin,
        "cpcapp": __version__,
        "format": image.format,
        "width": width,
        "height": height,
        "jpeg_quality": found.jpeg_quality,
        "notes": list(found.notes),
        "verdict": found.verdict,
        "verdict_code": found.verdict_code,
        "calibrated": found.calibrated,
        "score": number(found.score),
        "p_value": number(found.p_value),
        "threshold": number(threshold),
        "share_above_threshold": number((found.boundary >= threshold).mean()),
        "seam": find_strongest_seam(found.boundary, threshold),
        "seconds": number(found.seconds),
        "overlay": files.overlay.name,
        "boundary": files.boundary.name,
        "boundary_white": number(choose_boundary_white(found.boundary, threshold)),
        "region": None if region is None else files.region.name,
        "region_share": None if region is None else number(region.mean()),
        "pasted_side_by": found.side_rule if region is not None and region.any() else None,
        "hot_spots": None if hot_spots is None else files.hot_spots.name,
        "hot_spots_share": None if hot_spots is None else number(hot_spots.mean()),
        "thumbnail": files.thumbnail.name,
        **dict.fromkeys(REPORT_NAMES),
    }


def write_pictures(files: ResultFiles, pixels: Any, found: Localization, threshold: float) -> None:
    """Write overlay and boundary map of a photo; region and hot spots too, if there are any."""
    for kind, picture in draw_pictures(pixels, found, threshold):
        path: Path = getattr(files, kind)
        if picture is None:
            path.unlink(missing_ok=True)
            continue
        write_png(path, picture)
        if kind == "overlay":
            small = encode_jpeg(picture, _THUMBNAIL_SIDE, quality=_THUMBNAIL_QUALITY)
            with atomic_write(files.thumbnail) as file:
                file.write(small.content)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file; empty if it can't be read, which whoever opens it explains."""
    # Reading a pipe would never end.
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def read_entry(path: Path) -> dict[str, Any] | None:
    """Return what a JSON file says; None if there is none, or it is not of a photo's result."""
    try:
        # Reading a pipe would never end.
        if not path.is_file():
            return None
        with path.open("rb") as file:
            content = file.read(_MAX_ENTRY_BYTES + 1)
        if len(content) > _MAX_ENTRY_BYTES:
            return None
        entry = json.loads(content, parse_constant=_refuse_constant, parse_float=_finite)
    except (OSError, ValueError, RecursionError):
        return None
    return entry if _is_entry(entry) else None


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    seam = entry.get("seam")
    box = seam.get("box", []) if isinstance(seam, dict) else []
    return (
        all(isinstance(entry.get(name), kind) for name, kind in _REQUIRED.items())
        and all(isinstance(entry.get(n), (*_as_tuple(k), type(None))) for n, k in _OPTIONAL.items())
        and isinstance(box, list)
    )


def _as_tuple(kind: type | tuple[type, ...]) -> tuple[type, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def is_result_picture(path: Path) -> bool:
    """Tell whether a file is a picture of an earlier result."""
    for suffix in PICTURE_SUFFIXES:
        if path.name.endswith(suffix):
            beside = path.with_name(path.name.removesuffix(suffix) + ".json")
            return read_entry(beside) is not None
    return False


def has_whole_pictures(files: ResultFiles, entry: dict[str, Any]) -> bool:
    """Tell whether the pictures of an entry are there, from their first byte to their last."""
    pictures = [files.overlay, files.boundary]
    pictures += [getattr(files, mask) for mask in MASK_NAMES if entry.get(mask)]
    return all(_is_whole_png(path, entry.get("width"), entry.get("height")) for path in pictures)


def has_whole_reports(files: ResultFiles) -> bool:
    """Tell whether the reports of a photo are there, to their last byte."""
    ends = {files.report: b"</html>\n", files.report_pdf: b"%%EOF\n"}
    return all(_ends_with(path, end) for path, end in ends.items())


def _ends_with(path: Path, end: bytes) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            file.seek(-len(end), 2)
            return file.read() == end
    except OSError:
        return False


def _is_whole_png(path: Path, width: Any, height: Any) -> bool:
    try:
        size = struct.pack(">II", width, height)
        if not path.is_file():
            return False
        with path.open("rb") as file:
            start = file.read(24)
            file.seek(-len(_PNG_END), 2)
            end = file.read()
    except (OSError, struct.error):
        return False
    return start[:8] == _PNG_START and start[16:] == size and end == _PNG_END
