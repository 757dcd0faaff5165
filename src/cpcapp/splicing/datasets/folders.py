"""Folders of one's own: photos with masks, or photos alone."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Literal

from cpcapp.splicing.datasets.collector import (
    SampleCollector,
    check_folder,
    index_by_stem,
    list_photos,
    read_white_mask,
    why_mask_unfit,
)
from cpcapp.splicing.photo.samples import SampleSet


def folder_pair(
    folder: str | os.PathLike[str], *, unmasked: Literal["problem", "authentic"] = "problem"
) -> SampleSet:
    """Open photos and masks that lie in two folders under the same names.

    ::

        images/      photo1.jpg    photo2.tif    ...    or photos/
        masks/       photo1.png    photo2.png    ...    white: pasted, black: not
        authentic/   other.jpg     ...                  optional

    The photos lie in ``images`` or, where there is no such folder, in ``photos``. Names are
    compared without suffix and case. In a mask a pixel counts as pasted if any of its channels lies
    in the upper half of the range, above 127 of 255.

    ``unmasked``: what a photo without a mask is: left out as a problem, since a mask may have been
    forgotten, or authentic.

    Named like the folder; the photos by their files without suffix, those of ``authentic`` as
    ``authentic/NAME``.
    """
    if unmasked not in ("problem", "authentic"):
        raise ValueError(f"unmasked={unmasked!r} must be 'problem' or 'authentic'")
    folder = check_folder(folder)
    images = _find_images(folder)
    found = SampleCollector()
    masks = index_by_stem(list_photos(folder / "masks"))
    used = set()
    for photo in list_photos(images):
        mask = masks.get(photo.stem.casefold())
        if mask is None:
            if unmasked == "authentic":
                found.authentic(photo.stem, photo)
            else:
                found.problem(
                    photo.stem,
                    f"masks/{photo.stem} is missing; photos without one go into authentic/ or "
                    'need unmasked="authentic"',
                )
            continue
        used.add(mask)
        reason = why_mask_unfit(photo, mask)
        if reason:
            found.problem(photo.stem, reason)
        else:
            found.spliced(photo.stem, photo, partial(read_white_mask, mask))
    for mask in masks.values():
        if mask not in used:
            found.problem(mask.stem, f"masks/{mask.name} has no photo in {images.name}/")
    for photo in list_photos(folder / "authentic"):
        found.authentic(f"authentic/{photo.stem}", photo)
    return found.finish(folder.resolve().name, folder)


def _find_images(folder: Path) -> Path:
    """Return the folder with the photos that the masks belong to."""
    there = [folder / name for name in ("images", "photos") if (folder / name).is_dir()]
    if not there or not (folder / "masks").is_dir():
        missing = "masks" if there else "images"
        raise FileNotFoundError(
            f"{folder} has no folder {missing}; it needs images/ (or photos/) and masks/ with the "
            "same names"
        )
    return there[0]


def photo_files(folder: str | os.PathLike[str], *, recursive: bool = False) -> SampleSet:
    """Open the photos of a folder as authentic ones.

    Named like the folder; the photos by their files, with suffix and below the folder.
    """
    folder = check_folder(folder)
    found = SampleCollector()
    for photo in list_photos(folder, recursive=recursive):
        found.authentic(photo.relative_to(folder).as_posix(), photo)
    return found.finish(folder.resolve().name, folder, recursive=recursive)
