"""Opening plain photos to make splices of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from cpcapp.splicing.photo.files import image_files
from cpcapp.splicing.photo.pixels import as_unit_float
from cpcapp.splicing.photo.samples import SourcePhoto, photos_from, read_pixels


@dataclass(frozen=True)
class BSDSPhoto:
    """A photo of BSDS500 and its annotations, read when asked for.

    The folder is laid out as published::

        images/train/100075.jpg         groundTruth/train/100075.mat
        images/val/...                  groundTruth/val/...
        images/test/...                 groundTruth/test/...
    """

    image_path: Path
    truth_path: Path

    @property
    def name(self) -> str:
        """The photo's number."""
        return self.image_path.stem

    def image(self) -> NDArray[np.float32]:
        """Return the photo, (height, width, 3) float32 RGB in [0, 1]."""
        return as_unit_float(read_pixels(self.image_path))

    def segmentations(self) -> list[NDArray[np.uint16]]:
        """Return the segment number of each pixel, one map for each annotator."""
        return [np.asarray(a["Segmentation"][0, 0], np.uint16) for a in self._annotations()]

    def boundaries(self) -> list[NDArray[np.bool_]]:
        """Return the thin boundaries between segments, one map for each annotator."""
        return [np.asarray(a["Boundaries"][0, 0]) > 0 for a in self._annotations()]

    def _annotations(self) -> list[NDArray[np.void]]:
        try:
            return list(loadmat(self.truth_path)["groundTruth"][0])
        except (MatReadError, ValueError, KeyError, TypeError, NotImplementedError) as error:
            raise OSError(f"{self.truth_path} is not a BSDS500 ground truth: {error}") from error


def bsds_photos(folder: str | Path, splits: Sequence[str]) -> list[BSDSPhoto]:
    """Return the photos of some splits, in the order of their names."""
    folder = Path(folder)
    photos = []
    for split in splits:
        images = folder / "images" / split
        if not images.is_dir():
            raise FileNotFoundError(f"{folder} is not BSDS500: it has no folder images/{split}")
        for image in sorted(images.glob("*.jpg")):
            truth = folder / "groundTruth" / split / f"{image.stem}.mat"
            if not truth.exists():
                raise FileNotFoundError(f"{image} has no ground truth {truth}")
            photos.append(BSDSPhoto(image, truth))
    if not photos:
        raise FileNotFoundError(f"{folder} has no photos in {', '.join(splits)}")
    return photos


def bsds_sources(folder: str | Path, splits: Sequence[str] = ("train", "val")) -> list[SourcePhoto]:
    """Return the photos of BSDS500 with what people outlined in them.

    ``splits``: the test photos are for scoring edges and stay out, unless asked for.
    """
    return [
        SourcePhoto(
            f"{photo.image_path.parent.name}/{photo.name}",
            partial(read_pixels, photo.image_path),
            partial(BSDSPhoto.segmentations, photo),
            photo.image_path,
        )
        for photo in bsds_photos(folder, splits)
    ]


def is_bsds(folder: str | os.PathLike[str]) -> bool:
    """Tell whether a folder is laid out as BSDS500."""
    return (Path(folder) / "groundTruth").is_dir()


def open_sources(
    paths: Sequence[str | os.PathLike[str]], *, outside: str | os.PathLike[str] | None = None
) -> list[SourcePhoto]:
    """Return the photos in some files and folders, to make splices of.

    ``paths``: files, folders or patterns. Of the folder of BSDS500 the training and validation
    photos are taken, with what people outlined in them. A path that is given twice counts once.

    ``outside``: A folder in which no photo may lie, since splices will be written there.
    """
    known = {Path(path).resolve(): os.fspath(path) for path in paths}
    bsds = [path for path in known.values() if is_bsds(path)]
    plain = [path for path in known.values() if path not in bsds]
    sources = [source for path in bsds for source in bsds_sources(path)]
    if plain:
        for file in image_files(plain):
            if outside is not None and file.resolve().is_relative_to(Path(outside).resolve()):
                raise ValueError(f"{file} lies in {outside}; choose another folder for the splices")
        sources += photos_from(plain)
    return sources
