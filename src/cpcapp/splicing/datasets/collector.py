"""What all loaders share: finding files, checking them, collecting samples and problems."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from cpcapp.splicing.photo.files import image_files
from cpcapp.splicing.photo.pixels import BoolArray, Pixels
from cpcapp.splicing.photo.read import ImageError, ReadImage, read_coefficients, read_image
from cpcapp.splicing.photo.samples import Problem, Sample, SampleSet, find_unread

# Of Exif: the tag, and its values for a photo that has to be turned by 90 degrees.
_ORIENTATION = 274
_LYING = (5, 6, 7, 8)


def read_samples(
    samples: Iterable[Sample], problems: list[Problem]
) -> Iterator[tuple[Sample, Pixels, BoolArray]]:
    """Read samples one by one and go on past those that can't be used.

    Opening a data set finds what is missing; that a file is damaged shows only when it is read.

    ``problems``: what can't be used is appended: files that can't be read, masks of another size
    than their photo, and masks without a seam, all pasted or nothing.
    """
    for sample in samples:
        try:
            photo, mask = read_with_mask(sample)
        except (OSError, ValueError) as error:
            problems.append(Problem(sample.name, str(error)))
        else:
            yield sample, photo.pixels, mask


def read_with_mask(sample: Sample) -> tuple[ReadImage, BoolArray]:
    """Return a photo, with what its file says, and its mask; a ValueError if they are no use."""
    photo = sample.photo
    shape = photo.pixels.shape[:2]
    if sample.read_mask is None:
        return photo, np.zeros(shape, dtype=bool)
    mask = sample.read_mask()
    if mask.shape != shape:
        raise ValueError(_size_mismatch(mask.shape[::-1], shape[::-1]))
    if not mask.any():
        raise ValueError("its mask marks nothing as pasted")
    if mask.all():
        raise ValueError("its mask marks everything as pasted, so there is no seam")
    return photo, mask


class SampleCollector:
    """The samples and problems of a data set while it is being opened."""

    def __init__(self) -> None:
        self.samples: dict[str, Sample] = {}
        self.problems: list[Problem] = []

    def authentic(self, name: str, photo: Path) -> None:
        """Add a photo that nothing was pasted into."""
        self._add(name, photo, None)

    def spliced(
        self, name: str, photo: Path, read_mask: Callable[[], BoolArray], *mask_files: Path
    ) -> None:
        """Add a photo with a mask, if the files of the mask have the size of the photo."""
        for file in mask_files:
            try:
                has, wants = _read_size(file), _read_size(photo)
            except ImageError as error:
                self.problem(name, str(error))
                return
            if has != wants:
                self.problem(name, _size_mismatch(has, wants))
                return
        self._add(name, photo, read_mask)

    def problem(self, name: str, reason: str) -> None:
        """Leave a photo out."""
        self.problems.append(Problem(name, reason))

    def finish(self, name: str, folder: Path, *, recursive: bool = True) -> SampleSet:
        """Return the data set; images of kinds that are not read are problems."""
        self.problems += find_unread([folder], recursive=recursive)
        if not self.samples and not self.problems:
            raise FileNotFoundError(f"{folder} holds no photos")
        return SampleSet(name, tuple(self.samples.values()), tuple(self.problems))

    def _add(self, name: str, photo: Path, read_mask: Callable[[], BoolArray] | None) -> None:
        if name in self.samples:
            self.problem(name, f"{photo} has the same name as another photo; rename one of them")
            return
        readers = (partial(read_image, photo), read_mask, partial(read_coefficients, photo))
        self.samples[name] = Sample.of_photo(name, *readers)


def read_photo(path: Path) -> Pixels:
    """Return the pixels of a file, (height, width, 3)."""
    return read_image(path).pixels


def read_white_mask(path: Path) -> BoolArray:
    """Return a mask whose file shows the pasted part in white."""
    return is_white(read_photo(path))


def is_white(pixels: Pixels) -> BoolArray:
    """Return where any channel lies in the upper half of the range."""
    return np.asarray(pixels.max(axis=2) > np.iinfo(pixels.dtype).max // 2)


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder that exists."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; check the path")
    return folder


def list_photos(folder: Path, *, recursive: bool = False) -> list[Path]:
    """Return the image files of a folder; none if there is no such folder."""
    try:
        return image_files(folder, recursive=recursive)
    except FileNotFoundError:
        return []


def index_by_stem(files: Iterable[Path]) -> dict[str, Path]:
    """Return files by their name without suffix, in small letters; the first of several."""
    indexed: dict[str, Path] = {}
    for file in files:
        indexed.setdefault(file.stem.casefold(), file)
    return indexed


def _size_mismatch(mask: Sequence[int], photo: Sequence[int]) -> str:
    return f"its mask has {mask[0]} × {mask[1]} pixels, the photo {photo[0]} × {photo[1]}"


def _read_size(path: Path) -> tuple[int, int]:
    """Return the width and height that a file will have when read, that is, upright."""
    if not path.is_file():
        raise ImageError(f"{path} is missing")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=("JPEG", "PNG", "TIFF", "WEBP", "BMP")) as image:
                width, height = image.size
                # Of a PNG, Pillow would decode everything to look for it.
                turned = image.format != "PNG" and image.getexif().get(_ORIENTATION) in _LYING
    # Decoders answer bad bytes with nearly every exception there is.
    except Exception as error:
        raise ImageError(f"{path} is damaged or not an image") from error
    return (height, width) if turned else (width, height)
