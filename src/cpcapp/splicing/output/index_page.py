"""The page of all results in a folder: a table with thumbnails, which a browser can sort."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from cpcapp._io.files import atomic_write
from cpcapp._io.text import natural_order
from cpcapp.reports import render
from cpcapp.splicing.decide.words import format_p
from cpcapp.splicing.output.files import INDEX_NAME, SUMMARY_NAME, ResultFiles

_GENERATOR: Final = "cpcapp localize"
_MARK: Final = f'<meta name="generator" content="{_GENERATOR}">'.encode()
# Pixels: more than any photo has that is read.
_MAX_SIDE: Final = 10**8
# Thumbnails that a browser without scripts loads, as it loads all at once.
_PICTURES: Final = 300
# The most suspicious first.
_CODES: Final = ("signs", "weak", "unknown", "none")
_WORDS: Final = {
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
    "hot_spots": "hot spots",
    "entry": "JSON",
}


def write_index(folder: Path, entries: Mapping[str, dict[str, Any]]) -> None:
    """Write the page of all results in a folder.

    It holds no picture itself, so that ten thousand photos make a page of some megabytes; a
    browser loads the thumbnails that are seen.
    """
    present = set(os.listdir(folder))  # noqa: PTH208 - names only: a folder may have 100,000
    photos = [_row(folder, name, entry, present) for name, entry in entries.items()]
    rows = sorted(filter(None, photos), key=_suspicion)
    failures = [entry["error"] for entry in entries.values() if entry["error"]]
    page = render(
        "index.html",
        title=f"{_count(len(rows), 'photo')}: {', '.join(_counts(rows)) or 'nothing found'}",
        generator=_GENERATOR,
        counts=list(_counts(rows)),
        rows=rows,
        words=_WORDS,
        n_pictures=_PICTURES,
        failures=failures,
        table=SUMMARY_NAME,
    )
    with atomic_write(folder / INDEX_NAME) as file:
        file.write(page.encode(errors="backslashreplace"))


def is_index(path: Path) -> bool:
    """Tell whether a file is a page that `write_index` wrote."""
    with path.open("rb") as file:
        return _MARK in file.read(1000)


def _row(
    folder: Path, name: str, entry: dict[str, Any], present: set[str]
) -> dict[str, Any] | None:
    if entry["error"]:
        return None
    # Not by the names in the entry: whoever wrote it could send a reader anywhere.
    files = ResultFiles(Path(entry["file"]), folder, name)
    links = [
        (word, _address(path))
        for kind, word in _LINKS.items()
        if (path := getattr(files, kind)).name in present
    ]
    small = files.thumbnail if files.thumbnail.name in present else files.overlay
    code = entry.get("verdict_code")
    p_value = _within(entry.get("p_value"), 1)
    share = _within(entry.get("region_share"), 1) if code in ("signs", "weak") else None
    return {
        "code": code if code in _CODES else "unknown",
        "name": files.photo.name,
        "folder": str(files.photo.parent) if files.photo.parent != Path() else "",
        "verdict": entry.get("verdict") or "",
        "p": p_value,
        "p_text": "" if p_value is None else format_p(p_value),
        "part": None if share is None else round(100 * share, 1),
        "width": _within(entry.get("width"), _MAX_SIDE),
        "height": _within(entry.get("height"), _MAX_SIDE),
        "notes": "; ".join(map(str, entry.get("notes") or ())),
        "small": _address(small),
        "links": links,
        "overlay": _address(files.overlay),
    }


def _within(value: Any, largest: float) -> Any:
    """Return a number of an entry, or None: others may have written it."""
    return value if isinstance(value, int | float) and 0 <= value <= largest else None


def _address(path: Path) -> str:
    # Bytes, as a name need not be text.
    return quote(os.fsencode(path.name), safe="")


def _suspicion(row: dict[str, Any]) -> tuple[Any, ...]:
    p_value = 2.0 if row["p"] is None else row["p"]
    return _CODES.index(row["code"]), p_value, natural_order(row["name"])


def _counts(rows: list[dict[str, Any]]) -> Iterator[str]:
    for code in _CODES:
        if number := sum(row["code"] == code for row in rows):
            yield f"{number:,} {_WORDS[code]}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
