"""A folder of results: the files of each photo, what is there already, the table and page of all.

The JSON file of a photo is written last: if it exists, the others are complete.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp import __version__
from cpcapp._io.files import atomic_write, stage_results
from cpcapp._io.messages import Message, MessageError
from cpcapp._io.text import natural_order, number, printable, spreadsheet_text
from cpcapp.reports import render
from cpcapp.reports.pictures import encode_jpeg
from cpcapp.splicing.decide.words import FADING, PART_TEXTS, format_p, format_verdict
from cpcapp.splicing.output.draw import choose_boundary_white, draw_pictures, encode_png
from cpcapp.splicing.output.report import PhotoReport
from cpcapp.splicing.output.views import draw_views
from cpcapp.splicing.photo.file_facts import read_file_facts
from cpcapp.splicing.photo.read import ReadImage
from cpcapp.splicing.result import Localization

SUMMARY_NAME, INDEX_NAME = "summary.csv", "index.html"
# What the names of a photo's files end with, by what the JSON file calls them.
_SUFFIXES: Final = {
    "overlay": ".overlay.png",
    "boundary": ".boundary.png",
    "region": ".region.png",
    "thumbnail": ".thumbnail.jpg",
    "report": ".report.html",
    "report_pdf": ".report.pdf",
    "entry": ".json",
}
_PICTURES: Final = ("overlay", "boundary", "region", "thumbnail")
#: The two forms of a report.
REPORTS: Final = ("report", "report_pdf")
# Bytes. Most file systems allow 255, and up to 16 more are added to a name here.
_MAX_NAME: Final = 200
# Pixels of the longer side: a table of them fits on a screen, and has a few kB each.
_THUMBNAIL_SIDE, _THUMBNAIL_QUALITY = 240, 75

# Of which type is what a JSON file says, where it is used.
_TYPES: Final[dict[str, Any]] = {
    **dict.fromkeys(("file", "sha256", "overlay", "boundary"), str),
    "model": dict,
    **dict.fromkeys(("verdict", "verdict_code", "part_kind", *_PICTURES[2:], *REPORTS), str | None),
    **dict.fromkeys(("score", "p_value", "seconds"), int | float | None),
    **dict.fromkeys(("width", "height"), int | None),
    "notes": list | None,
    "seam": dict | None,
}

_COLUMNS: Final = (
    *("file", "width", "height", "verdict", "verdict_code", "score", "p_value"),
    *("region_share", "share_above_threshold", "row", "column", "strength"),
    *("box_top", "box_left", "box_height", "box_width", "seconds", "notes"),
    *("overlay", "boundary", "region", "report", "report_pdf", "error"),
)

_GENERATOR: Final = "cpcapp localize"
# Pixels: more than any photo has that is read.
_MAX_SIDE: Final = 10**8
# Thumbnails that a browser without scripts loads, as it loads all at once.
_MAX_THUMBNAILS: Final = 300
# The most suspicious first.
_VERDICTS: Final = {
    "signs": "with signs of splicing",
    "weak": "with weak signs",
    "unknown": "not judged",
    "none": "without signs",
}
# What a row links to, by its word on the page; the overlay is behind the thumbnail.
_LINKS: Final = {
    "report": "report",
    "report_pdf": "PDF",
    "boundary": "boundary map",
    "region": "region",
    "entry": "JSON",
}


class ResultsError(MessageError):
    """Photos can't be localized as asked, or their results can't be written; see the message."""


def _file(kind: str, text: str) -> Any:
    return property(lambda files: files.path(kind), doc=text)


@dataclass(frozen=True)
class ResultFiles:
    """A photo, and the files that its result goes to.

    Attributes
    ----------
    photo : Path
    folder : Path
    name : str
        What the names of the files begin with.

    Examples
    --------
    >>> files = ResultFiles(Path("cat.jpg"), Path("out"), "cat")
    >>> files.overlay.name, files.entry.name
    ('cat.overlay.png', 'cat.json')
    """

    photo: Path
    folder: Path
    name: str

    overlay = _file("overlay", "The photo with the boundary map on it.")
    boundary = _file("boundary", "The boundary map alone.")
    region = _file("region", "White: what may come from elsewhere; of calibrated models only.")
    thumbnail = _file("thumbnail", "The overlay, small, for the page of the folder.")
    report = _file("report", "The report as a page; only if it was asked for.")
    report_pdf = _file("report_pdf", "The report as PDF; only if it was asked for.")
    entry = _file("entry", "Everything else that was found, in JSON.")

    def path(self, kind: str) -> Path:
        """Return the path of a file by what the JSON file calls it."""
        return self.folder / (self.name + _SUFFIXES[kind])

    @property
    def all(self) -> tuple[Path, ...]:
        """All of them."""
        return tuple(map(self.path, _SUFFIXES))


@dataclass(frozen=True)
class PhotoResult:
    """What became of a photo: the content of its JSON file, or an error.

    Attributes
    ----------
    photo : Path
    files : ResultFiles or None
        Where the result is. None for an image of a kind that is not read.
    entry : dict or None
        What the JSON file says. None if there is an error.
    remark : str
        What became of an earlier result; empty if there was none.
    error : str
        Why there is no result, in one line that begins with the path; empty if there is one.
    message : Message or None
        The error in parts, if it names parameters.
    """

    photo: Path
    files: ResultFiles | None = None
    entry: dict[str, Any] | None = field(default=None, repr=False)
    remark: str = ""
    error: str = ""
    message: Message | None = field(default=None, repr=False)

    @property
    def verdict(self) -> str:
        """The verdict, its p-value and a remark on the part; empty if there is an error."""
        entry = self.entry or {}
        words = format_verdict(entry.get("verdict") or "", entry.get("p_value"))
        part = PART_TEXTS.get(entry.get("part_kind") or "")
        return f"{words}; {part}" if part else words

    def to_dict(self) -> dict[str, Any]:
        """Return the entry, with paths of the files that can be opened from here."""
        if self.entry is None or self.files is None:
            return {"file": str(self.photo), "error": self.error}
        present = [kind for kind in (*_PICTURES, *REPORTS) if self.entry.get(kind)]
        return {**self.entry, **{kind: str(self.files.path(kind)) for kind in present}}


def name_results(photos: Iterable[Path], folder: Path) -> list[ResultFiles]:
    """Name the results of photos: after their files, and each name once.

    Photos of the same name get a few digits that follow from the whole path: the same in every
    run that has both, in whatever order. Case does not tell names apart, as on some systems.

    >>> photos = [Path("/a/cat.jpg"), Path("/b/Cat.png"), Path("/b/dog.jpg")]
    >>> [files.name for files in name_results(photos, Path("out"))]
    ['cat-b229594b', 'Cat-9a584c93', 'dog']
    """
    photos = list(photos)
    names = [photo.stem for photo in photos]
    for digits in (8, 64):
        counts = Counter(name.casefold() for name in names)
        for i, photo in enumerate(photos):
            too_long = len(names[i].encode(errors="replace")) > _MAX_NAME
            if counts[names[i].casefold()] > 1 or too_long:
                path = str(photo.resolve()).encode(errors="surrogateescape")
                code = hashlib.sha256(path).hexdigest()[:digits]
                names[i] = f"{photo.stem[:30] if too_long else photo.stem}-{code}"
    return [ResultFiles(photo, folder, name) for photo, name in zip(photos, names, strict=True)]


def check_folder(
    folder: Path, results: Sequence[ResultFiles], *, resume: bool = False, force: bool = False
) -> None:
    """Raise `ResultsError` if a file would be lost that nobody allowed to replace."""
    photos = {files.photo.resolve() for files in results}
    present = [path for files in results for path in files.all if os.path.lexists(path)]
    for path in present:
        if path.resolve() in photos:
            raise ResultsError(
                f"{printable(path)} is a photo and would be replaced", "choose another {folder}"
            )
    for path in [*present, folder / SUMMARY_NAME, folder / INDEX_NAME]:
        if os.path.lexists(path) and not (path.is_file() or path.is_symlink()):
            raise ResultsError(
                f"{printable(path)} is in the way: it is not a file",
                "move it away, or choose another {folder}",
            )
    if not force:
        check_overviews(folder, "choose another {folder}, or {force} to replace it")
    if present and not (resume or force):
        more = f", with {len(present) - 1} more" if len(present) > 1 else ""
        raise ResultsError(
            f"{printable(present[0])} is there already{more}",
            "{resume} to go on, {force} to replace, or choose another {folder}",
            resume=True,
            force=True,
        )


def check_overviews(folder: Path, advice: str) -> None:
    """Raise `ResultsError` if the table or the page of a folder is not one of ours."""
    marks = {
        SUMMARY_NAME: (",".join(_COLUMNS[:3]), "table"),
        INDEX_NAME: (f'<meta name="generator" content="{_GENERATOR}">', "page"),
    }
    for name, (mark, kind) in marks.items():
        path = folder / name
        if path.is_file():
            with path.open("rb") as file:
                if mark.encode() not in file.read(1000):
                    problem = f"{printable(path)} is not a {kind} of results"
                    raise ResultsError(problem, advice, force=True)


def make_result(
    files: ResultFiles,
    image: ReadImage,
    data: bytes,
    result: Localization,
    origin: dict[str, Any],
    *,
    reports: Collection[str] = (),
    model: str = "",
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what the JSON file of a photo says, and the contents of all files but it.

    ``data``: the photo's file. ``origin``: its ``sha256`` and the ``model``, which tell whether the
    result is still valid. ``reports``: which of the two forms are made. ``model``: as the command
    would be given it, by default its name.
    """
    contents = {}
    for kind, picture in draw_pictures(image.pixels, result):
        contents[kind] = encode_png(picture)
        if kind == "overlay":
            small = encode_jpeg(picture, _THUMBNAIL_SIDE, quality=_THUMBNAIL_QUALITY)
            contents["thumbnail"] = small.content
    if reports:
        facts, views = read_file_facts(data, image), draw_views(image, data)
        report = PhotoReport(image, result, facts, views, origin["model"], model=model)
        contents["report"] = report.html().encode(errors="backslashreplace")
        if "report_pdf" in reports:
            contents["report_pdf"] = report.pdf()
    kinds = (*_PICTURES, *REPORTS)
    names = {kind: files.path(kind).name if kind in contents else None for kind in kinds}
    return {**describe_result(image, result, photo=files.photo, origin=origin), **names}, contents


