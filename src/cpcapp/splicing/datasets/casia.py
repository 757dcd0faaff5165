"""The CASIA Tampered Image Detection Evaluation Databases, versions 1.0 and 2.0."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp._io.threads import map_threads
from cpcapp.splicing.datasets.collector import (
    SampleCollector,
    check_folder,
    index_by_stem,
    list_photos,
    read_photo,
    read_white_mask,
)
from cpcapp.splicing.datasets.difference_masks import DifferenceMask, difference_mask
from cpcapp.splicing.photo.pixels import BoolArray
from cpcapp.splicing.photo.samples import SampleSet

_AUTHENTIC = re.compile(r"Au_([a-z]{3})_(\d{4,5})", re.IGNORECASE)
_TAMPERED = re.compile(
    r"(Tp|Sp)_([DS])_(?:[A-Z]+_)+([a-z]{3}\d{4,5})_([a-z]{3}\d{4,5})_\d+", re.IGNORECASE
)
_PREFIX = {1: "sp", 2: "tp"}
_DIGITS = {1: 4, 2: 5}
# Good enough not to look at the second source at all. Chosen by hand.
_NO_DOUBT = 0.9
Version = Literal[1, 2, "auto"]


def casia(
    folder: str | os.PathLike[str],
    *,
    version: Version = "auto",
    kinds: Sequence[str] = ("D",),
    masks: str | os.PathLike[str] | None = None,
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
    folder = check_folder(folder)
    photos = _scan(folder, version, kinds)
    collected = SampleCollector()
    if masks is None:
        made = map_threads(_make_mask, photos.forgeries, jobs=jobs, progress=progress)
        for forgery, mask in zip(photos.forgeries, made, strict=True):
            if mask.host is None or mask.problem:
                collected.problem(forgery.name, mask.problem)
            else:
                read = partial(_mask_from_host, forgery.path, mask.host)
                collected.spliced(forgery.name, forgery.path, read)
    else:
        known = _find_masks(check_folder(masks))
        for forgery in photos.forgeries:
            file = known.get(forgery.name.casefold())
            if file is None:
                collected.problem(forgery.name, "the folder of masks has none for it")
            else:
                read = partial(read_white_mask, file)
                collected.spliced(forgery.name, forgery.path, read, file)
    for path in photos.unrecognised:
        collected.problem(path.stem, f"{path.name} does not name two sources as CASIA does")
    for path in photos.authentic:
        collected.authentic(path.stem, path)
    return collected.finish(f"casia{photos.version}", folder)


def make_casia_masks(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    version: Version = "auto",
    kinds: Sequence[str] = ("D",),
    jobs: int = 2,
    progress: Callable[[float], None] | None = None,
) -> SampleSet:
    """Make the masks of CASIA once and for all, for ``casia(folder, masks=output)``.

    ::

        OUTPUT/
            Tp_D_CRN_M_N_ani00069_ani00041_10035_gt.png    white: pasted
            ...

    Masks that can't be trusted are not written, but named in ``problems``. A run that was stopped
    goes on where it was.
    """
    folder, output = check_folder(folder), Path(output)
    photos = _scan(folder, version, kinds)
    output.mkdir(parents=True, exist_ok=True)
    remove_leftovers(output)
    missing = [one for one in photos.forgeries if not _mask_file(output, one).is_file()]
    made = map_threads(partial(_write_mask, output), missing, jobs=jobs, progress=progress)
    reasons = {one.name: reason for one, reason in zip(missing, made, strict=True)}
    opened = casia(folder, version=version, kinds=kinds, masks=output)
    problems = (replace(p, reason=reasons.get(p.name, p.reason)) for p in opened.problems)
    return replace(opened, problems=tuple(problems))


# -- what file names say -----------------------------------------------------------------------


class _Forgery(NamedTuple):
    """A tampered photo, the names of its sources, the host first, and those that are there."""

    path: Path
    kind: str
    sources: tuple[str, ...]
    hosts: tuple[Path, ...]

    @property
    def name(self) -> str:
        return self.path.stem


class _Scan(NamedTuple):
    version: int
    forgeries: list[_Forgery]
    authentic: list[Path]
    unrecognised: list[Path]


def _scan(folder: Path, version: Version, kinds: Sequence[str]) -> _Scan:
    """Return the authentic photos of a version, and the tampered ones of some kinds."""
    if isinstance(kinds, str) or not kinds or not set(kinds) <= {"D", "S"}:
        raise ValueError(f"kinds={kinds!r} must be a sequence of 'D' and 'S', such as ('D',)")
    if version not in (1, 2, "auto"):
        raise ValueError(f"version={version!r} must be 1, 2 or 'auto'")
    # Masks of these names lie about in many copies of the data set.
    files = [
        f for f in list_photos(folder, recursive=True) if not f.stem.casefold().endswith("_gt")
    ]
    above = {f: [part.casefold() for part in f.relative_to(folder).parts[:-1]] for f in files}
    if any("modified tp" in place for place in above.values()):
        files = [file for file in files if "original tp" not in above[file]]
    if version == "auto":
        version = _detect_version(files, folder)
    authentic: dict[str, Path] = {}
    for file in files:
        match = _AUTHENTIC.fullmatch(file.stem)
        if match and len(match[2]) == _DIGITS[version]:
            authentic.setdefault((match[1] + match[2]).casefold(), file)
    forgeries, unrecognised = [], []
    for file in files:
        match = _TAMPERED.fullmatch(file.stem)
        if match and match[1].casefold() == _PREFIX[version]:
            sources = tuple(dict.fromkeys((match[3].casefold(), match[4].casefold())))
            kind = "S" if len(sources) == 1 else match[2].upper()
            hosts = tuple(authentic[source] for source in sources if source in authentic)
            forgeries.append(_Forgery(file, kind, sources, hosts))
        elif not match and file.stem.casefold().startswith(f"{_PREFIX[version]}_"):
            unrecognised.append(file)
    if not forgeries and not authentic:
        raise FileNotFoundError(f"{folder} holds no photos of CASIA {version}.0")
    wanted = [forgery for forgery in forgeries if forgery.kind in kinds]
    return _Scan(version, wanted, list(authentic.values()), unrecognised)


def _detect_version(files: list[Path], folder: Path) -> Literal[1, 2]:
    matches = (_TAMPERED.fullmatch(file.stem) for file in files)
    prefixes = {match[1].casefold() for match in matches if match}
    if prefixes == {"sp", "tp"}:
        raise ValueError(f"{folder} holds both versions of CASIA: give version=1 or version=2")
    if prefixes:
        return 1 if "sp" in prefixes else 2
    authentic = [match for file in files if (match := _AUTHENTIC.fullmatch(file.stem))]
    return 1 if authentic and all(len(match[2]) == _DIGITS[1] for match in authentic) else 2


# -- masks -------------------------------------------------------------------------------------


class _Made(NamedTuple):
    """The mask that explains a tampered photo best, its host, and why it can't be trusted."""

    host: Path | None
    change: DifferenceMask | None
    problem: str


