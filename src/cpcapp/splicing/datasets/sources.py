"""Opening plain photos to make splices of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cpcapp.splicing.datasets.bsds import bsds_sources
from cpcapp.splicing.photo.read import image_files
from cpcapp.splicing.photo.sources import SourcePhoto, photos_from


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
        if outside is not None:
            _check_outside(image_files(plain), Path(outside))
        sources += photos_from(plain)
    return sources


def _check_outside(files: Sequence[Path], folder: Path) -> None:
    for file in files:
        if file.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{file} lies in {folder}; choose another folder for the splices")
