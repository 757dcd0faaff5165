"""What ``cpcapp localize`` leaves in its folder: names, checks, and the summary of it all."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cpcapp._files import atomic_write

SUMMARY = "summary.csv"

_PICTURES = (".overlay.png", ".boundary.png", ".region.png", ".hot_spots.png")
# Only a model that tells has them.
_MASKS = ("region", "hot_spots")
_COLUMNS: Final = (
    "file",
    "width",
    "height",
    "verdict",
    "score",
    "p_value",
    "region_share",
    "hot_spots_share",
    "share_above_threshold",
    "row",
    "column",
    "strength",
    "box_top",
    "box_left",
    "box_height",
    "box_width",
    "seconds",
    "notes",
    "overlay",
    "boundary",
    "region",
    "hot_spots",
    "error",
)
_ENTRY = {"file", "sha256", "model", "overlay", "boundary"}
_PNG_START, _PNG_END = b"\x89PNG\r\n\x1a\n", b"\0\0\0\0IEND\xaeB`\x82"
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Target:
    """A photo, and the files that its result goes to."""

    photo: Path
    folder: Path
    name: str

    @property
    def overlay(self) -> Path:
        """The photo with the map on it."""
        return self.folder / (self.name + _PICTURES[0])

    @property
    def boundary(self) -> Path:
        """The map alone."""
        return self.folder / (self.name + _PICTURES[1])

    @property
    def region(self) -> Path:
        """The part that came from elsewhere, white; only where the model tells."""
        return self.folder / (self.name + _PICTURES[2])

    @property
    def hot_spots(self) -> Path:
        """Where the seam stands out, white; only where the model tells."""
        return self.folder / (self.name + _PICTURES[3])

    @property
    def entry(self) -> Path:
        """What was found, in JSON."""
        return self.folder / (self.name + ".json")

    @property
    def outputs(self) -> tuple[Path, ...]:
        """All of them."""
        return self.overlay, self.boundary, self.region, self.hot_spots, self.entry


@dataclass(frozen=True)
class Result:
    """What became of a photo: the entry of its JSON file, or an error."""

    target: Target
    entry: dict[str, Any] | None = None
    remark: str = ""
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry with paths that can be opened from here."""
        if self.entry is None:
            return {"file": str(self.target.photo), "error": self.error}
        pictures = ["overlay", "boundary", *(mask for mask in _MASKS if self.entry.get(mask))]
        return {**self.entry, **{name: str(getattr(self.target, name)) for name in pictures}}


def name_targets(photos: Iterable[Path], folder: Path) -> list[Target]:
    """Name the results of photos: after their files, and each name once.

    Photos of the same name get a few digits that follow from the whole path: the same in every
    run that has both, in whatever order. Case does not tell names apart, as on some systems.

    Examples
    --------
    >>> photos = [Path("/a/cat.jpg"), Path("/b/Cat.png"), Path("/b/dog.jpg")]
    >>> [target.name for target in name_targets(photos, Path("out"))]
    ['cat-b229594b', 'Cat-9a584c93', 'dog']
    """
    photos = list(photos)
    names = [photo.stem for photo in photos]
    for digits in (8, 64):
        often = Counter(name.casefold() for name in names)
        for i, photo in enumerate(photos):
            too_long = len(names[i].encode(errors="replace")) > _LONGEST_NAME
            if often[names[i].casefold()] > 1 or too_long:
                path = str(photo.resolve()).encode(errors="surrogateescape")
                code = hashlib.sha256(path).hexdigest()[:digits]
                names[i] = f"{photo.stem[:30] if too_long else photo.stem}-{code}"
    return [Target(photo, folder, name) for photo, name in zip(photos, names, strict=True)]


def digest(photo: Path) -> str:
    """Return the SHA-256 of a file; nothing if it can't be read, which the reader explains."""
    # A pipe would keep us waiting.
    if not photo.is_file():
        return ""
    try:
        with photo.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def read_entry(path: Path) -> dict[str, Any] | None:
    """Return the entry in a JSON file; None if there is no such file, or it is not ours."""
    try:
        entry = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return entry if isinstance(entry, dict) and entry.keys() >= _ENTRY else None


def is_picture(path: Path) -> bool:
    """Tell whether a file is a picture that this command made."""
    for suffix in _PICTURES:
        if path.name.endswith(suffix):
            beside = path.with_name(path.name.removesuffix(suffix) + ".json")
            return read_entry(beside) is not None
    return False


def is_summary(path: Path) -> bool:
    """Tell whether a file is a summary that this command made."""
    with path.open("rb") as file:
        return file.readline(1000).startswith(",".join(_COLUMNS[:3]).encode())


def is_whole(target: Target, entry: dict[str, Any]) -> bool:
    """Tell whether the pictures of an entry are there, from their first byte to their last."""
    pictures = [target.overlay, target.boundary]
    pictures += [getattr(target, mask) for mask in _MASKS if entry.get(mask)]
    return all(_is_whole_png(path, entry.get("width"), entry.get("height")) for path in pictures)


def _is_whole_png(path: Path, width: Any, height: Any) -> bool:
    try:
        size = struct.pack(">II", width, height)
        with path.open("rb") as file:
            start = file.read(24)
            file.seek(-len(_PNG_END), 2)
            end = file.read()
    except (OSError, struct.error):
        return False
    return start[:8] == _PNG_START and start[16:] == size and end == _PNG_END


def write_summary(folder: Path, results: Sequence[Result]) -> None:
    """Write a table of all results in a folder, those of earlier runs too, and the failures."""
    failed = {result.target.name: result for result in results if result.entry is None}
    entries = {path.stem: entry for path in folder.glob("*.json") if (entry := read_entry(path))}
    rows: dict[str, dict[str, Any]] = {name: _row(entry) for name, entry in entries.items()}
    rows |= {name: _row(result.to_dict()) for name, result in failed.items()}
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows[name] for name in sorted(rows, key=_as_counted))
    with atomic_write(folder / SUMMARY) as file:
        file.write(text.getvalue().encode(errors="backslashreplace"))


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    row = {name: entry[name] for name in _COLUMNS if entry.get(name) is not None}
    seam = entry.get("seam")
    if isinstance(seam, dict):
        row |= {name: seam.get(name) for name in ("row", "column", "strength")}
        sides = ("box_top", "box_left", "box_height", "box_width")
        row |= dict(zip(sides, seam.get("box", ()), strict=False))
    row["notes"] = "; ".join(map(str, entry.get("notes", ())))
    return row


def _as_counted(name: str) -> list[str | int]:
    parts = re.split(r"(\d+)", name.casefold())
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


def number(value: Any) -> float | None:
    """Return a number with six digits; None for none, and for what JSON has no word for.

    Examples
    --------
    >>> number(2 / 3), number(float("nan")), number(None)
    (0.666667, None, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.6g}")


def printable(path: Any) -> str:
    r"""Return a path in a form that any terminal and pipe takes, on one line.

    Examples
    --------
    >>> print(printable(Path("cat.png")), printable("two\nlines"))
    cat.png 'two\nlines'
    """
    text = str(path)
    text = text if text.isprintable() else ascii(text)
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
