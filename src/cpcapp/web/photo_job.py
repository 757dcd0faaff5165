"""A photo's job: from the uploaded file to everything that the page shows of it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.text import number
from cpcapp.reports.pictures import encode_jpeg
from cpcapp.splicing.decide.words import format_verdict
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.output.batch import open_model
from cpcapp.splicing.output.draw import (
    choose_overlay_white,
    draw_boundary,
    draw_pictures,
    encode_png,
)
from cpcapp.splicing.output.folder import describe_result
from cpcapp.splicing.output.report import PhotoReport
from cpcapp.splicing.output.views import draw_views
from cpcapp.splicing.photo.file_facts import FileFacts, read_file_facts
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.read import ImageError, ReadImage, TooManyPixelsError, read_image
from cpcapp.splicing.result import Localization
from cpcapp.web.errors import PageError
from cpcapp.web.worker_main import JobFiles, Report

#: The name of the form's field, and of the file in the folder of the job.
UPLOAD_NAME = "file"
#: Models that a client may ask for: those of the package. A path is never one.
MODELS = ("default", "filters", "paper")

# Longest side of a picture that fills a screen; the rest is fetched on zooming in.
_PREVIEW_SIDE = 1600
# Quick to write; the files live for an hour on this computer.
_PNG_OPTIONS = (cv2.IMWRITE_PNG_COMPRESSION, 1)
# Formats that browsers show, and names for such a file.
_SHOWN_FORMATS = {"JPEG": "photo.jpg", "PNG": "photo.png", "WebP": "photo.webp"}
# Notes of the reader after which a browser shows the same pixels in the same place.
_HARMLESS_NOTES = frozenset({"grey", "transparency ignored"})


@lru_cache(maxsize=len(MODELS))
def open_cached_model(model: str) -> tuple[SpliceLocalizer, dict[str, str]]:
    """Return a model of the package and its identity; read once in a process."""
    return open_model(model)


def run_photo(folder: Path, request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Look for splices in ``folder / "file"``; return what the page shows.

    ``files`` are the names in the folder that the client may fetch, each with its media type.
    """
    report(0.0, "Reading the photo")
    data = (folder / UPLOAD_NAME).read_bytes()
    image = replace(_read(data, request["max_pixels"]), name=request["name"])
    localizer, identity = open_cached_model(request["model"])
    report(0.03, "Looking for seams")
    localization = localizer.localize(
        image, progress=lambda share: report(0.03 + 0.72 * share, "Looking for seams")
    )
    report(0.76, "Measuring single traces")
    views = draw_views(image, data)
    facts = read_file_facts(data, image)
    report(0.88, "Drawing the pictures")
    files = JobFiles(folder)
    pictures, previews = _write_pictures(files, image, localization)
    report(0.94, "Writing the report")
    made = PhotoReport(image, localization, facts, views, identity, model=request["model"])
    origin = {"sha256": facts.sha256, "model": identity}
    entry = describe_result(image, localization, photo=Path(request["name"]), origin=origin)
    rows = [*facts.rows(), *([("When it was read", "; ".join(image.notes))] if image.notes else [])]
    return {
        **entry,
        "sentence": made.sentence,
        "genuine_photos": localization.rank and localization.rank.n_photos,
        "genuine_as_high": localization.rank and localization.rank.n_as_high,
        "p_text": format_verdict("", localization.p_value).removeprefix(", "),
        "meaning": made.meaning,
        "limits": made.limits,
        "facts": facts.to_dict(),
        "fact_rows": [[str(label), str(text)] for label, text in rows],
        "thumbnail": _write_thumbnail(files, facts),
        "views": [
            {
                **{key: getattr(view, key) for key in ("name", "title", "text", "note")},
                "url": None
                if view.picture is None
                else _add_png(files, f"view-{view.name}", view.picture),
            }
            for view in views
        ],
        "pictures": pictures,
        "previews": previews,
        "display": _choose_display(localization),
        "report": {
            "html": files.add("report.html", made.html().encode()),
            "pdf": files.add("report.pdf", made.pdf()),
        },
        "files": files.types,
    }


