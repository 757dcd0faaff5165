"""The report on a photo: what a person needs to hand it on, and another to repeat it."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

from cpcapp import __version__
from cpcapp._io.text import number
from cpcapp.reports import CITATION, data_uri, render
from cpcapp.reports.pdf import COLOURS, PdfDocument
from cpcapp.reports.pictures import EncodedPicture, encode_jpeg, encode_png
from cpcapp.splicing.decide.words import (
    explain_limits,
    explain_verdict,
    format_verdict,
    verdict_sentence,
)
from cpcapp.splicing.output.draw import draw_localization, draw_part
from cpcapp.splicing.output.views import TraceView
from cpcapp.splicing.photo.file_facts import FileFacts
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.read import ReadImage
from cpcapp.splicing.result import Localization

# Pixels of the longer side, so that a report has about a megabyte: sharp on a page of A4.
_PHOTO_SIDE: Final = 1400
_TRACE_SIDE: Final = 900

_METHOD: Final = (
    "A small network measures where a seam is likely, and traces of how each part was processed; "
    "the models without a network use filters that respond to what varies more at the seams of "
    "pasted parts than at other edges (cPCA++). The photo is cut in two where the seam is "
    "strongest and the traces of the two sides differ most, and one side is called pasted. "
    "p is the share of genuine photos that scored as high as this one."
)
_SCALED: Final = (
    "The pictures here were saved again, and made smaller if they were large: for evidence, use "
    "the file with the hash below."
)
_REPEATING: Final = (
    "The same photo and model, by their SHA-256, and the same version of cpcapp give the same "
    "verdict. On another machine the last digits of a number may differ."
)
# Packages that compute something.
_PACKAGES: Final = {
    "NumPy": "numpy",
    "OpenCV": "opencv-contrib-python-headless",
    "ONNX Runtime": "onnxruntime",
    "Pillow": "pillow",
}

Rows = list[tuple[str, str]]


class ReportPicture(NamedTuple):
    """A picture with what there is to say of it; without one, ``text`` says why."""

    encoded: EncodedPicture | None
    title: str
    text: str

    @property
    def address(self) -> str:
        """The picture as an address that contains it; empty if there is none."""
        return "" if self.encoded is None else data_uri(self.encoded.content)


class PhotoReport:
    """The report on a photo, to be written as a page and as PDF.

    It holds what is shown, in the sizes in which it is shown; tables are rows of label and text.

    ``result``, ``facts`` and ``views``: of this image. ``model``: as the command would be given it,
    by default its name.
    """

    def __init__(
        self,
        image: ReadImage,
        result: Localization,
        facts: FileFacts,
        views: Sequence[TraceView],
        model_identity: Mapping[str, str],
        *,
        model: str = "",
    ) -> None:
        model = model or model_identity["name"]
        self.name, self.made = image.name, _now()
        self.verdict = format_verdict(result.verdict, result.p_value)
        self.verdict_code = result.verdict_code
        self.sentence, self.meaning = verdict_sentence(result), explain_verdict(result)
        self.limits = explain_limits(result)
        self.pictures = _draw_pictures(image, result)
        self.traces = [_encode_view(view) for view in views]
        self.file_rows, self.warnings, self.remarks = facts.rows(), facts.warnings, facts.remarks
        self.previews = []
        if facts.thumbnail is not None and facts.thumbnail.differs:
            text = "The small picture that the file carries differs from the photo."
            preview = encode_png(facts.thumbnail.pixels, _TRACE_SIDE)
            self.previews.append(ReportPicture(preview, "The preview inside", text))
        self.command = _repeat_command(self.name, model)
        labels = {"name": "Name", "version": "Version", "sha256": "SHA-256"}
        #: What the result depends on, as tables by their titles.
        self.tables: dict[str, Rows] = {
            "The result": _result_rows(result),
            "The photo": _photo_rows(image, facts),
            "The model": [(labels[key], str(text)) for key, text in model_identity.items()],
            "The settings": [("Model", model), ("Threshold", str(number(result.threshold)))],
            "The programs": _list_versions(),
        }

    def html(self) -> str:
        """Return the report as one page that needs no other file, no script and no network."""
        return render(
            "photo.html",
            title=f"{self.name}: {self.verdict}",
            generator="cpcapp report",
            report=self,
            method=_METHOD,
            citation=CITATION,
            scaled=_SCALED,
            repeating=_REPEATING,
        )

    def pdf(self) -> bytes:
        """Return the report as PDF, on A4 paper."""
        document = PdfDocument(
            f"{self.name}: {self.verdict}", f"cpcapp {__version__}, {self.made}, {self.name}"
        )
        document.add_heading(self.name, level=1)
        document.add_callout(self.sentence, COLOURS[self.verdict_code])
        document.add_list(self.warnings)
        document.add_text(self.meaning)
        _add_pictures(document, self.pictures)
        document.add_text(_SCALED, soft=True)
        document.add_heading("What this can't see")
        document.add_list(self.limits)
        document.add_heading("What the file says")
        document.add_list(self.remarks)
        _add_pictures(document, self.previews)
        document.add_rows(self.file_rows)
        document.add_heading("Single traces")
        _add_pictures(document, self.traces)
        document.add_heading("How it works")
        document.add_text(_METHOD)
        document.add_text(f"The paper: {CITATION}.", soft=True)
        document.add_heading("To repeat it")
        document.add_code(self.command)
        document.add_text(_REPEATING)
        for title, rows in self.tables.items():
            document.add_heading(title, level=3)
            document.add_rows(rows)
        return document.to_bytes()


def _now() -> str:
    # As other programs do whose results are to be the same byte by byte; reportlab is one.
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(fixed), UTC) if fixed.isdecimal() else datetime.now(UTC)
    return f"{now:%Y-%m-%d %H:%M:%S} UTC"


def _draw_pictures(image: ReadImage, result: Localization) -> list[ReportPicture]:
    pixels, display = image.pixels, result.display
    overlay = encode_jpeg(draw_localization(pixels, result, result.threshold), _PHOTO_SIDE)
    part = None
    if result.mask is not None and result.mask.any():
        part = encode_jpeg(draw_part(pixels, result.mask), _PHOTO_SIDE)
    return [
        ReportPicture(encode_jpeg(as_bytes(pixels), _PHOTO_SIDE), "The photo", ""),
        ReportPicture(overlay, display.seam_title, display.seam_text),
        ReportPicture(part, "The likely part", display.part_text),
    ]


def _encode_view(view: TraceView) -> ReportPicture:
    if view.picture is None:
        return ReportPicture(None, view.title, view.note)
    return ReportPicture(encode_jpeg(view.picture, _TRACE_SIDE), view.title, view.text)


def _add_pictures(document: PdfDocument, pictures: Sequence[ReportPicture]) -> None:
    drawn = [(p.encoded, p.title, p.text) for p in pictures if p.encoded is not None]
    document.add_pictures(drawn)
    for picture in pictures:
        if picture.encoded is None:
            document.add_text(f"{picture.title}: {picture.text}", soft=True)


def _photo_rows(image: ReadImage, facts: FileFacts) -> Rows:
    height, width = image.pixels.shape[:2]
    rows = [
        ("File", image.name),
        ("Format", image.format),
        ("Size", f"{width} × {height} pixels"),
        ("SHA-256", facts.sha256),
    ]
    if image.notes:
        rows.append(("When it was read", "; ".join(image.notes)))
    return rows


def _result_rows(result: Localization) -> Rows:
    share = None if result.mask is None or not result.mask.any() else result.mask.mean()
    figures = {
        "Verdict": result.verdict,
        "Score": number(result.score),
        "p": number(result.p_value),
        "Likely part": None if share is None else f"{100 * share:.1f} % of the photo",
        "JPEG quality": result.jpeg_quality,
        "Seconds": number(result.seconds),
    }
    return [(name, "–" if value is None else str(value)) for name, value in figures.items()]


def _repeat_command(name: str, model: str) -> str:
    """Return the command that makes a report again; the model by its name, or that of a file."""
    # A name that begins like an option is none.
    photo = f"./{name}" if name.startswith("-") else name
    return f"cpcapp localize {shlex.quote(photo)} --model {shlex.quote(model)} --report"


def _list_versions() -> Rows:
    """Return the versions of what computed a result."""
    versions = [("cpcapp", __version__), ("Python", platform.python_version())]
    for name, package in _PACKAGES.items():
        try:
            versions.append((name, version(package)))
        except PackageNotFoundError:
            continue
    return [*versions, ("System", f"{platform.system()} {platform.machine()}")]
