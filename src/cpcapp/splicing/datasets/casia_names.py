"""What the file names of CASIA say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cpcapp.splicing.datasets.collector import list_photos

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
