"""A photo's job: from the uploaded file to everything that the page shows of it."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.text import number
from cpcapp.splicing.decide.words import (
    explain_limits,
    explain_verdict,
    format_verdict,
    verdict_sentence,
)
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.output.entries import describe_result
from cpcapp.splicing.output.files import ResultFiles
from cpcapp.splicing.output.model_identity import open_model
from cpcapp.splicing.output.overlays import (
    choose_boundary_white,
    choose_overlay_white,
    draw_boundary,
    draw_localization,
)
from cpcapp.splicing.output.report import PhotoReport
from cpcapp.splicing.output.views import TraceView, draw_views
from cpcapp.splicing.photo.file_facts import FileFacts, read_file_facts
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.read import ImageError, ReadImage, TooManyPixelsError, read_image
from cpcapp.splicing.result import Localization
from cpcapp.web.work import JobError, Report, file_url

#: The name of the form's field, and of the file in the folder of the job.
UPLOAD_NAME = "file"
#: Models that a client may ask for: those of the package. A path is never one.
MODELS = ("default", "filters", "paper")

# Longest side of a picture that fills a screen; the rest is fetched on zooming in.
_PREVIEW_SIDE = 1600
# Quick to write; the files live for an hour on this computer.
_PNG_OPTIONS = (cv2.IMWRITE_PNG_COMPRESSION, 1)
# Formats that browsers show, and what they call them.
_SHOWN_FORMATS = {
    "JPEG": ("photo.jpg", "image/jpeg"),
    "PNG": ("photo.png", "image/png"),
    "WebP": ("photo.webp", "image/webp"),
}
# Notes of the reader after which a browser shows the same pixels in the same place.
_HARMLESS_NOTES = frozenset({"grey", "transparency ignored"})
# What the entry of a result says of files: the page has addresses instead.
_PATHS = ("overlay", "boundary", "region", "hot_spots")


@lru_cache(maxsize=len(MODELS))
def open_cached_model(model: str) -> tuple[SpliceLocalizer, dict[str, str]]:
    """Return a model of the package and its identity; read once in a process."""
    return open_model(model)


def run_photo(folder: Path, request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Look for splices in ``folder / "file"``; see `cpcapp.web.work.run_job`."""
    report(0.0, "Reading the photo")
    data = (folder / UPLOAD_NAME).read_bytes()
    image = _read(data, request["max_pixels"])
    localizer, identity = open_cached_model(request["model"])
    report(0.03, "Looking for seams")
    found = localizer.localize(
        image, progress=lambda share: report(0.03 + 0.72 * share, "Looking for seams")
    )
    threshold = float(localizer.threshold)
    report(0.76, "Measuring single traces")
    views = draw_views(image, data)
    report(0.88, "Drawing the pictures")
    files = _JobFiles(folder)
    pictures, previews = _write_pictures(files, image, found, threshold)
    entry = _describe(image, data, found, threshold, request["name"], identity)
    report(0.94, "Writing the report")
    facts = read_file_facts(data, image)
    report_of_photo = PhotoReport.build(
        *(image, data, found, identity),
        name=request["name"],
        settings={"model": request["model"]},
        facts=facts,
        views=views,
    )
    return {
        **entry,
        "sentence": verdict_sentence(found),
        "p_text": format_verdict("", found.p_value).removeprefix(", "),
        "meaning": explain_verdict(found),
        "limits": explain_limits(found),
        "facts": facts.to_dict(),
        "fact_rows": _list_facts(facts, image),
        "thumbnail": _write_thumbnail(files, facts),
        "views": _write_views(files, views),
        "pictures": pictures,
        "previews": previews,
        "display": _choose_display(found, threshold),
        "report": _write_reports(files, report_of_photo),
        "files": files.types,
    }


def _list_facts(facts: FileFacts, image: ReadImage) -> list[list[str]]:
    rows = [[str(label), str(text)] for label, text in facts.rows()]
    return [*rows, ["When it was read", "; ".join(image.notes)]] if image.notes else rows


def _write_thumbnail(files: _JobFiles, facts: FileFacts) -> str | None:
    """Let the page show the thumbnail inside a file if it is not of this photo."""
    content = facts.thumbnail_png
    if facts.thumbnail is None or not facts.thumbnail.differs or content is None:
        return None
    return files.add("thumbnail.png", content, "image/png")


def _read(data: bytes, max_pixels: int) -> ReadImage:
    """Read a photo, or raise `JobError` in the words of the page."""
    if not data:
        raise JobError("unreadable", "This file is empty.")
    try:
        return read_image(data, max_pixels=max_pixels)
    except TooManyPixelsError as error:
        size = "{width} × {height}".format_map(error.message.values)
        raise JobError(
            "too_many_pixels",
            f"The photo has {size} pixels; at most {max_pixels / 1e6:g} megapixels are allowed "
            "here.",
            "Send a smaller copy, or start the server with a larger --max-megapixels.",
        ) from error
    except ImageError as error:
        reason, _, advice = " ".join(str(error).split()).removeprefix("the image: ").partition("; ")
        raise JobError(
            "unreadable",
            f"This file {reason}.",
            f"{advice[:1].upper()}{advice[1:]}." if advice else "",
        ) from error


