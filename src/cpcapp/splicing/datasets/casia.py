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
    why_mask_unfit,
)
from cpcapp.splicing.datasets.difference_masks import (
    MIN_CONFIDENCE,
    DifferenceMask,
    difference_mask,
)
from cpcapp.splicing.photo.pixels import BoolArray
from cpcapp.splicing.photo.samples import SampleSet

_AUTHENTIC = re.compile(r"Au_([a-z]{3})_(\d{4,5})", re.IGNORECASE)
_TAMPERED = re.compile(
    r"(Tp|Sp)_([DS])_(?:[A-Z]+_)+([a-z]{3}\d{4,5})_([a-z]{3}\d{4,5})_\d+", re.IGNORECASE
)
_PREFIX = {1: "sp", 2: "tp"}
_DIGITS = {1: 4, 2: 5}


@dataclass(frozen=True)
class Forgery:
    """A tampered photo.

    Attributes
    ----------
    name : str
    path : Path
    kind : {"D", "S"}
        Whether the parts come from different photos or the same one.
    sources : tuple of str
        The photos that it was made of, each once, the host first: ``"ani00069"``.
    hosts : tuple of Path
        Those of them that are there.
    """

    name: str
    path: Path
    kind: str
    sources: tuple[str, ...]
    hosts: tuple[Path, ...]


@dataclass(frozen=True)
class Scan:
    """The files of a folder of CASIA; ``unrecognised`` are those whose names say nothing."""

    version: int
    forgeries: list[Forgery]
    authentic: list[Path]
    unrecognised: list[tuple[Path, str]]


def scan(folder: Path, version: Literal[1, 2, "auto"]) -> Scan:
    """Find the photos of a version of CASIA."""
    if version not in (1, 2, "auto"):
        raise ValueError(f"version={version!r} must be 1, 2 or 'auto'")
    # Masks of these names lie about in many copies of the data set.
    files = [
        f for f in list_photos(folder, recursive=True) if not f.stem.casefold().endswith("_gt")
    ]
    files = _drop_originals(files, folder)
    if version == "auto":
        version = _detect_version(files, folder)
    authentic = _find_authentic(files, version)
    forgeries, unrecognised = [], []
    for file in files:
        match = _TAMPERED.fullmatch(file.stem)
        if match and match[1].casefold() == _PREFIX[version]:
            sources = tuple(dict.fromkeys((match[3].casefold(), match[4].casefold())))
            kind = "S" if len(sources) == 1 else match[2].upper()
            hosts = tuple(authentic[source] for source in sources if source in authentic)
            forgeries.append(Forgery(file.stem, file, kind, sources, hosts))
        elif not match and file.stem.casefold().startswith(f"{_PREFIX[version]}_"):
            unrecognised.append((file, f"{file.name} does not name two sources as CASIA does"))
    if not forgeries and not authentic:
        raise FileNotFoundError(f"{folder} holds no photos of CASIA {version}.0")
    return Scan(version, forgeries, list(authentic.values()), unrecognised)


def check_kinds(kinds: Sequence[str]) -> None:
    """Refuse kinds of tampered photos that there are not."""
    if isinstance(kinds, str) or not kinds or not set(kinds) <= {"D", "S"}:
        raise ValueError(f"kinds={kinds!r} must be a sequence of 'D' and 'S', such as ('D',)")


def _drop_originals(files: list[Path], folder: Path) -> list[Path]:
    def lies_in(file: Path, name: str) -> bool:
        return any(p.casefold() == name for p in file.relative_to(folder).parts[:-1])

    if any(lies_in(file, "modified tp") for file in files):
        return [file for file in files if not lies_in(file, "original tp")]
    return files


def _detect_version(files: list[Path], folder: Path) -> Literal[1, 2]:
    matches = (_TAMPERED.fullmatch(file.stem) for file in files)
    prefixes = {match[1].casefold() for match in matches if match}
    if prefixes == {"sp", "tp"}:
        raise ValueError(f"{folder} holds both versions of CASIA: give version=1 or version=2")
    if prefixes:
        return 1 if "sp" in prefixes else 2
    authentic = [match for file in files if (match := _AUTHENTIC.fullmatch(file.stem))]
    return 1 if authentic and all(len(match[2]) == _DIGITS[1] for match in authentic) else 2


def _find_authentic(files: list[Path], version: int) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in files:
        match = _AUTHENTIC.fullmatch(file.stem)
        if match and len(match[2]) == _DIGITS[version]:
            found.setdefault((match[1] + match[2]).casefold(), file)
    return found


