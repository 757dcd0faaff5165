"""Photos to make splices from, read when they are needed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.file_search import explain_unread, find_images
from cpcapp.splicing.photo.read import ReadImage, image_files, read_image
from cpcapp.splicing.photo.samples import Problem


@dataclass(frozen=True)
class SourcePhoto:
    """A photo to make splices from, read when asked for.

    Attributes
    ----------
    name : str
        Unique among the photos that are used together.
    read : callable
        Returns the pixels, (height, width, 3), uint8 or uint16. A module's function or a
        `functools.partial` of one, so that it can be sent to other processes.
    segments : callable, optional
        Returns a list of segmentations, each (height, width), int.
    file : Path, optional
        Which the pixels are read from. It also says how they were compressed.
    """

    name: str
    read: Callable[[], NDArray[np.uint8] | NDArray[np.uint16]] = field(repr=False)
    segments: Callable[[], Sequence[NDArray[np.integer]]] | None = field(default=None, repr=False)
    file: Path | None = field(default=None, repr=False)

    def as_it_is(self) -> ReadImage:
        """Return the photo with what its file says of it."""
        return read_image(self.read() if self.file is None else self.file)


def photos_from(paths: Sequence[str | Path]) -> list[SourcePhoto]:
    """Return the photos in some files and folders.

    >>> import pathlib, tempfile, cv2, numpy as np
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> cv2.imwrite(str(folder / "grey.png"), np.full((40, 50, 3), 128, np.uint8))
    True
    >>> photo, = photos_from([folder])
    >>> photo.name, photo.read().shape
    ('grey.png', (40, 50, 3))
    """
    files = image_files(paths)
    known = Counter(file.name for file in files)
    return [
        SourcePhoto(
            file.name if known[file.name] == 1 else file.as_posix(),
            partial(read_pixels, file),
            file=file,
        )
        for file in files
    ]


def read_pixels(path: Path) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return the pixels of an image file, (height, width, 3)."""
    return read_image(path).pixels


def find_unread(
    paths: Sequence[str | os.PathLike[str]], *, recursive: bool = False
) -> list[Problem]:
    """Name the images in some files and folders that are of kinds that are not read.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "holiday.gif").touch()
    >>> print(find_unread([folder])[0])
    holiday.gif: is of a kind that is not read; save it as JPEG or PNG
    """
    unread: list[Path] = []
    for path in paths:
        try:
            unread += find_images(path, recursive=recursive).unreadable
        except FileNotFoundError:
            continue
    reasons = ((file.name, explain_unread([file])) for file in unread)
    return [Problem(name, reason.removeprefix(f"{name} ")) for name, reason in reasons]
