"""Folders of one's own: photos with masks, or photos alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cpcapp.splicing.datasets.casia import casia
from cpcapp.splicing.datasets.collector import (
    SampleCollector,
    check_folder,
    index_by_stem,
    list_photos,
    read_white_mask,
)
from cpcapp.splicing.datasets.columbia import columbia
from cpcapp.splicing.datasets.nimble import nimble
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
    collected = SampleCollector()
    masks = index_by_stem(list_photos(folder / "masks"))
    used = set()
    for photo in list_photos(images):
        mask = masks.get(photo.stem.casefold())
        if mask is None:
            if unmasked == "authentic":
                collected.authentic(photo.stem, photo)
            else:
                collected.problem(
                    photo.stem,
                    f"masks/{photo.stem} is missing; photos without one go into authentic/ or "
                    'need unmasked="authentic"',
                )
            continue
        used.add(mask)
        collected.spliced(photo.stem, photo, partial(read_white_mask, mask), mask)
    for mask in masks.values():
        if mask not in used:
            collected.problem(mask.stem, f"masks/{mask.name} has no photo in {images.name}/")
    for photo in list_photos(folder / "authentic"):
        collected.authentic(f"authentic/{photo.stem}", photo)
    return collected.finish(folder.resolve().name, folder)


def _find_images(folder: Path) -> Path:
    """Return the folder with the photos that the masks belong to."""
    existing = [folder / name for name in ("images", "photos") if (folder / name).is_dir()]
    if not existing or not (folder / "masks").is_dir():
        missing = "masks" if existing else "images"
        raise FileNotFoundError(
            f"{folder} has no folder {missing}; it needs images/ (or photos/) and masks/ with the "
            "same names"
        )
    return existing[0]


def photo_files(folder: str | os.PathLike[str], *, recursive: bool = False) -> SampleSet:
    """Open the photos of a folder as authentic ones.

    Named like the folder; the photos by their files, with suffix and below the folder.
    """
    folder = check_folder(folder)
    collected = SampleCollector()
    for photo in list_photos(folder, recursive=recursive):
        collected.authentic(photo.relative_to(folder).as_posix(), photo)
    return collected.finish(folder.resolve().name, folder, recursive=recursive)


def open_photos(
    folder: str | os.PathLike[str],
    kind: str = "auto",
    *,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> SampleSet:
    """Open a data set, whichever of the known ones it is.

    Parameters
    ----------
    folder : path
    kind : {"auto", "columbia", "casia", "nimble", "pairs", "photos"}, default="auto"
        Which loader to take: `columbia`, `casia`, `nimble`, `folder_pair` or `photo_files`.
        ``"auto"`` decides by the folders that are there::

            columbia    4cam_splc/ or 4cam_auth/
            casia       Au/ and Tp/, Sp/ or Modified Tp/
            nimble      reference/TASK/*-ref.csv
            pairs       images/ or photos/, and masks/
            photos      none of these, but photos

    progress : callable, optional
        Called with the share done, from 0 to 1, while the masks of CASIA are computed; others
        are opened at once.
    **options
        Passed on to the loader, such as ``collection="Nimble-WEB"``.

    Returns
    -------
    SampleSet

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> Image.new("RGB", (6, 4)).save(folder / "holiday.png")
    >>> len(open_photos(folder))
    1
    >>> open_photos(folder, "pictures")
    Traceback (most recent call last):
    ValueError: kind='pictures' must be 'auto', 'columbia', 'casia', 'nimble', 'pairs' or 'photos'
    """
    if kind not in ("auto", *_LAYOUTS):
        *first, last = map(repr, ("auto", *_LAYOUTS))
        raise ValueError(f"kind={kind!r} must be {', '.join(first)} or {last}")
    folder = check_folder(folder)
    if kind == "auto":
        kind = _recognise(folder)
    _, _, load = _LAYOUTS[kind]
    if kind == "casia":
        options["progress"] = progress
    return load(folder, **options)


def _recognise(folder: Path) -> str:
    parts = {part.name.casefold() for part in folder.iterdir() if part.is_dir()}
    for kind, (_, fits, _) in _LAYOUTS.items():
        if fits(folder, parts):
            return kind
    known = "; ".join(f"{kind}: {layout}" for kind, (layout, _, _) in _LAYOUTS.items())
    raise FileNotFoundError(
        f"{folder} has none of the known layouts ({known}); give the folder right above these"
    )


_Layout = tuple[str, Callable[[Path, set[str]], bool], Callable[..., SampleSet]]
_LAYOUTS: dict[str, _Layout] = {
    "columbia": (
        "4cam_splc/ or 4cam_auth/",
        lambda folder, parts: bool(parts & {"4cam_splc", "4cam_auth"}),
        columbia,
    ),
    "casia": (
        "Au/ and Tp/, Sp/ or Modified Tp/",
        lambda folder, parts: "au" in parts and bool(parts & {"tp", "sp", "modified tp"}),
        casia,
    ),
    "nimble": (
        "reference/TASK/*-ref.csv",
        lambda folder, parts: any((folder / "reference").glob("*/*-ref.csv")),
        nimble,
    ),
    "pairs": (
        "images/ or photos/, and masks/",
        lambda folder, parts: "masks" in parts and bool(parts & {"images", "photos"}),
        folder_pair,
    ),
    "photos": ("photos", lambda folder, parts: bool(list_photos(folder)), photo_files),
}
