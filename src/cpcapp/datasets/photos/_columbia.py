"""Columbia Uncompressed Image Splicing Detection Evaluation Dataset."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from cpcapp.datasets.photos._gathering import (
    BoolArray,
    Gathering,
    by_stem,
    checked_folder,
    photos_in,
    read_photo,
    unfit,
)
from cpcapp.splicing.masks import columbia_mask
from cpcapp.splicing.samples import SampleSet


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
    ``_edgemask``. `cpcapp.splicing.masks.columbia_mask` says how the colours are read.

    Parameters
    ----------
    folder : path
        With the folders ``4cam_auth`` and ``4cam_splc``.

    Returns
    -------
    SampleSet
        The spliced photos, then the authentic ones, named by their files without suffix.

    References
    ----------
    Y.-F. Hsu and S.-F. Chang, "Detecting image splicing using geometry invariants and camera
    characteristics consistency", ICME 2006.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "4cam_splc" / "edgemask").mkdir(parents=True)
    >>> Image.new("RGB", (6, 4)).save(folder / "4cam_splc" / "a_b_sub_01.tif")
    >>> edgemask = np.zeros((4, 6, 3), dtype=np.uint8)
    >>> edgemask[:, :3, 0], edgemask[:, 3:, 1] = 255, 255
    >>> file = folder / "4cam_splc" / "edgemask" / "a_b_sub_01_edgemask.png"
    >>> Image.fromarray(edgemask).save(file)
    >>> photos = columbia(folder)
    >>> photos[0].name, photos[0].mask[0].astype(int)
    ('a_b_sub_01', array([0, 0, 0, 1, 1, 1]))
    >>> print(photos.problems[0])
    4cam_auth: the folder is missing or holds no photos
    """
    folder = checked_folder(folder)
    spliced, authentic = folder / "4cam_splc", folder / "4cam_auth"
    if not spliced.is_dir() and not authentic.is_dir():
        raise FileNotFoundError(
            f"{folder} is not Columbia Uncompressed: it has neither 4cam_splc nor 4cam_auth"
        )
    found = Gathering()
    masks = by_stem(photos_in(spliced / "edgemask"))
    used = set()
    for photo in photos_in(spliced):
        stem = photo.stem.casefold()
        mask = masks.get(f"{stem}_edgemask") or masks.get(stem)
        if mask is None:
            found.problem(photo.stem, _no_mask(stem, masks))
            continue
        used.add(mask)
        reason = unfit(photo, mask)
        if reason:
            found.problem(photo.stem, reason)
        else:
            found.spliced(photo.stem, photo, partial(_read_mask, mask))
    for stem, mask in masks.items():
        if mask not in used and not stem.endswith("_edgemask_3"):
            found.problem(mask.stem, "this edge mask has no photo in 4cam_splc")
    for photo in photos_in(authentic):
        found.authentic(photo.stem, photo)
    for part in (spliced, authentic):
        if not photos_in(part):
            found.problem(part.name, "the folder is missing or holds no photos")
    return found.finish("columbia", folder)


def _no_mask(stem: str, masks: dict[str, Path]) -> str:
    reason = f"edgemask/{stem}_edgemask is missing"
    if f"{stem}_edgemask_3" in masks:
        reason += "; the _edgemask_3 beside it has no seam"
    return reason


def _read_mask(path: Path) -> BoolArray:
    try:
        return columbia_mask(read_photo(path))  # type: ignore[arg-type]  # checks it itself
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error