def describe_result(
    image: ReadImage, result: Localization, *, photo: Path, origin: dict[str, Any]
) -> dict[str, Any]:
    """Return what the JSON file of a photo says, but for the names of the other files."""
    height, width = image.pixels.shape[:2]
    region, rank = result.mask, result.rank
    return {
        "file": str(photo),
        **origin,
        "cpcapp": __version__,
        "format": image.format,
        "width": width,
        "height": height,
        "jpeg_quality": result.jpeg_quality,
        "notes": list(result.notes),
        "verdict": result.verdict,
        "verdict_code": result.verdict_code,
        "calibrated": result.calibrated,
        "score": number(result.score),
        "p_value": number(result.p_value),
        "genuine_photos": rank and rank.n_photos,
        "genuine_as_high": rank and rank.n_as_high,
        "threshold": number(result.threshold),
        "share_above_threshold": number((result.boundary >= result.threshold).mean()),
        "seam": find_strongest_seam(result.boundary, result.threshold),
        "seconds": number(result.seconds),
        "boundary_white": number(choose_boundary_white(result.boundary, result.threshold)),
        "region_share": None if region is None else number(region.mean()),
        "pasted_side_by": result.side_rule if region is not None and region.any() else None,
        "part_kind": result.part_kind,
    }


def find_strongest_seam(boundary: NDArray[np.float32], threshold: float) -> dict[str, Any] | None:
    """Return where a boundary map is highest, and the box of the piece of seam around it.

    The piece is the connected part of at least the threshold or, if the map does not reach it, of
    at least half of its maximum. None if the map is 0 everywhere.
    """
    row, column = (int(i) for i in divmod(int(boundary.argmax()), boundary.shape[1]))
    strength = float(boundary[row, column])
    if strength <= 0.0:
        return None
    level = threshold if strength >= threshold else strength / 2
    _, labels, boxes, _ = cv2.connectedComponentsWithStats((boundary >= level).astype("uint8"))
    left, top, width, height = (int(side) for side in boxes[labels[row, column]][:4])
    return {
        "row": row,
        "column": column,
        "strength": number(strength),
        "box": [top, left, height, width],
    }


