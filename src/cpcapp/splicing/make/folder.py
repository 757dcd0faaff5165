"""A folder of splices: photos, exact masks, and a manifest that says how each was made."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import cv2

from cpcapp import __version__
from cpcapp._io.files import FolderInUseError, atomic_write, make_folder
from cpcapp._io.threads import map_threads
from cpcapp.splicing.datasets.sources import open_sources
from cpcapp.splicing.make.cuts import SpliceOptions
from cpcapp.splicing.make.splices import SpliceMaker, split_readable
from cpcapp.splicing.photo.samples import Problem, find_unread

#: What to do if the folder is not empty.
Existing = Literal["error", "resume", "replace"]
# How each splice was made, by name.
Entries = dict[str, dict[str, Any]]

_MANIFEST: Final = "manifest.json"
_NAME: Final = r"splice\d{5,}"
# Chosen by hand: a run that is killed has at most so much to make again.
_SECONDS_BETWEEN_SAVES: Final = 5.0


@dataclass(frozen=True)
class SpliceFolder:
    """What `make_splices` did.

    Attributes
    ----------
    folder : Path
    n_made : int
        Splices made now.
    n_kept : int
        Splices that were there before.
    n_photos : int
        Photos that splices are made of.
    problems : tuple of Problem
        Photos that could not be used.
    """

    folder: Path
    n_made: int
    n_kept: int
    n_photos: int
    problems: tuple[Problem, ...] = ()


def make_splices(
    photos: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    n: int = 100,
    *,
    options: SpliceOptions | None = None,
    seed: int = 0,
    jobs: int = 2,
    existing: Existing = "error",
    reading_progress: Callable[[float], None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> SpliceFolder:
    """Paste parts of photos into others, and write the results to a folder.

    ::

        images/splice00000.png     or .jpg, the very file, where the splice was compressed
        masks/splice00000.png      white: pasted, black: not
        manifest.json              how each was made

    Parameters
    ----------
    photos : sequence of path
        As for `cpcapp.splicing.datasets.sources.open_sources`; at least two photos.
    folder : path
        Made if it is not there. No photo may lie in it.
    n : int, default=100
        Splices.
    options : SpliceOptions, optional
        What they are like.
    seed : int, default=0
        Photos, options and seed decide the result.
    jobs : int, default=2
        Splices made at the same time.
    existing : {"error", "resume", "replace"}, default="error"
        What to do if the folder is not empty: refuse; make the splices that are missing, for
        which photos, options and seed must be the same; or remove its splices, and nothing else.
    reading_progress, progress : callable, optional
        Called with the share done, from 0 to 1: of the photos, which are checked first, and of the
        splices.

    Returns
    -------
    SpliceFolder

    Raises
    ------
    FolderInUseError
        If the folder is not empty and may not be used as ``existing`` says.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for level in (30, 220):
    ...     Image.new("RGB", (80, 60), (level,) * 3).save(folder / f"{level}.png")
    >>> found = make_splices([folder], folder.with_suffix(".out"), 3)
    >>> found.n_made, found.n_photos
    (3, 2)
    >>> len(list((found.folder / "masks").iterdir()))
    3
    """
    options, folder = options or SpliceOptions(), Path(folder)
    for name, value, lowest in (("n", n, 1), ("seed", seed, 0), ("jobs", jobs, 1)):
        if value < lowest:
            raise ValueError(f"{name}={value} must be at least {lowest}")
    sources = open_sources(photos, outside=folder)
    _check_folder(folder, existing)
    readable, problems = split_readable(sources, jobs=jobs, progress=reading_progress)
    problems += find_unread(photos)
    if len(readable) < 2:
        why = "".join(f"; {problem}" for problem in problems[:3])
        raise ValueError(f"{len(readable)} photos can be read, at least two are needed{why}")
    maker = SpliceMaker(readable, options, seed)
    about = {
        "version": __version__,
        "seed": seed,
        "options": json.loads(json.dumps(asdict(options))),
        "photos": [photo.name for photo in readable],
    }
    for part in ("images", "masks"):
        make_folder(folder / part)
    if existing == "replace":
        _remove_splices(folder)
    entries = _read_manifest(folder, about)
    missing = [i for i in range(n) if maker.name(i) not in entries]
    made = SpliceFolder(folder, len(missing), len(entries), len(readable), tuple(problems))
    _save_manifest(folder, about, entries)
    saved = time.monotonic()
    try:
        work = partial(_make_one, maker, folder)
        for entry in map_threads(work, missing, jobs=jobs, progress=progress):
            entries[entry["name"]] = entry
            if time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                _save_manifest(folder, about, entries)
                saved = time.monotonic()
    finally:
        _save_manifest(folder, about, entries)
    return made


def _check_folder(folder: Path, existing: Existing) -> None:
    if existing not in ("error", "resume", "replace"):
        raise ValueError(f"existing={existing!r} must be 'error', 'resume' or 'replace'")
    if existing == "error" and folder.is_dir() and any(folder.iterdir()):
        raise FolderInUseError(
            f"{folder} is not empty",
            "choose another folder, or existing='resume' to go on in it, or existing='replace'",
        )


def _remove_splices(folder: Path) -> None:
    (folder / _MANIFEST).unlink(missing_ok=True)
    for part in ("images", "masks"):
        for file in (folder / part).iterdir():
            if re.fullmatch(_NAME + r"\.(png|jpg)", file.name):
                file.unlink()


def _read_manifest(folder: Path, about: dict[str, Any]) -> Entries:
    """Return the splices of a folder that are complete; its manifest must say ``about`` too."""
    path = folder / _MANIFEST
    if not path.exists():
        return {}
    try:
        earlier = json.loads(path.read_bytes())
        different = [name for name in about if earlier[name] != about[name]]
        complete = {
            entry["name"]: entry
            for entry in earlier["splices"]
            if re.fullmatch(_NAME, entry["name"])
            and all((folder / entry[kind]).is_file() for kind in ("image", "mask"))
        }
    except (ValueError, KeyError, TypeError) as error:
        raise FolderInUseError(
            f"{path} is not a manifest of splices", "existing='replace' starts anew"
        ) from error
    if different:
        raise FolderInUseError(
            f"{folder} was made with other {' and '.join(different)}",
            "give the same, or existing='replace' to start anew",
        )
    return complete


def _save_manifest(folder: Path, about: dict[str, Any], entries: Entries) -> None:
    # By length first: the numbers in the names have five digits or more.
    names = sorted(entries, key=lambda name: (len(name), name))
    content = {**about, "splices": [entries[name] for name in names]}
    with atomic_write(folder / _MANIFEST) as file:
        file.write(json.dumps(content, indent=1).encode())


def _make_one(maker: SpliceMaker, folder: Path, index: int) -> dict[str, Any]:
    splice = maker.make(index)
    name = splice.recipe["name"]
    files = {
        "image": f"images/{name}.{'png' if splice.jpeg is None else 'jpg'}",
        "mask": f"masks/{name}.png",
    }
    data = splice.jpeg
    if data is None:
        data = bytes(cv2.imencode(".png", splice.image[..., ::-1])[1])
    with atomic_write(folder / files["image"]) as file:
        file.write(data)
    with atomic_write(folder / files["mask"]) as file:
        file.write(bytes(cv2.imencode(".png", splice.mask.astype("uint8") * 255)[1]))
    return {"name": name, **files, **splice.recipe}