class _JobFiles:
    """Writes files into the folder of a job, and remembers which a client may fetch.

    All methods return the address of the file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.types: dict[str, str] = {}

    def add(self, name: str, content: bytes, media_type: str) -> str:
        (self.folder / name).write_bytes(content)
        self.types[name] = media_type
        return file_url(self.folder, name)

    def add_png(self, name: str, picture: NDArray[np.uint8]) -> str:
        shown = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR) if picture.ndim == 3 else picture
        _, content = cv2.imencode(".png", shown, _PNG_OPTIONS)
        return self.add(f"{name}.png", content.tobytes(), "image/png")

    def add_jpeg(self, name: str, picture: NDArray[np.uint8]) -> str:
        shown = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
        _, content = cv2.imencode(".jpg", shown, (cv2.IMWRITE_JPEG_QUALITY, 92))
        return self.add(f"{name}.jpg", content.tobytes(), "image/jpeg")

    def keep_upload(self, name: str, media_type: str) -> str:
        (self.folder / UPLOAD_NAME).rename(self.folder / name)
        self.types[name] = media_type
        return file_url(self.folder, name)


def _write_pictures(
    files: _JobFiles, image: ReadImage, found: Localization, threshold: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Write all pictures, and small copies of those that are larger than a screen."""
    photo = as_bytes(image.pixels)
    white = choose_boundary_white(found.boundary, threshold)
    maps = {
        "boundary": draw_boundary(found.boundary, white=white),
        "edges": draw_boundary(np.clip(found.edges, 0.0, 1.0)),
    }
    for name, mask in (("region", found.mask), ("hot_spots", found.hot_spots)):
        if mask is not None:
            maps[name] = np.where(mask, np.uint8(255), np.uint8(0))
    pictures = {
        "photo": _write_photo(files, image, photo),
        "overlay": files.add_png("overlay", draw_localization(image.pixels, found, threshold)),
        **{name: files.add_png(name, picture) for name, picture in maps.items()},
    }
    previews = {name: url for name, url in pictures.items() if name != "overlay"}
    if max(photo.shape[:2]) > _PREVIEW_SIDE:
        previews["photo"] = files.add_jpeg("photo_small", _shrink(photo))
        for name, picture in maps.items():
            previews[name] = files.add_png(f"{name}_small", shrink_by_maximum(picture))
    return pictures, previews


def _write_photo(files: _JobFiles, image: ReadImage, pixels: NDArray[np.uint8]) -> str:
    """Let the page have the file itself where a browser shows it right, else a PNG file."""
    if image.format in _SHOWN_FORMATS and set(image.notes) <= _HARMLESS_NOTES:
        return files.keep_upload(*_SHOWN_FORMATS[image.format])
    (files.folder / UPLOAD_NAME).unlink()
    return files.add_png("photo", pixels)


def _preview_size(shape: tuple[int, ...]) -> tuple[int, int]:
    scale = _PREVIEW_SIDE / max(shape[:2])
    return max(1, round(shape[1] * scale)), max(1, round(shape[0] * scale))


def _shrink(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    small = cv2.resize(picture, _preview_size(picture.shape), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.uint8)


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


def _write_views(files: _JobFiles, views: list[TraceView]) -> list[dict[str, Any]]:
    shown = []
    for view in views:
        url = None
        if view.picture is not None:
            url = files.add_png(f"view-{view.name}", np.asarray(view.picture, np.uint8))
        texts = {"name": view.name, "title": view.title, "text": view.text, "note": view.note}
        shown.append({**texts, "url": url})
    return shown


def _describe(
    image: ReadImage,
    data: bytes,
    found: Localization,
    threshold: float,
    name: str,
    identity: dict[str, str],
) -> dict[str, Any]:
    """Return what the JSON file of a result says, without its paths."""
    origin = {"sha256": hashlib.sha256(data).hexdigest(), "model": identity}
    names = ResultFiles(Path(name), Path(), "result")
    entry = describe_result(names, image, found, threshold=threshold, origin=origin)
    return {key: value for key, value in entry.items() if key not in _PATHS}


def _choose_display(found: Localization, threshold: float) -> dict[str, Any]:
    """Return what the page shows at first, and says of it."""
    display = found.display
    return {
        "opacity": number(display.strength),
        "colours": display.colours,
        "title": display.seam_title,
        "text": display.seam_text,
        "white": number(choose_overlay_white(found.boundary, threshold)),
        "has_region": bool(found.mask is not None and found.mask.any()),
        "has_hot_spots": bool(found.hot_spots is not None and found.hot_spots.any()),
    }


def _write_reports(files: _JobFiles, report: PhotoReport) -> dict[str, str]:
    return {
        "html": files.add("report.html", report.html().encode(), "text/html"),
        "pdf": files.add("report.pdf", report.pdf(), "application/pdf"),
    }