def write_result(files: ResultFiles, entry: dict[str, Any], contents: dict[str, bytes]) -> None:
    """Write the files of a photo in the place of an earlier result, the JSON file last."""
    text = json.dumps(entry, indent=1, allow_nan=False)
    with stage_results(files.folder) as staged:
        for kind, content in {**contents, "entry": text.encode()}.items():
            with atomic_write(staged.new / files.path(kind).name) as file:
                file.write(content)
        staged.commit(marker=files.entry.name, remove=[path.name for path in files.all])


def read_entry(path: Path) -> dict[str, Any] | None:
    """Return what a JSON file says; None if there is none, or it is not of a photo's result."""
    try:
        # Reading a pipe would never end.
        if not path.is_file():
            return None
        entry = json.loads(path.read_bytes(), parse_constant=_finite, parse_float=_finite)
    except (OSError, ValueError, RecursionError):
        return None
    fits = isinstance(entry, dict) and all(
        isinstance(entry.get(name), kind) for name, kind in _TYPES.items()
    )
    return entry if fits and isinstance((entry.get("seam") or {}).get("box", []), list) else None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number of JSON")
    return value


def is_result_picture(path: Path) -> bool:
    """Tell whether a file is a picture of an earlier result."""
    for suffix in (_SUFFIXES[kind] for kind in _PICTURES):
        if path.name.endswith(suffix):
            beside = path.with_name(path.name.removesuffix(suffix) + _SUFFIXES["entry"])
            return read_entry(beside) is not None
    return False


