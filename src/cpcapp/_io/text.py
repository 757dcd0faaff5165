"""Paths and numbers as text for terminals, pipes and JSON."""

from __future__ import annotations

import math
import re
import sys
from typing import Any


def printable(path: Any) -> str:
    r"""Return a path on one line, in characters that standard output can show.

    >>> print(printable("cat.png"), printable("two\nlines"))
    cat.png 'two\nlines'
    """
    text = str(path)
    text = text if text.isprintable() else ascii(text)
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def number(value: Any) -> float | None:
    """Return a number with six digits; None for None, NaN and infinity, which JSON does not have.

    >>> number(2 / 3), number(float("nan")), number(None)
    (0.666667, None, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.6g}")


def spreadsheet_text(value: Any) -> Any:
    """Return text that a spreadsheet takes for text; anything else as it is.

    A cell that begins with one of ``= + - @`` would be computed as a formula, also behind a tab or
    the end of a line. An apostrophe before it, which spreadsheets do not show, prevents that.

    >>> spreadsheet_text("=1+1.jpg"), spreadsheet_text("cat.jpg"), spreadsheet_text(-0.5)
    ("'=1+1.jpg", 'cat.jpg', -0.5)
    """
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return f"'{value}"
    return value


def natural_order(name: Any) -> list[str | int]:
    """Return a key that sorts names in natural order: 2 before 10.

    >>> sorted(["10.jpg", "9.JPG", "a.png"], key=natural_order)
    ['9.JPG', '10.jpg', 'a.png']
    """
    parts = re.split(r"(\d+)", str(name).casefold())
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]
