"""Paths and numbers as text for terminals, pipes and JSON."""

from __future__ import annotations

import math
import re
import sys
from typing import Any


def printable(path: Any) -> str:
    r"""Return a path on one line, in characters that standard output can show.

    Examples
    --------
    >>> print(printable("cat.png"), printable("two\nlines"))
    cat.png 'two\nlines'
    """
    text = str(path)
    text = text if text.isprintable() else ascii(text)
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def number(value: Any) -> float | None:
    """Return a number with six digits; None for None, NaN and infinity, which JSON does not have.

    Examples
    --------
    >>> number(2 / 3), number(float("nan")), number(None)
    (0.666667, None, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.6g}")


def natural_order(name: Any) -> list[str | int]:
    """Return a key that sorts names in natural order: 2 before 10.

    Examples
    --------
    >>> sorted(["10.jpg", "9.JPG", "a.png"], key=natural_order)
    ['9.JPG', '10.jpg', 'a.png']
    """
    parts = re.split(r"(\d+)", str(name).casefold())
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]
