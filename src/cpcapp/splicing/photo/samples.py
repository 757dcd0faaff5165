"""Photos with a name: samples with a mask, which all data sets return, and sources of splices."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.files import advise_unread, find_images, image_files
from cpcapp.splicing.photo.jpeg import JpegCoefficients
from cpcapp.splicing.photo.read import ReadImage, read_image


@dataclass(frozen=True)
class Sample:
    """A photo with its ground truth. Image and mask are read when asked for and not kept.

    Attributes
    ----------
    name : str
        Unique in its data set.
    authentic : bool
        Whether nothing was pasted into the photo.
    read_image : callable
        Returns the pixels, (height, width, 3), uint8 or uint16. A module's function or a
        `functools.partial` of one, so that samples can be sent to other processes.
    read_mask : callable, optional
        Returns the pasted part, (height, width), bool. None for an authentic photo.
    read_photo : callable, optional
        Returns the photo with what its file says of it, such as tables of JPEG.
    read_coefficients : callable, optional
        Returns the coefficients of the photo's JPEG file, or None if the file is no JPEG. None if
        there is no file.
    """

    name: str
    authentic: bool
    read_image: Callable[[], NDArray[np.uint8] | NDArray[np.uint16]] = field(repr=False)
    read_mask: Callable[[], NDArray[np.bool_]] | None = field(default=None, repr=False)
    read_coefficients: Callable[[], JpegCoefficients | None] | None = field(
        default=None, repr=False
    )
    read_photo: Callable[[], ReadImage] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.authentic != (self.read_mask is None):
            raise ValueError(
                f"sample {self.name!r}: an authentic photo has no mask, a spliced one has to "
                f"(authentic={self.authentic})"
            )

    @classmethod
    def of_photo(
        cls,
        name: str,
        read_photo: Callable[[], ReadImage],
        read_mask: Callable[[], NDArray[np.bool_]] | None = None,
        read_coefficients: Callable[[], JpegCoefficients | None] | None = None,
    ) -> Sample:
        """Return the sample of a photo that is read with what its file says."""
        read_pixels = partial(_pixels, read_photo)
        return cls(name, read_mask is None, read_pixels, read_mask, read_coefficients, read_photo)

    @property
    def photo(self) -> ReadImage:
        """The photo, with what its file says of it."""
        return read_image(self.read_image()) if self.read_photo is None else self.read_photo()

    @property
    def image(self) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """The pixels, (height, width, 3)."""
        return self.read_image()

    @property
    def mask(self) -> NDArray[np.bool_]:
        """The pasted part, (height, width), bool; all False for an authentic photo.

        The size of an authentic photo is found by reading it. `read` returns image and mask and
        reads the photo once.
        """
        return self.read()[1] if self.read_mask is None else self.read_mask()

    @property
    def coefficients(self) -> JpegCoefficients | None:
        """The coefficients of the JPEG file; None if there is no file or it is no JPEG."""
        return None if self.read_coefficients is None else self.read_coefficients()

    def read(self) -> tuple[NDArray[np.uint8] | NDArray[np.uint16], NDArray[np.bool_]]:
        """Return image and mask, reading the photo once."""
        image = self.read_image()
        if self.read_mask is None:
            return image, np.zeros(image.shape[:2], dtype=bool)
        return image, self.read_mask()


def _pixels(read_photo: Callable[[], ReadImage]) -> NDArray[np.uint8] | NDArray[np.uint16]:
    return read_photo().pixels


@dataclass(frozen=True)
class Problem:
    """A file of a data set that is missing, damaged or unreliable, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


_Item = TypeVar("_Item")


def choose_evenly(items: Sequence[_Item], n: int | None) -> tuple[_Item, ...]:
    """Return ``n`` of some items, spread evenly over them; all if there are no more, or for None.

    Examples
    --------
    >>> choose_evenly(range(10), 4)
    (0, 2, 5, 7)
    """
    n = len(items) if n is None else min(n, len(items))
    return tuple(items[i * len(items) // n] for i in range(n))


@dataclass(frozen=True)
class SampleSet(Sequence[Sample]):
    """The photos of a data set, and the files that could not be used.

    Attributes
    ----------
    name : str
    samples : tuple of Sample
    problems : tuple of Problem
        What was left out when the data set was opened, and why.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> grey = Sample("grey", True, partial(np.full, (4, 6, 3), 128, np.uint8))
    >>> photos = SampleSet("mine", (grey,))
    >>> len(photos), photos[0].image.shape, bool(photos[0].mask.any())
    (1, (4, 6, 3), False)
    """

    name: str
    samples: tuple[Sample, ...]
    problems: tuple[Problem, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> SampleSet: ...
    def __getitem__(self, index: int | slice) -> Sample | SampleSet:
        if isinstance(index, slice):
            return SampleSet(self.name, self.samples[index], self.problems)
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    @property
    def spliced(self) -> SampleSet:
        """The spliced photos only."""
        kept = tuple(s for s in self.samples if not s.authentic)
        return SampleSet(self.name, kept, self.problems)

    def limit(self, n: int | None) -> SampleSet:
        """Return ``n`` spliced and ``n`` authentic photos, spread over the set; None for all."""
        kept = choose_evenly(self.spliced.samples, n) + choose_evenly(self.authentic.samples, n)
        return SampleSet(self.name, kept, self.problems)

    @property
    def authentic(self) -> SampleSet:
        """The authentic photos only."""
        kept = tuple(s for s in self.samples if s.authentic)
        return SampleSet(self.name, kept, self.problems)


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
    reason = "is of a kind that is not read; {}"
    return [
        Problem(file.name, reason.format(advise_unread([file]).format(them="it")))
        for file in unread
    ]