def is_complete(files: ResultFiles, entry: dict[str, Any]) -> bool:
    """Tell whether all files that an entry names are there."""
    written = [kind for kind in (*_PICTURES, *REPORTS) if entry.get(kind)]
    return all(files.path(kind).is_file() for kind in written)


def write_overviews(folder: Path, results: Sequence[PhotoResult] = ()) -> None:
    """Write the table and the page of all results in a folder, also those of earlier runs."""
    entries = _read_results(folder, results)
    for name, text in (
        (SUMMARY_NAME, _make_table(entries.values())),
        (INDEX_NAME, _make_page(folder, entries)),
    ):
        try:
            with atomic_write(folder / name) as file:
                file.write(text.encode(errors="backslashreplace"))
        except OSError as error:
            path = printable(folder / name)
            raise ResultsError(f"can't write {path}: {error.strerror}") from error


def _read_results(folder: Path, results: Sequence[PhotoResult]) -> dict[str, dict[str, Any]]:
    """Return all entries in a folder, and ``file`` and ``error`` of failures, by their names."""
    entries: dict[str, dict[str, Any]] = {}
    for path in folder.glob("*.json"):
        if entry := read_entry(path):
            # What others call an error is none of ours.
            entries[path.stem] = {**entry, "error": ""}
    for result in results:
        if result.error:
            name = result.photo.name if result.files is None else result.files.name
            entries[name] = result.to_dict()
    return {name: entries[name] for name in sorted(entries, key=natural_order)}


