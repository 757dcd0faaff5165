"""Example photos that come with the package, most of them spliced; README.md has the sources."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.photo.files import SUFFIXES
from cpcapp.splicing.photo.jpeg import JpegCoefficients
from cpcapp.splicing.photo.read import ReadImage, read_coefficients, read_image
from cpcapp.splicing.photo.samples import Sample, SampleSet

__all__ = ["example_photos"]


def example_photos() -> SampleSet:
    """Return the example photos, with their true masks; the authentic one comes last.

    Returns
    -------
    SampleSet

    Examples
    --------
    >>> for photo in example_photos():
    ...     print(photo.name, photo.image.shape, f"{photo.mask.mean():.0%} pasted")
    cat-with-helmet.png (300, 451, 3) 24% pasted
    cup-in-the-sky.png (427, 640, 3) 6% pasted
    shuttle-on-table.jpg (400, 600, 3) 7% pasted
    astronaut.jpg (512, 512, 3) 0% pasted
    """
    folder = files(__name__)
    photos = []
    for name in sorted(file.name for file in folder.iterdir()):
        if PurePath(name).suffix in SUFFIXES:
            mask = f"masks/{PurePath(name).stem}.png"
            spliced = folder.joinpath(mask).is_file()
            read_mask = partial(_read_mask, mask) if spliced else None
            readers = (partial(_read_photo, name), read_mask, partial(_read_coefficients, name))
            photos.append(Sample.of_photo(name, *readers))
    return SampleSet("examples", tuple(sorted(photos, key=lambda photo: photo.authentic)))


def read_example(name: str) -> bytes:
    """Return the file of an example photo.

    >>> read_example("astronaut.jpg")[:2].hex()
    'ffd8'
    """
    return files(__name__).joinpath(name).read_bytes()


def _read_photo(name: str) -> ReadImage:
    return read_image(read_example(name))


def _read_coefficients(name: str) -> JpegCoefficients | None:
    return read_coefficients(read_example(name))


def _read_mask(name: str) -> NDArray[np.bool_]:
    return np.asarray(_read_photo(name).pixels[..., 0] >= 128)
