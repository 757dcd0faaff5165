"""Fonts of a PDF document, and what to do about characters that they lack.

A document has to show file names in any script, on any machine. Fonts of installed packages are
used first, then some that systems have. A character that none of them has is written as its code.
"""

from __future__ import annotations

import os
from functools import cache
from html import escape
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, Final

# The regular and the bold one of each family, the widest coverage first. matplotlib has DejaVu,
# reportlab Vera, which knows western European letters only.
_FAMILIES: Final = (
    ("matplotlib", "mpl-data/fonts/ttf", "DejaVuSans.ttf", "DejaVuSans-Bold.ttf"),
    ("reportlab", "fonts", "Vera.ttf", "VeraBd.ttf"),
)
# Looked for on the system if a character is missing: Linux, Windows, macOS. reportlab embeds
# outlines of TrueType only, which rules out most fonts of Noto for Chinese, Japanese and Korean.
_SYSTEM_FONTS: Final = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "DroidSansFallbackFull.ttf", "wqy-microhei.ttc"),
    *("wqy-zenhei.ttc", "uming.ttc", "unifont.ttf", "NotoSansArabic-Regular.ttf"),
    *("NotoSansHebrew-Regular.ttf", "NotoSansDevanagari-Regular.ttf", "NotoSansThai-Regular.ttf"),
    *("segoeui.ttf", "msyh.ttc", "simsun.ttc", "msgothic.ttc", "malgun.ttf", "Nirmala.ttf"),
    *("arialuni.ttf", "Arial Unicode.ttf", "AppleGothic.ttf"),
)
_SYSTEM_FOLDERS: Final = (
    *("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts"),
    *("C:/Windows/Fonts", "/Library/Fonts", "/System/Library/Fonts", "~/Library/Fonts"),
)


def escape_unprintable(text: str) -> str:
    """Return a text with control characters, and what is no character, as Python writes them."""
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def mark_up(text: str, *, bold: bool = False) -> str:
    """Return a text as reportlab's markup; characters that no font has become their codes."""
    main = main_font(bold)
    parts = []
    for name, run in groupby(text, lambda character: _font_for(character, main)):
        shown = "".join(run)
        shown = escape(_escape(shown) if name is None else shown)
        parts.append(f'<font name="{name}">{shown}</font>' if name not in (None, main) else shown)
    return "".join(parts)


def _escape(text: str) -> str:
    return text.encode("unicode_escape").decode()


@cache
def main_font(bold: bool = False) -> str:
    """Return the name of the font that texts are set in, which it registers."""
    for package, folder, *names in _FAMILIES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue
        registered = _register(Path(spec.origin).parent / folder / names[bold])
        if registered is not None:
            return registered
    return "Helvetica-Bold" if bold else "Helvetica"


def _font_for(character: str, main: str) -> str | None:
    """Return the name of a font that has a character; None if there is none."""
    if not character.isprintable():
        return None
    for fonts in ((main, main_font(False)), None):  # those of the system only where needed
        for name in _system_fonts() if fonts is None else fonts:
            if _has(name, character):
                return name
    return None


def _has(name: str, character: str) -> bool:
    from reportlab.pdfbase import pdfmetrics

    face = pdfmetrics.getFont(name).face
    glyphs: dict[int, int] | None = getattr(face, "charToGlyph", None)
    return character.isascii() if glyphs is None else ord(character) in glyphs


@cache
def _system_fonts() -> tuple[str, ...]:
    files = (
        Path(folder, name)
        for root in _SYSTEM_FOLDERS
        for folder, _, names in os.walk(Path(root).expanduser())
        for name in names
    )
    paths = {path.name: path for path in files}
    wanted = [paths[name] for name in _SYSTEM_FONTS if name in paths]
    return tuple(name for path in wanted if (name := _register(path)) is not None)


@cache
def _register(path: Path) -> str | None:
    """Return the name by which documents know a font; None if it can't be used."""
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFError, TTFont

    name = f"cpcapp-{path.stem}".replace(" ", "-")
    try:
        font: Any = TTFont(name, str(path))
        pdfmetrics.registerFont(font)
    except (TTFError, OSError):
        return None
    return name
