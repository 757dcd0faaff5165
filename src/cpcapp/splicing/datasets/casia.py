"""The CASIA Tampered Image Detection Evaluation Databases, versions 1.0 and 2.0."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from cpcapp._io.threads import map_threads
from cpcapp.splicing.datasets.casia_masks import MadeMask, rate_mask, read_masks, write_masks
from cpcapp.splicing.datasets.casia_names import Forgery, check_kinds, scan
from cpcapp.splicing.datasets.collector import (
    SampleCollector,
    check_folder,
    read_photo,
    read_white_mask,
    why_mask_unfit,
)
from cpcapp.splicing.datasets.difference_masks import MIN_CONFIDENCE, difference_mask
from cpcapp.splicing.photo.pixels import BoolArray
from cpcapp.splicing.photo.samples import SampleSet


def casia(
    folder: str | os.PathLike[str],
    *,
    version: Literal[1, 2, "auto"] = "auto",
    kinds: Sequence[str] = ("D",),
    masks: str | os.PathLike[str] | None = None,
    min_confidence: float = MIN_CONFIDENCE,
    jobs: int = 2,
    progress: Callable[[float], None] | None = None,
) -> SampleSet:
    """Open CASIA, with masks from the difference to the host, for it ships none.

    Version 2.0 has 7491 authentic and 5123 tampered photos, version 1.0 800 and 921, laid out as
    published::

        Au/                                                   version 2.0
            Au_ani_00069.jpg                                  authentic
        Tp/
            Tp_D_CRN_M_N_ani00069_ani00041_10035.tif          tampered

        Au/                                                   version 1.0
            Au_pla_0005.jpg
        Sp/, Tp/Sp/, Tp/CM/ or Modified Tp/Tp/Sp/, ...
            Sp_D_CND_A_pla0005_pla0023_0281.jpg

    A tampered photo's name tells the kind (``D``: parts of different photos, ``S``: of the same
    one), how it was made, the host, the donor and a number. Photos are known by their names and
    may lie in any folder below. Of version 1.0, ``Original Tp`` is passed over if there is
    ``Modified Tp``, which has the corrected names.

    The host should be the first source named. If the photo does not differ from it in a clear
    part, the second is tried, and taken if it explains the photo better.

    ``kinds``: which tampered photos to take. ``"S"`` are copies within one photo: there the pasted
    part comes from the same camera and has been compressed alike, so they are no splices and are
    left out. A name that says ``D`` but has one source twice counts as ``S``.

    ``masks``: A folder of masks: what `make_casia_masks` wrote, or anybody's with the pasted part
    in white in ``NAME_gt.png`` or ``NAME.png``, which are then taken at their word. Without it the
    masks are computed when the data set is opened, to know which can be trusted, and again when
    they are read: about 0.1 s each time.

    The tampered photos that have a mask, then the authentic ones, named by their files without
    suffix.
    """
    _check(kinds, jobs)
    if not 0.0 <= min_confidence <= 1.0:
        raise ValueError(f"min_confidence={min_confidence} must lie between 0 and 1")
    folder = check_folder(folder)
    found = scan(folder, version)
    gathered = SampleCollector()
    wanted = [forgery for forgery in found.forgeries if forgery.kind in kinds]
    if masks is None:
        made: Iterable[MadeMask | None] = map_threads(
            rate_mask, wanted, jobs=jobs, progress=progress
        )
    else:
        kept = read_masks(check_folder(masks))
        made = (kept.get(forgery.name.casefold()) for forgery in wanted)
    for forgery, mask in zip(wanted, made, strict=True):
        _add(gathered, forgery, mask, min_confidence)
    for path, reason in found.unrecognised:
        gathered.problem(path.stem, reason)
    for photo in found.authentic:
        gathered.authentic(photo.stem, photo)
    return gathered.finish(f"casia{found.version}", folder)


def make_casia_masks(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    version: Literal[1, 2, "auto"] = "auto",
    kinds: Sequence[str] = ("D",),
    jobs: int = 2,
    progress: Callable[[float], None] | None = None,
) -> SampleSet:
    """Make the masks of CASIA once and for all, for ``casia(folder, masks=output)``.

    ::

        OUTPUT/
            Tp_D_CRN_M_N_ani00069_ani00041_10035_gt.png    white: pasted
            ...
            masks.json                                     confidence, host and reason of each

    All masks are written, also those that can't be trusted: `casia` leaves them out by their
    confidence. A run that was stopped goes on where it was; masks that an earlier version of
    cpcapp made are made again.
    """
    _check(kinds, jobs)
    folder, output = check_folder(folder), Path(output)
    forgeries = [f for f in scan(folder, version).forgeries if f.kind in kinds]
    write_masks(forgeries, output, jobs=jobs, progress=progress)
    return casia(folder, version=version, kinds=kinds, masks=output)


def _check(kinds: Sequence[str], jobs: int) -> None:
    check_kinds(kinds)
    if jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1")


def _add(
    gathered: SampleCollector, forgery: Forgery, made: MadeMask | None, min_confidence: float
) -> None:
    """Add a tampered photo whose mask is good enough."""
    if made is None:
        gathered.problem(forgery.name, "the folder of masks has none for it")
    elif made.confidence < min_confidence or (made.host is None and made.file is None):
        gathered.problem(forgery.name, made.why_not())
    elif made.host is not None:
        read = partial(_mask_from_host, forgery.path, made.host)
        gathered.spliced(forgery.name, forgery.path, read)
    elif made.file is not None:
        reason = why_mask_unfit(forgery.path, made.file)
        if reason:
            gathered.problem(forgery.name, reason)
        else:
            read = partial(read_white_mask, made.file)
            gathered.spliced(forgery.name, forgery.path, read)


def _mask_from_host(photo: Path, host: Path) -> BoolArray:
    return difference_mask(read_photo(photo), read_photo(host)).mask