def _read(data: bytes, max_pixels: int) -> ReadImage:
    """Read a photo, or raise `PageError` in the words of the page."""
    if not data:
        raise PageError("unreadable", "This file is empty.")
    try:
        return read_image(data, max_pixels=max_pixels)
    except TooManyPixelsError as error:
        size = "{width} × {height}".format_map(error.message.values)
        raise PageError(
            "too_many_pixels",
            f"The photo has {size} pixels; at most {max_pixels / 1e6:g} megapixels are allowed "
            "here.",
            "Send a smaller copy, or start the server with a larger --max-megapixels.",
        ) from error
    except ImageError as error:
        reason, _, advice = " ".join(str(error).split()).removeprefix("the image: ").partition("; ")
        advice = f"{advice[:1].upper()}{advice[1:]}." if advice else ""
        raise PageError("unreadable", f"This file {reason}.", advice) from error


def _add_png(files: JobFiles, name: str, picture: NDArray[np.uint8]) -> str:
    return files.add(f"{name}.png", encode_png(picture, *_PNG_OPTIONS))


def _write_pictures(
    files: JobFiles, image: ReadImage, localization: Localization
) -> tuple[dict[str, str], dict[str, str]]:
    """Write all pictures, and small copies of those that are larger than a screen."""
    photo = as_bytes(image.pixels)
    maps = dict(draw_pictures(image.pixels, localization))
    pictures = {"overlay": _add_png(files, "overlay", maps.pop("overlay"))}
    maps["edges"] = draw_boundary(np.clip(localization.edges, 0.0, 1.0))
    # The file itself where a browser shows it right.
    if image.format in _SHOWN_FORMATS and set(image.notes) <= _HARMLESS_NOTES:
        name = _SHOWN_FORMATS[image.format]
        previews = {"photo": files.offer(name)}
        (files.folder / UPLOAD_NAME).rename(files.folder / name)
    else:
        (files.folder / UPLOAD_NAME).unlink()
        previews = {"photo": _add_png(files, "photo", photo)}
    previews |= {name: _add_png(files, name, picture) for name, picture in maps.items()}
    pictures |= previews
    if max(photo.shape[:2]) > _PREVIEW_SIDE:
        small = encode_jpeg(photo, _PREVIEW_SIDE, quality=92).content
        previews["photo"] = files.add("photo_small.jpg", small)
        for name, picture in maps.items():
            previews[name] = _add_png(files, f"{name}_small", shrink_by_maximum(picture))
    return pictures, previews


def shrink_by_maximum(picture: NDArray[np.uint8], side: int = _PREVIEW_SIDE) -> NDArray[np.uint8]:
    """Return a smaller map in which no thin line gets darker: each pixel is a maximum.

    >>> line = np.zeros((40, 100), np.uint8)
    >>> line[17] = 255
    >>> small = shrink_by_maximum(line, side=10)
    >>> small.shape, int(small.max())
    ((4, 10), 255)
    """
    scale = max(picture.shape) / side
    width, height = (max(1, round(length / scale)) for length in picture.shape[::-1])
    # Each pixel of the small picture looks at all that it stands for.
    reach = int(np.ceil(scale)) | 1
    spread = cv2.dilate(picture, np.ones((reach, reach), np.uint8))
    small = cv2.resize(spread, (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
    return np.asarray(small, np.uint8)


def _write_thumbnail(files: JobFiles, facts: FileFacts) -> str | None:
    """Let the page show the thumbnail inside a file if it is not of this photo."""
    content = facts.thumbnail_png
    if facts.thumbnail is None or not facts.thumbnail.differs or content is None:
        return None
    return files.add("thumbnail.png", content)


def _choose_display(localization: Localization) -> dict[str, Any]:
    """Return what the page shows at first, and says of it."""
    display = localization.display
    return {
        "opacity": number(display.strength),
        "colours": display.colours,
        "title": display.seam_title,
        "text": display.seam_text,
        "white": number(choose_overlay_white(localization.boundary, localization.threshold)),
        "has_region": bool(localization.mask is not None and localization.mask.any()),
    }
