"""The CASIA Tampered Image Detection Evaluation Databases, versions 1.0 and 2.0."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from cpcapp import __version__
from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp._io.threads import map_threads
from cpcapp.splicing.datasets.collector import (
    SampleCollector,
    check_folder,
    list_photos,
    read_photo,
    read_white_mask,
)
from cpcapp.splicing.datasets.difference_masks import MIN_CONFIDENCE, difference_mask
from cpcapp.splicing.photo.pixels import BoolArray
from cpcapp.splicing.photo.samples import SampleSet

_AUTHENTIC = re.compile(r"Au_([a-z]{3})_(\d{4,5})", re.IGNORECASE)
_TAMPERED = re.compile(
    r"(Tp|Sp)_([DS])_(?:[A-Z]+_)+([a-z]{3}\d{4,5})_([a-z]{3}\d{4,5})_\d+", re.IGNORECASE
)
_PREFIX = {1: "sp", 2: "tp"}
_DIGITS = {1: 4, 2: 5}
_RECORD = "masks.json"
# Good enough not to look at the second source at all. Chosen by hand.
_NO_DOUBT = 0.9
Version = Literal[1, 2, "auto"]


def casia(
    folder: str | os.PathLike[str],
    *,
    version: Version = "auto",
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
    if not 0.0 <= min_confidence <= 1.0:
        raise ValueError(f"min_confidence={min_confidence} must lie between 0 and 1")
    folder = check_folder(folder)
    photos = _scan(folder, version, kinds)
    rated: Iterable[_Mask | None]
    if masks is None:
        rated = map_threads(_rate_mask, photos.forgeries, jobs=jobs, progress=progress)
    else:
        kept = _read_masks(check_folder(masks))
        rated = (kept.get(forgery.name.casefold()) for forgery in photos.forgeries)
    collected = SampleCollector()
    for forgery, mask in zip(photos.forgeries, rated, strict=True):
        if mask is None:
            collected.problem(forgery.name, "the folder of masks has none for it")
        elif mask.file is not None and mask.confidence >= min_confidence:
            read = partial(read_white_mask, mask.file)
            collected.spliced(forgery.name, forgery.path, read, mask.file)
        elif mask.host is not None and mask.confidence >= min_confidence:
            read = partial(_mask_from_host, forgery.path, mask.host)
            collected.spliced(forgery.name, forgery.path, read)
        else:
            collected.problem(forgery.name, mask.why_not())
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
            masks.json                                     confidence, host and reason of each

    All masks are written, also those that can't be trusted: `casia` leaves them out by their
    confidence. A run that was stopped goes on where it was; masks that an earlier version of
    cpcapp made are made again.
    """
    folder, output = check_folder(folder), Path(output)
    forgeries = _scan(folder, version, kinds).forgeries
    output.mkdir(parents=True, exist_ok=True)
    remove_leftovers(output)
    record = _read_record(output)
    entries = record["masks"] if record and record.get("made_by") == __version__ else {}
    missing = [
        forgery
        for forgery in forgeries
        # What had no host may have one now.
        if entries.get(forgery.name, {"host": None})["host"] is None
        or not _mask_file(output, forgery.name).is_file()
    ]
    work = partial(_write_mask, output)
    try:
        made = map_threads(work, missing, jobs=jobs, progress=progress)
        for i, (forgery, entry) in enumerate(zip(missing, made, strict=True), start=1):
            entries[forgery.name] = entry
            if i % 50 == 0:
                _write_record(output, entries)
    finally:
        # An interrupted run goes on from here.
        _write_record(output, entries)
    return casia(folder, version=version, kinds=kinds, masks=output)


# -- what file names say -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Forgery:
    """A tampered photo, the names of its sources, the host first, and those that are there."""

    path: Path
    kind: str
    sources: tuple[str, ...]
    hosts: tuple[Path, ...]

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class _Scan:
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


@dataclass(frozen=True)
class _Mask:
    """How far a mask can be trusted, why no further, and the host or the file that it is from."""

    confidence: float
    reason: str
    host: Path | None = None
    file: Path | None = None

    def why_not(self) -> str:
        if self.host is None and self.file is None:
            return self.reason
        return f"its mask is not trusted (confidence {self.confidence:.2f}): {self.reason}"


def _mask_from_host(photo: Path, host: Path) -> BoolArray:
    return difference_mask(read_photo(photo), read_photo(host)).mask


def _make_mask(forgery: _Forgery) -> tuple[_Mask, BoolArray | None]:
    """Compare a tampered photo with its sources and return the mask that explains it best."""
    best: tuple[_Mask, BoolArray | None] | None = None
    try:
        photo = read_photo(forgery.path)
    except ValueError as error:
        return _Mask(0.0, str(error)), None
    for host in forgery.hosts:
        try:
            change = difference_mask(photo, read_photo(host))
        except ValueError as error:
            made: tuple[_Mask, BoolArray | None] = _Mask(0.0, str(error)), None
        else:
            made = _Mask(change.confidence, change.reason, host), change.mask
        if best is None or made[0].confidence > best[0].confidence:
            best = made
        if best[0].confidence >= _NO_DOUBT:
            break
    return best or (_Mask(0.0, f"its sources are not in Au: {', '.join(forgery.sources)}"), None)


def _rate_mask(forgery: _Forgery) -> _Mask:
    return _make_mask(forgery)[0]


def _write_mask(output: Path, forgery: _Forgery) -> dict[str, Any]:
    """Write a mask, if there is one, and return the entry for the record."""
    made, mask = _make_mask(forgery)
    if mask is not None:
        with atomic_write(_mask_file(output, forgery.name)) as file:
            Image.fromarray(mask.astype(np.uint8) * 255).save(file, format="PNG")
    host = made.host.name if made.host else None
    return {"confidence": round(made.confidence, 4), "host": host, "reason": made.reason}


def _read_masks(folder: Path) -> dict[str, _Mask]:
    """Return the masks in a folder by the names of their photos, in small letters."""
    record = _read_record(folder)
    if record is None:
        return {
            file.stem.casefold().removesuffix("_gt"): _Mask(1.0, "", file=file)
            for file in sorted(folder.rglob("*.png"))
        }
    masks = {}
    for name, entry in record["masks"].items():
        file = _mask_file(folder, name)
        mask = _Mask(float(entry["confidence"]), str(entry["reason"]), file=file)
        if entry["host"] is None:
            mask = _Mask(0.0, str(entry["reason"]))
        elif not file.is_file():
            mask = _Mask(0.0, f"{file} is missing; make the masks again")
        masks[name.casefold()] = mask
    return masks


def _mask_file(folder: Path, name: str) -> Path:
    return folder / f"{name}_gt.png"


def _write_record(folder: Path, entries: dict[str, Any]) -> None:
    record = {"made_by": __version__, "masks": dict(sorted(entries.items()))}
    with atomic_write(folder / _RECORD) as file:
        file.write(json.dumps(record, indent=1).encode())


def _read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of a folder of masks, or None if it has none."""
    path = folder / _RECORD
    if not path.exists():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
        for entry in record["masks"].values():
            float(entry["confidence"]), entry["host"], entry["reason"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a record of masks; remove it and make the masks again"
        ) from error
    return record
