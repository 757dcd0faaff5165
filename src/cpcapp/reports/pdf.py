"""Documents as PDF, on A4 paper. Needs reportlab (``pip install 'cpcapp[report]'``)."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from cpcapp._io.packages import require_packages
from cpcapp.reports.fonts import escape_unprintable, main_font, mark_up
from cpcapp.reports.pictures import EncodedPicture

# Points: 18 mm.
_MARGIN: Final = 51.0
_GAP: Final = 12.0
_INK, _SOFT, _LINE, _CARD = "#1c1c1e", "#5a5a60", "#d8d8d4", "#f2f2ef"
# As in style.css.
COLOURS: Final = {"signs": "#b23a00", "weak": "#8a6100", "none": "#3f4a57", "unknown": "#55555c"}
# Fonts are shared by all documents of a process, and reportlab does not say that threads may.
_LAYING_OUT: Final = threading.Lock()


def require_reportlab() -> None:
    """Raise `ImportError` with the command to run if reportlab is missing."""
    require_packages("report", "reportlab", purpose="a report as PDF")


def has_reportlab() -> bool:
    """Tell whether documents can be made here."""
    return find_spec("reportlab") is not None


class PdfDocument:
    """A document that grows from top to bottom; nothing in its texts is taken for markup."""

    def __init__(self, title: str, footer: str) -> None:
        require_reportlab()
        from reportlab.lib.pagesizes import A4

        self._title, self._footer = title, footer
        self._size = A4
        self._width = A4[0] - 2 * _MARGIN
        self._parts: list[Any] = []

    def add_heading(self, text: str, level: int = 2) -> None:
        """Add a heading; it stays with what follows."""
        size = {1: 17, 2: 13}.get(level, 10.5)
        space = 0 if level == 1 else 12
        options: dict[str, Any] = {"before": space, "after": 4, "keepWithNext": True}
        self._parts.append(_paragraph(text, size, bold=True, **options))

    def add_text(self, text: str, *, soft: bool = False) -> None:
        """Add a paragraph; a soft one is smaller and grey."""
        self._parts.append(_text(text, soft))

    def add_callout(self, text: str, colour: str) -> None:
        """Add a sentence that nobody must miss, with a bar of a colour beside it."""
        bar = ("LINEBEFORE", (0, 0), (0, -1), 5, colour)
        self._add_card(_paragraph(text, 12.5, bold=True), 12, 8, 10, bar)

    def add_code(self, text: str) -> None:
        """Add a command."""
        self._add_card(_paragraph(text, 9), 6, 3, 6)

    def add_list(self, items: Sequence[str]) -> None:
        """Add a list with dots."""
        from reportlab.platypus import ListFlowable, ListItem

        options = {"bulletType": "bullet", "start": "•", "leftIndent": 14, "bulletFontSize": 10}
        if items:
            listed = [ListItem(_text(item), leftIndent=14) for item in items]
            self._parts.append(ListFlowable(listed, **options))

    def add_rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """Add a table of labels and texts."""
        if not rows:
            return
        cells = [[_paragraph(label, 9, bold=True), _paragraph(text, 9)] for label, text in rows]
        style = [
            ("VALIGN", (0, 0), (-1, -1), "TOP"),
            ("LINEBELOW", (0, 0), (-1, -1), 0.5, _LINE),
            ("LEFTPADDING", (0, 0), (0, -1), 0),
            ("TOPPADDING", (0, 0), (-1, -1), 2.5),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 4),
        ]
        self._parts.append(_table(cells, [0.22 * self._width, 0.78 * self._width], style, after=6))

    def _add_card(self, part: Any, left: float, top: float, bottom: float, *style: Any) -> None:
        paddings = {"LEFTPADDING": left, "TOPPADDING": top, "BOTTOMPADDING": bottom}
        whole = {"BACKGROUND": _CARD, **paddings}
        style += tuple((name, (0, 0), (-1, -1), value) for name, value in whole.items())
        self._parts.append(_table([[part]], [self._width], list(style), after=7))

    def add_pictures(self, pictures: Sequence[tuple[EncodedPicture, str, str]]) -> None:
        """Add pictures, two beside each other, each with a title and a text below it."""
        width = (self._width - _GAP) / 2
        # Two rows of them, with their texts, fit on a page.
        height = (self._size[1] - 2 * _MARGIN) * 0.36
        for start in range(0, len(pictures), 2):
            row = [_figure(*picture, width, height) for picture in pictures[start : start + 2]]
            row += [[]] * (2 - len(row))
            style = [
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("LEFTPADDING", (0, 0), (0, -1), 0),
                ("LEFTPADDING", (1, 0), (-1, -1), _GAP / 2),
                ("RIGHTPADDING", (0, 0), (-2, -1), _GAP / 2),
                ("RIGHTPADDING", (-1, 0), (-1, -1), 0),
            ]
            self._parts.append(_table([row], [self._width / 2] * 2, style, after=6, split=0))

    def to_bytes(self) -> bytes:
        """Return the document; it can be asked for once."""
        from reportlab import rl_config
        from reportlab.platypus import SimpleDocTemplate

        file = io.BytesIO()
        document = SimpleDocTemplate(
            file,
            pagesize=self._size,
            leftMargin=_MARGIN,
            rightMargin=_MARGIN,
            topMargin=_MARGIN,
            bottomMargin=_MARGIN + 12,
            title=escape_unprintable(self._title),  # names of files need not be text
            author="cpcapp",
            creator="cpcapp",
            lang="en",
        )
        with _LAYING_OUT:
            # Bytes as they are: as ASCII they take most of the time, and a quarter more room.
            before, rl_config.useA85 = rl_config.useA85, 0
            try:
                document.build(self._parts, onFirstPage=self._foot, onLaterPages=self._foot)
            finally:
                rl_config.useA85 = before
        return file.getvalue()

    def _foot(self, canvas: Any, document: Any) -> None:
        note = _paragraph(f"{self._footer}   page {canvas.getPageNumber()}", 8, colour=_SOFT)
        _, height = note.wrap(self._width, _MARGIN)
        # The frame of the page pads by six points.
        note.drawOn(canvas, _MARGIN + 6, _MARGIN - height)


def _figure(
    picture: EncodedPicture, title: str, text: str, width: float, height: float
) -> list[Any]:
    from reportlab.platypus import Image

    scale = min(width / picture.width, height / picture.height)
    size = (picture.width * scale, picture.height * scale)
    drawn = Image(io.BytesIO(picture.content), *size, hAlign="LEFT")
    heading = _paragraph(title, 9.5, bold=True, before=3)
    return [drawn, heading, *([_text(text, soft=True)] if text else [])]


def _text(text: str, soft: bool = False) -> Any:
    return _paragraph(text, 8.5 if soft else 10, colour=_SOFT if soft else _INK, after=4)


def _paragraph(
    text: str,
    size: float,
    *,
    bold: bool = False,
    colour: str = _INK,
    before: float = 0,
    after: float = 0,
    **options: Any,
) -> Any:
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.platypus import Paragraph

    style = ParagraphStyle(
        "text",
        fontName=main_font(bold),
        fontSize=size,
        leading=1.35 * size,
        textColor=colour,
        spaceBefore=before,
        spaceAfter=after,
        splitLongWords=1,
        **options,
    )
    return Paragraph(mark_up(text, bold=bold), style)


def _table(
    rows: list[list[Any]], widths: list[float], style: list[Any], after: float, split: int = 1
) -> Any:
    from reportlab.platypus import Table, TableStyle

    return Table(
        rows,
        colWidths=widths,
        style=TableStyle(style),
        spaceAfter=after,
        hAlign="LEFT",
        splitInRow=split,  # a text may be longer than a page, a picture keeps its own
    )
