"""The report on a photo: what a person needs to hand it on, and another to repeat it."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from cpcapp import __version__
from cpcapp._io.files import atomic_write
from cpcapp._io.text import number
from cpcapp.reports import CITATION, data_uri, render
from cpcapp.reports.pdf import COLOURS, PdfDocument
from cpcapp.reports.pictures import EncodedPicture, encode_jpeg
from cpcapp.splicing.decide.words import (
    explain_limits,
    explain_verdict,
    format_verdict,
    verdict_sentence,
)
from cpcapp.splicing.output.files import ResultFiles
from cpcapp.splicing.output.overlays import draw_localization, draw_part
from cpcapp.splicing.output.repeat import list_versions, repeat_command
from cpcapp.splicing.output.views import TraceView, draw_views
from cpcapp.splicing.photo.file_facts import FileFacts, read_file_facts
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.read import ReadImage
from cpcapp.splicing.result import Localization

# Pixels of the longer side, so that a report has about a megabyte: sharp on a page of A4.
_PHOTO_SIDE: Final = 1400
_TRACE_SIDE: Final = 900
# Of texts that come from a file: it can claim anything, at any length.
_MAX_TEXT: Final = 600

_LABELS: Final = {"name": "Name", "version": "Version", "sha256": "SHA-256", "model": "Model"}
_METHOD: Final = (
    "Filters that respond to what varies more at the seams of pasted parts than at other edges "
    "(cPCA++) give a boundary map of the photo; traces of the camera's colour mosaic, of JPEG "
    "and, with the default model, those that a small network measures are added to it.",
    "The photo is cut in two where this evidence is strongest, and one side is called pasted.",
    "The score of the photo is compared with those of genuine photos like it: p is how often one "
    "of them scores this high.",
)
_SCALED: Final = (
    "The pictures here were saved again, and made smaller if they were large: for evidence, use "
    "the file with the hash below."
)


class ReportPicture(NamedTuple):
    """A picture with what there is to say of it.

    Attributes
    ----------
    encoded : EncodedPicture or None
        None if there is none; then ``text`` says why.
    """

    encoded: EncodedPicture | None
    title: str
    text: str

    @property
    def address(self) -> str:
        """The picture as an address that contains it; empty if there is none."""
        return "" if self.encoded is None else data_uri(self.encoded.content)


Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PhotoReport:
    """The report on a photo, to be written as a page and as PDF.

    Made by `build`. It holds what is shown, in the sizes in which it is shown.

    Attributes
    ----------
    name : str
        Of the photo's file, without its folder.
    made : str
        When the report was made, UTC.
    verdict, verdict_code : str
    sentence, meaning : str
        The verdict in one plain sentence, and what it means.
    warnings : tuple of str
        What the file says that nobody should miss; stands right below the verdict.
    limits : tuple of str
        What can't be seen in a photo.
    pictures, traces : tuple of ReportPicture
    result_rows : tuple of (label, text)
        What was found, in figures.
    file_rows, photo_rows, model_rows, setting_rows, version_rows : tuple of (label, text)
        What the file says of itself; what identifies photo, model, settings and programs.
    remarks : tuple of str
        What is odd about the file, the warnings among it.
    previews : tuple of ReportPicture
        The small picture inside the file, if it is not of this photo.
    command : str
        Makes the report again.
    """

    name: str
    made: str
    verdict: str
    verdict_code: str
    sentence: str
    meaning: str
    warnings: tuple[str, ...]
    limits: tuple[str, ...]
    pictures: tuple[ReportPicture, ...] = field(repr=False)
    traces: tuple[ReportPicture, ...] = field(repr=False)
    result_rows: Rows
    file_rows: Rows
    remarks: tuple[str, ...]
    previews: tuple[ReportPicture, ...] = field(repr=False)
    photo_rows: Rows
    model_rows: Rows
    setting_rows: Rows
    version_rows: Rows
    command: str

    @classmethod
    def build(
        cls,
        image: ReadImage,
        data: bytes | None,
        found: Localization,
        model_identity: Mapping[str, str],
        *,
        name: str,
        settings: Mapping[str, Any] | None = None,
        facts: FileFacts | None = None,
        views: Sequence[TraceView] | None = None,
    ) -> PhotoReport:
        """Gather everything that a report says.

        ``data``: the file. Without it there are no hashes, and nothing is said of the file.

        ``found``: of this image. Its ``threshold`` is that of the line in the overlay.

        ``settings``: what was chosen by hand. ``model`` is the model as the command would be given
        it; by default it is the name of the model.
        """
        if facts is None and data is not None:
            facts = read_file_facts(data, image)
        views = draw_views(image, data) if views is None else views
        chosen = {"model": model_identity["name"], **(settings or {})}
        return cls(
            name=name,
            made=_now(),
            verdict=format_verdict(found.verdict, found.p_value),
            verdict_code=found.verdict_code,
            sentence=verdict_sentence(found),
            meaning=explain_verdict(found),
            warnings=() if facts is None else _sentences(facts, "warnings"),
            limits=tuple(explain_limits(found)),
            pictures=tuple(_draw_pictures(image, found)),
            traces=tuple(_encode_view(view) for view in views),
            result_rows=_result_rows(found),
            file_rows=() if facts is None else _bounded(facts.rows()),
            remarks=() if facts is None else _sentences(facts, "remarks"),
            previews=() if facts is None else _previews(facts),
            photo_rows=_photo_rows(name, image, facts),
            model_rows=_bounded(model_identity.items()),
            setting_rows=_bounded({**chosen, "Threshold": number(found.threshold)}.items()),
            version_rows=_bounded(list_versions()),
            command=repeat_command(name, str(chosen["model"])),
        )

    def html(self) -> str:
        """Return the report as one page that needs no other file, no script and no network."""
        return render(
            "photo.html",
            title=f"{self.name}: {self.verdict}",
            generator="cpcapp report",
            report=self,
            method=" ".join(_METHOD),
            citation=CITATION,
            scaled=_SCALED,
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
        if self.file_rows or self.remarks:
            document.add_heading("What the file says")
            document.add_list(self.remarks)
            _add_pictures(document, self.previews)
            document.add_rows(self.file_rows)
        if self.traces:
            document.add_heading("Single traces")
            _add_pictures(document, self.traces)
        document.add_heading("How it works")
        document.add_text(" ".join(_METHOD))
        document.add_text(f"The paper: {CITATION}.", soft=True)
        document.add_heading("To repeat it")
        document.add_code(self.command)
        document.add_text(_REPEATING)
        for title, rows in self.tables:
            document.add_heading(title, level=3)
            document.add_rows(rows)
        return document.to_bytes()

    @property
    def repeating(self) -> str:
        """What the command needs to give the same result."""
        return _REPEATING

    @property
    def tables(self) -> list[tuple[str, Rows]]:
        """What the result depends on, as tables with titles."""
        return [
            ("The result", self.result_rows),
            ("The photo", self.photo_rows),
            ("The model", self.model_rows),
            ("The settings", self.setting_rows),
            ("The programs", self.version_rows),
        ]


_REPEATING: Final = (
    "The same photo and model, by their SHA-256, and the same version of cpcapp give the same "
    "verdict. On another machine the last digits of a number may differ."
)


def write_reports(files: ResultFiles, report: PhotoReport, *, pdf: bool = True) -> None:
    """Write a report as a page and as PDF."""
    contents = {files.report: report.html().encode(errors="backslashreplace")}
    if pdf:
        contents[files.report_pdf] = report.pdf()
    for path, content in contents.items():
        with atomic_write(path) as file:
            file.write(content)


def _now() -> str:
    # As other programs do whose results are to be the same byte by byte; reportlab is one.
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(fixed), UTC) if fixed.isdecimal() else datetime.now(UTC)
    return f"{now:%Y-%m-%d %H:%M:%S} UTC"


def _draw_pictures(image: ReadImage, found: Localization) -> list[ReportPicture]:
    pixels, display = image.pixels, found.display
    overlay = encode_jpeg(draw_localization(pixels, found, found.threshold), _PHOTO_SIDE)
    part = None
    if found.mask is not None and found.mask.any():
        part = encode_jpeg(draw_part(pixels, found.mask), _PHOTO_SIDE)
    return [
        ReportPicture(encode_jpeg(as_bytes(pixels), _PHOTO_SIDE), "The photo", ""),
        ReportPicture(overlay, display.seam_title, display.seam_text),
        ReportPicture(part, "The likely part", display.part_text),
    ]


def _encode_view(view: TraceView) -> ReportPicture:
    if view.picture is None:
        return ReportPicture(None, view.title, view.note)
    encoded = encode_jpeg(view.picture, _TRACE_SIDE)
    return ReportPicture(encoded, view.title, " ".join(filter(None, (view.text, view.note))))


def _add_pictures(document: PdfDocument, pictures: Sequence[ReportPicture]) -> None:
    drawn = [(p.encoded, p.title, p.text) for p in pictures if p.encoded is not None]
    document.add_pictures(drawn)
    for picture in pictures:
        if picture.encoded is None:
            document.add_text(f"{picture.title}: {picture.text}", soft=True)


def _sentences(facts: FileFacts, kind: str) -> tuple[str, ...]:
    return tuple(_shorten(str(text)) for text in facts.to_dict().get(kind) or ())


def _previews(facts: FileFacts) -> tuple[ReportPicture, ...]:
    preview, content = facts.to_dict().get("thumbnail") or {}, facts.thumbnail_png
    if not preview.get("differs") or content is None:
        return ()
    # The header of a PNG has its size in these bytes.
    width, height = struct.unpack(">II", content[16:24])
    text = "The small picture that the file carries differs from the photo."
    return (ReportPicture(EncodedPicture(content, width, height), "The preview inside", text),)


def _photo_rows(name: str, image: ReadImage, facts: FileFacts | None) -> Rows:
    height, width = image.pixels.shape[:2]
    rows = [("File", name), ("Format", image.format), ("Size", f"{width} × {height} pixels")]
    if facts is not None:
        rows += [("Bytes", f"{facts.n_bytes:,}"), ("SHA-256", facts.sha256), ("MD5", facts.md5)]
    if image.notes:
        rows.append(("When it was read", "; ".join(image.notes)))
    return _bounded(rows)


def _result_rows(found: Localization) -> Rows:
    share = None if found.mask is None or not found.mask.any() else found.mask.mean()
    figures = {
        "Verdict": found.verdict,
        "Score": number(found.score),
        "p": number(found.p_value),
        "Likely part": None if share is None else f"{100 * share:.1f} % of the photo",
        "JPEG quality": found.jpeg_quality,
        "Seconds": number(found.seconds),
    }
    return _bounded((name, "–" if value is None else value) for name, value in figures.items())


def _bounded(rows: Any) -> Rows:
    return tuple(
        (_shorten(_LABELS.get(label, str(label))), _shorten(str(text))) for label, text in rows
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} … ({len(text):,} characters)"
