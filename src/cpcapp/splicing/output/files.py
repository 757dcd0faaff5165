"""Which files the result of a photo goes to."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUMMARY_NAME = "summary.csv"
INDEX_NAME = "index.html"
PICTURE_SUFFIXES = (
    *(".overlay.png", ".boundary.png", ".region.png", ".hot_spots.png"),
    ".thumbnail.jpg",
)

# Bytes. Most file systems allow 255, and up to 16 more are added to a name here.
_MAX_NAME = 200


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

    @property
    def overlay(self) -> Path:
        """The photo with the boundary map on it."""
        return self.folder / (self.name + PICTURE_SUFFIXES[0])

    @property
    def boundary(self) -> Path:
        """The boundary map alone."""
        return self.folder / (self.name + PICTURE_SUFFIXES[1])

    @property
    def region(self) -> Path:
        """The part that may come from elsewhere, white; only of a calibrated model."""
        return self.folder / (self.name + PICTURE_SUFFIXES[2])

    @property
    def hot_spots(self) -> Path:
        """The significant spots, white; only of a calibrated model."""
        return self.folder / (self.name + PICTURE_SUFFIXES[3])

    @property
    def thumbnail(self) -> Path:
        """The overlay, small, for the page of the folder."""
        return self.folder / (self.name + PICTURE_SUFFIXES[4])

    @property
    def report(self) -> Path:
        """The report as a page; only if it was asked for."""
        return self.folder / (self.name + ".report.html")

    @property
    def report_pdf(self) -> Path:
        """The report as PDF; only if it was asked for."""
        return self.folder / (self.name + ".report.pdf")

    @property
    def entry(self) -> Path:
        """Everything else that was found, in JSON."""
        return self.folder / (self.name + ".json")

    @property
    def all(self) -> tuple[Path, ...]:
        """All of them."""
        pictures = (self.overlay, self.boundary, self.region, self.hot_spots, self.thumbnail)
        return *pictures, self.report, self.report_pdf, self.entry


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