def _make_table(entries: Iterable[dict[str, Any]]) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    table.writeheader()
    for entry in entries:
        row = {name: entry[name] for name in _COLUMNS if entry.get(name) is not None}
        seam = entry.get("seam") or {}
        row |= {name: seam.get(name) for name in ("row", "column", "strength")}
        sides = ("box_top", "box_left", "box_height", "box_width")
        row |= dict(zip(sides, seam.get("box", ()), strict=False))
        row["notes"] = "; ".join(map(str, entry.get("notes") or ()))
        table.writerow({column: spreadsheet_text(cell) for column, cell in row.items()})
    return text.getvalue()


def _make_page(folder: Path, entries: Mapping[str, dict[str, Any]]) -> str:
    """Return the page of all results, which a browser can sort.

    It holds no picture itself, so that ten thousand photos make a page of some megabytes; a
    browser loads the thumbnails that are seen.
    """
    present = set(os.listdir(folder))  # noqa: PTH208 - names only: a folder may have 100,000
    rows = [_row(folder, *item, present) for item in entries.items() if not item[1]["error"]]
    rows.sort(key=_suspicion)
    counts = list(_counts(rows))
    photos = f"{len(rows):,} photo{'' if len(rows) == 1 else 's'}"
    return render(
        "index.html",
        title=f"{photos}: {', '.join(counts) or 'nothing found'}",
        generator=_GENERATOR,
        fading=FADING,
        rows=rows,
        words=_VERDICTS,
        n_pictures=_MAX_THUMBNAILS,
        failures=[entry["error"] for entry in entries.values() if entry["error"]],
        table=SUMMARY_NAME,
    )


def _row(folder: Path, name: str, entry: dict[str, Any], present: set[str]) -> dict[str, Any]:
    # Not by the names in the entry: whoever wrote it could send a reader anywhere.
    files = ResultFiles(Path(entry["file"]), folder, name)
    code, p_value = entry.get("verdict_code"), _within(entry.get("p_value"), 1)
    share = _within(entry.get("region_share"), 1) if code in ("signs", "weak") else None
    small = "thumbnail" if files.thumbnail.name in present else "overlay"
    return {
        "code": code if code in _VERDICTS else "unknown",
        "name": files.photo.name,
        "folder": str(files.photo.parent) if files.photo.parent != Path() else "",
        "verdict": entry.get("verdict") or "",
        "p": p_value,
        "p_text": "" if p_value is None else format_p(p_value),
        "part": None if share is None else round(100 * share, 1),
        "width": _within(entry.get("width"), _MAX_SIDE),
        "height": _within(entry.get("height"), _MAX_SIDE),
        "notes": "; ".join(map(str, entry.get("notes") or ())),
        "small": _address(files.path(small)),
        "overlay": _address(files.overlay),
        "links": [
            (word, _address(files.path(kind)))
            for kind, word in _LINKS.items()
            if files.path(kind).name in present
        ],
    }


def _within(value: Any, largest: float) -> Any:
    """Return a number of an entry, or None: others may have written it."""
    return value if isinstance(value, int | float) and 0 <= value <= largest else None


def _address(path: Path) -> str:
    # Bytes, as a name need not be text.
    return quote(os.fsencode(path.name), safe="")


def _suspicion(row: dict[str, Any]) -> tuple[Any, ...]:
    p_value = 2.0 if row["p"] is None else row["p"]
    return list(_VERDICTS).index(row["code"]), p_value, natural_order(row["name"])


def _counts(rows: list[dict[str, Any]]) -> Iterator[str]:
    for code, words in _VERDICTS.items():
        if count := sum(row["code"] == code for row in rows):
            yield f"{count:,} {words}"
