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

import numpy as np

from cpcapp import __version__
from cpcapp._files import atomic_write
from cpcapp._staging import stage_results
from cpcapp._text import number
from cpcapp.splicing.localizer import Localization
from cpcapp.splicing.photos.images import ReadImage
from cpcapp.splicing.pictures.overlays import (
    choose_boundary_white,
    draw_boundary,
    draw_localization,
)
from cpcapp.splicing.pictures.png import write_png
from cpcapp.splicing.results.files import PICTURE_SUFFIXES, ResultFiles
from cpcapp.splicing.results.seam import find_strongest_seam

# Pictures that only a calibrated model gives.
MASK_NAMES = ("region", "hot_spots")

# What the JSON file of a result says at least, and of which type it is.
_REQUIRED = {"file": str, "sha256": str, "model": dict, "overlay": str, "boundary": str}
# What is used of the rest, if it is there.
_OPTIONAL: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("verdict", "verdict_code", "region", "hot_spots"), str),
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
) -> dict[str, Any]:
    """Write the pictures and the JSON file of a photo, all of them or none.

    Parameters
    ----------
    files : ResultFiles
    image : ReadImage
    found : Localization
        Of this image.
    threshold : float
        Of the model.
    origin : dict
        ``sha256`` of the photo and the ``model``, which tell whether the result is still valid.

    Returns
    -------
    dict
        What the JSON file says.
    """
    entry = describe_result(files, image, found, threshold=threshold, origin=origin)
    with stage_results(files.folder) as staged:
        new = replace(files, folder=staged.new)
        write_pictures(new, image.pixels, found, threshold)
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
    }


def write_pictures(files: ResultFiles, pixels: Any, found: Localization, threshold: float) -> None:
    """Write overlay and boundary map of a photo; region and hot spots too, if there are any.

    Parameters
    ----------
    files : ResultFiles
    pixels : ndarray of shape (height, width, 3), uint8 or uint16
    found : Localization
    threshold : float
        Of the model.
    """
    write_png(files.overlay, draw_localization(pixels, found, threshold))
    white = choose_boundary_white(found.boundary, threshold)
    write_png(files.boundary, draw_boundary(found.boundary, white=white))
    for path, mask in ((files.region, found.mask), (files.hot_spots, found.hot_spots)):
        if mask is None:
            path.unlink(missing_ok=True)
        else:
            write_png(path, np.where(mask, np.uint8(255), np.uint8(0)))


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
