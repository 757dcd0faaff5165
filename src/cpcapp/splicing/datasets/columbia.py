"""Columbia Uncompressed Image Splicing Detection Evaluation Dataset."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from cpcapp.splicing.datasets.collector import (
    SampleCollector,
    check_folder,
    index_by_stem,
    list_photos,
    read_photo,
)
from cpcapp.splicing.photo.pixels import BoolArray, as_bytes
from cpcapp.splicing.photo.samples import SampleSet

# Share of an edge mask's pixels that may be neither red nor green. JPEG makes .3 % at most of them
# along the seam; the three-coloured masks, whose band is blue, have 5 % and more.
_MAX_UNCLEAR = 0.02


def columbia(folder: str | os.PathLike[str]) -> SampleSet:
    """Open Columbia Uncompressed: 180 spliced and 183 authentic photos of four cameras.

    The folder is laid out as published::

        4cam_auth/
            canong3_02_sub_03.tif                       authentic
            ...
        4cam_splc/
            canong3_canonxt_sub_02.tif                  spliced
            ...
            edgemask/
                canong3_canonxt_sub_02_edgemask.jpg     green pasted, red host
                canong3_canonxt_sub_02_edgemask_3.jpg   the seam under blue; not used
                ...

    Photos and masks may be of any kind of image that is read, and a mask may go without its
    ``_edgemask``. `cpcapp.splicing.datasets.columbia.columbia_mask` says how the colours are read.

    The spliced photos, then the authentic ones, named by their files without suffix.
    """
    folder = check_folder(folder)
    spliced, authentic = folder / "4cam_splc", folder / "4cam_auth"
    if not spliced.is_dir() and not authentic.is_dir():
        raise FileNotFoundError(
            f"{folder} is not Columbia Uncompressed: it has neither 4cam_splc nor 4cam_auth"
        )
    collected = SampleCollector()
    masks = index_by_stem(list_photos(spliced / "edgemask"))
    used = set()
    for photo in list_photos(spliced):
        stem = photo.stem.casefold()
        mask = masks.get(f"{stem}_edgemask") or masks.get(stem)
        if mask is None:
            reason = f"edgemask/{stem}_edgemask is missing"
            if f"{stem}_edgemask_3" in masks:
                reason += "; the _edgemask_3 beside it has no seam"
            collected.problem(photo.stem, reason)
            continue
        used.add(mask)
        collected.spliced(photo.stem, photo, partial(_read_mask, mask), mask)
    for stem, mask in masks.items():
        if mask not in used and not stem.endswith("_edgemask_3"):
            collected.problem(mask.stem, "this edge mask has no photo in 4cam_splc")
    for photo in list_photos(authentic):
        collected.authentic(photo.stem, photo)
    for part in (spliced, authentic):
        if not list_photos(part):
            collected.problem(part.name, "the folder is missing or holds no photos")
    return collected.finish("columbia", folder)


def _read_mask(path: Path) -> BoolArray:
    pixels = as_bytes(read_photo(path))
    try:
        return columbia_mask(pixels)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def columbia_mask(pixels: NDArray[np.uint8]) -> BoolArray:
    """Turn an edge mask of Columbia Uncompressed into the pasted part.

    ``NAME_edgemask.jpg`` has four colours: red for the host and green for the pasted part, each
    bright (255) in a band along the seam and darker (200) elsewhere: the seam is where red meets
    green. In ``NAME_edgemask_3.jpg`` the band is blue on both sides, so it is refused.

    The files are JPEGs, hence the colours are mixed along the seam and blocks around it carry
    specks. A pixel counts as red or green only if that channel is at least 96 and twice each of
    the others; all other pixels, at most 2 % of them, go with the nearest that is clear.
    Comparing green with red pixel by pixel instead leaves up to 15 false specks in a photo.
    """
    half = pixels // 2
    red, green, blue = (half[..., c] for c in range(3))
    is_red = (red >= 48) & (red >= pixels[..., 1]) & (red >= pixels[..., 2])
    is_green = (green >= 48) & (green >= pixels[..., 0]) & (green >= pixels[..., 2])
    unclear = ~(is_red | is_green)
    if unclear.mean() > _MAX_UNCLEAR:
        hint = ""
        if (blue > np.maximum(red, green)).mean() > _MAX_UNCLEAR:
            hint = "; in an *_edgemask_3 file the seam is under blue: use NAME_edgemask instead"
        raise ValueError(
            f"not an edge mask of Columbia: {unclear.mean():.1%} of the pixels are neither red "
            f"nor green, at most {_MAX_UNCLEAR:.0%} may be{hint}"
        )
    if not (is_red.any() and is_green.any()):
        missing = "red (the host)" if is_green.any() else "green (the pasted part)"
        raise ValueError(f"not an edge mask of Columbia: nothing of it is {missing}")
    if unclear.any():
        nearest = distance_transform_edt(unclear, return_distances=False, return_indices=True)
        is_green = is_green[tuple(nearest)]
    return np.asarray(is_green)
