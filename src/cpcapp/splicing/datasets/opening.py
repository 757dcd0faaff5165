"""Opening a data set by what its folder looks like."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cpcapp.splicing.datasets.casia import casia
from cpcapp.splicing.datasets.collector import check_folder, list_photos
from cpcapp.splicing.datasets.columbia import columbia
from cpcapp.splicing.datasets.folders import folder_pair, photo_files
from cpcapp.splicing.datasets.nimble import nimble
from cpcapp.splicing.photo.samples import SampleSet


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