def _make_mask(forgery: _Forgery) -> _Made:
    """Compare a tampered photo with its sources."""
    try:
        photo = read_photo(forgery.path)
    except ValueError as error:
        return _Made(None, None, str(error))
    problem = f"its sources are not in Au: {', '.join(forgery.sources)}"
    best: tuple[Path, DifferenceMask] | None = None
    for number, host in enumerate(forgery.hosts):
        try:
            change = difference_mask(photo, read_photo(host))
        except ValueError as error:
            problem = problem if number else str(error)
            continue
        if best is None or change.confidence > best[1].confidence:
            best = host, change
        if change.confidence >= _NO_DOUBT:
            break
    if best is None:
        return _Made(None, None, problem)
    doubt = f"its mask is not trusted (confidence {best[1].confidence:.2f}): {best[1].reason}"
    return _Made(*best, "" if best[1].trusted else doubt)


def _mask_from_host(photo: Path, host: Path) -> BoolArray:
    return difference_mask(read_photo(photo), read_photo(host)).mask


def _write_mask(output: Path, forgery: _Forgery) -> str:
    """Write a mask, and return why it is not written if it can't be trusted."""
    made = _make_mask(forgery)
    if made.change is not None and not made.problem:
        with atomic_write(_mask_file(output, forgery)) as file:
            Image.fromarray(made.change.mask.astype(np.uint8) * 255).save(file, format="PNG")
    return made.problem


def _mask_file(folder: Path, forgery: _Forgery) -> Path:
    return folder / f"{forgery.name}_gt.png"


def _find_masks(folder: Path) -> dict[str, Path]:
    """Return the masks in a folder by the names of their photos, in small letters."""
    masks = index_by_stem(sorted(folder.rglob("*.png")))
    return {stem.removesuffix("_gt"): file for stem, file in masks.items()}