_RECORD = "masks.json"
# Good enough not to look at the second source at all. Chosen by hand.
_NO_DOUBT = 0.9


@dataclass(frozen=True)
class MadeMask:
    """What is known of the mask of a tampered photo.

    Attributes
    ----------
    confidence : float
    reason : str
        What keeps the confidence below 1.
    host : Path, optional
        The photo that the tampered one was compared with.
    file : Path, optional
        Where the mask is kept.
    """

    confidence: float
    reason: str
    host: Path | None = None
    file: Path | None = None

    def why_not(self) -> str:
        """Return why the mask is not used."""
        if self.host is None and self.file is None:
            return self.reason
        return f"its mask is not trusted (confidence {self.confidence:.2f}): {self.reason}"


def make_mask(forgery: Forgery) -> tuple[MadeMask, BoolArray | None]:
    """Compare a tampered photo with its sources and return the mask that explains it best."""
    best: tuple[MadeMask, BoolArray | None] | None = None
    try:
        photo = read_photo(forgery.path)
    except ValueError as error:
        return MadeMask(0.0, str(error)), None
    for host in forgery.hosts:
        try:
            found: DifferenceMask = difference_mask(photo, read_photo(host))
        except ValueError as error:
            made: tuple[MadeMask, BoolArray | None] = (MadeMask(0.0, str(error)), None)
        else:
            made = (MadeMask(found.confidence, found.reason, host), found.mask)
        if best is None or made[0].confidence > best[0].confidence:
            best = made
        if best[0].confidence >= _NO_DOUBT:
            break
    if best is None:
        return MadeMask(0.0, f"its sources are not in Au: {', '.join(forgery.sources)}"), None
    return best


def rate_mask(forgery: Forgery) -> MadeMask:
    """Return how far the mask of a tampered photo can be trusted."""
    return make_mask(forgery)[0]


def write_masks(
    forgeries: Sequence[Forgery],
    output: Path,
    *,
    jobs: int,
    progress: Callable[[float], None] | None,
) -> None:
    """Write the masks that a folder does not have yet, and a record of all of them."""
    output.mkdir(parents=True, exist_ok=True)
    remove_leftovers(output)
    record = _read_record(output)
    entries = record["masks"] if record and record.get("made_by") == __version__ else {}
    missing = [
        f for f in forgeries if f.name not in entries or not _is_done(output, f, entries[f.name])
    ]
    try:
        made = map_threads(
            lambda forgery: _write_mask(forgery, output), missing, jobs=jobs, progress=progress
        )
        for i, (forgery, entry) in enumerate(zip(missing, made, strict=True), start=1):
            entries[forgery.name] = entry
            if i % 50 == 0:
                _write_record(output, entries)
    finally:
        # An interrupted run goes on from here.
        _write_record(output, entries)


def read_masks(folder: Path) -> dict[str, MadeMask]:
    """Return the masks in a folder by the names of their photos, in small letters."""
    record = _read_record(folder)
    if record is None:
        return {
            file.stem.casefold().removesuffix("_gt"): MadeMask(1.0, "", file=file)
            for file in sorted(folder.rglob("*.png"))
        }
    masks = {}
    for name, entry in record["masks"].items():
        file = _mask_file(folder, name)
        confidence, reason = float(entry["confidence"]), str(entry["reason"])
        if entry["host"] is None:
            masks[name.casefold()] = MadeMask(0.0, reason)
        elif not file.is_file():
            masks[name.casefold()] = MadeMask(0.0, f"{file} is missing; make the masks again")
        else:
            masks[name.casefold()] = MadeMask(confidence, reason, file=file)
    return masks


def _write_mask(forgery: Forgery, output: Path) -> dict[str, Any]:
    made, mask = make_mask(forgery)
    if mask is not None:
        with atomic_write(_mask_file(output, forgery.name)) as file:
            Image.fromarray(mask.astype(np.uint8) * 255).save(file, format="PNG")
    return {
        "confidence": round(made.confidence, 4),
        "host": made.host.name if made.host else None,
        "reason": made.reason,
    }


def _is_done(folder: Path, forgery: Forgery, entry: dict[str, Any]) -> bool:
    # What had no host may have one now.
    return entry["host"] is not None and _mask_file(folder, forgery.name).is_file()


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
        record = json.loads(path.read_bytes())
        for entry in record["masks"].values():
            float(entry["confidence"]), entry["host"], entry["reason"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a record of masks; remove it and make the masks again"
        ) from error
    assert isinstance(record, dict)
    return record


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
