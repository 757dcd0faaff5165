"""Folders of one's own: photos with masks, or photos alone."""

from __future__ import annotations

import os
from functools import partial
from typing import Literal

from cpcapp.splicing.datasets.collector import (
    SampleCollector,
    by_stem,
    checked_folder,
    photos_in,
    read_white_mask,
    unfit,
)
from cpcapp.splicing.photos.samples import SampleSet


def folder_pair(
    folder: str | os.PathLike[str], *, unmasked: Literal["problem", "authentic"] = "problem"
) -> SampleSet:
    """Open photos and masks that lie in two folders under the same names.

    ::

        images/      photo1.jpg    photo2.tif    ...
        masks/       photo1.png    photo2.png    ...    white: pasted, black: not
        authentic/   other.jpg     ...                  optional

    Names are compared without suffix and case. In a mask a pixel counts as pasted if any of its
    channels lies in the upper half of the range, above 127 of 255.

    Parameters
    ----------
    folder : path
        With the folders ``images`` and ``masks``.
    unmasked : {"problem", "authentic"}, default="problem"
        What a photo in ``images`` without a mask is: left out as a problem, since a mask may
        have been forgotten, or authentic.

    Returns
    -------
    SampleSet
        Named like the folder; the photos by their files without suffix, those of
        ``authentic`` as ``authentic/NAME``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for part in ("images", "masks"):
    ...     (folder / part).mkdir()
    >>> Image.new("RGB", (6, 4)).save(folder / "images" / "one.jpg")
    >>> Image.new("L", (6, 4), 255).save(folder / "masks" / "one.png")
    >>> Image.new("RGB", (6, 4)).save(folder / "images" / "two.jpg")
    >>> photos = folder_pair(folder)
    >>> [sample.name for sample in photos], photos[0].mask.shape
    (['one'], (4, 6))
    >>> print(photos.problems[0])
    two: masks/two is missing; photos without one go into authentic/ or need unmasked="authentic"
    """
    if unmasked not in ("problem", "authentic"):
        raise ValueError(f"unmasked={unmasked!r} must be 'problem' or 'authentic'")
    folder = checked_folder(folder)
    for part in ("images", "masks"):
        if not (folder / part).is_dir():
            raise FileNotFoundError(
                f"{folder} has no folder {part}; it needs images/ and masks/ with the same names"
            )
    found = SampleCollector()
    masks = by_stem(photos_in(folder / "masks"))
    used = set()
    for photo in photos_in(folder / "images"):
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
        reason = unfit(photo, mask)
        if reason:
            found.problem(photo.stem, reason)
        else:
            found.spliced(photo.stem, photo, partial(read_white_mask, mask))
    for mask in masks.values():
        if mask not in used:
            found.problem(mask.stem, f"masks/{mask.name} has no photo in images/")
    for photo in photos_in(folder / "authentic"):
        found.authentic(f"authentic/{photo.stem}", photo)
    return found.finish(folder.resolve().name, folder)


def photo_files(folder: str | os.PathLike[str], *, recursive: bool = False) -> SampleSet:
    """Open the photos of a folder as authentic ones.

    Parameters
    ----------
    folder : path
    recursive : bool, default=False
        Whether to take the folders in it too.

    Returns
    -------
    SampleSet
        Named like the folder; the photos by their files, with suffix and below the folder.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> Image.new("RGB", (6, 4)).save(folder / "holiday.png")
    >>> photos = photo_files(folder)
    >>> photos[0].name, photos[0].authentic, photos[0].image.shape
    ('holiday.png', True, (4, 6, 3))
    """
    folder = checked_folder(folder)
    found = SampleCollector()
    for photo in photos_in(folder, recursive=recursive):
        found.authentic(photo.relative_to(folder).as_posix(), photo)
    return found.finish(folder.resolve().name, folder)
