"""Finding photos: in folders, and by patterns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpcapp._io.text import natural_order, printable
from cpcapp.splicing.photo.heif import INSTALL, can_read

SUFFIXES = (".bmp", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
#: Those of formats that are read if their decoder is installed.
OPTIONAL_SUFFIXES = {".avif": "AVIF", ".heic": "HEIC", ".heif": "HEIC", ".hif": "HEIC"}

#: Other kinds of images, which are not read: files of phones and cameras, and common exchange
#: formats. They are reported as a problem, so that no photo of a folder is skipped silently.
UNREAD_SUFFIXES = (
    *(".gif", ".heics", ".j2k", ".jp2", ".jxl", ".jxr"),
    *(".psd", ".psb", ".svg", ".tga", ".xcf", ".exr", ".hdr", ".ico", ".ppm", ".pgm", ".pnm"),
    *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".iiq", ".kdc", ".mef"),
    *(".mos", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2"),
    *(".srf", ".srw", ".x3f"),
)

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class FoundImages:
    """The images of some paths, folders and patterns."""

    readable: list[Path]  # given by name, or in a folder with the suffix of one that is read
    unreadable: list[Path]  # in a folder, of a kind that is not read, or not without an extra


def read_suffixes() -> tuple[str, ...]:
    """Return the suffixes of images that are read, with the decoders that are installed.

    >>> ".jpg" in read_suffixes(), ".gif" in read_suffixes()
    (True, False)
    """
    return (*SUFFIXES, *(name for name, form in OPTIONAL_SUFFIXES.items() if can_read(form)))


def find_images(paths: Paths, *, recursive: bool = False) -> FoundImages:
    """List the images of paths, folders and patterns, also of kinds that are not read.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("a.jpg", "b.gif", "notes.txt"):
    ...     (folder / name).touch()
    >>> found = find_images(folder)
    >>> [path.name for path in found.readable], [path.name for path in found.unreadable]
    (['a.jpg'], ['b.gif'])
    """
    return _find(paths, recursive, lambda found: found.readable or found.unreadable)


def image_files(paths: Paths, *, recursive: bool = False) -> list[Path]:
    """List the image files of paths, folders and patterns, each once, in natural order.

    A file may have any suffix. From a folder or a pattern (``"in/*.jpg"``, for shells that don't
    expand it) only files with the suffix of an image that is read are listed.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("10.jpg", "2.jpg", "notes.txt"):
    ...     (folder / name).touch()
    >>> [path.name for path in image_files([folder, folder / "1*.jpg"])]
    ['2.jpg', '10.jpg']
    """
    return _find(paths, recursive, lambda found: found.readable).readable


def _find(
    paths: Paths, recursive: bool, what_counts: Callable[[FoundImages], list[Path]]
) -> FoundImages:
    """Return the images of paths, or raise for a path without one that counts."""
    parts = []
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        parts.append(_expand(Path(path), recursive))
        if not what_counts(parts[-1]):
            raise FileNotFoundError(_explain_no_image(Path(path), parts[-1]))
    return FoundImages(
        _sort_unique(file for part in parts for file in part.readable),
        _sort_unique(file for part in parts for file in part.unreadable),
    )


def _expand(path: Path, recursive: bool) -> FoundImages:
    """Return what a path stands for; two empty lists for a folder without images."""
    if path.is_dir():
        candidates = path.rglob("*") if recursive else path.glob("*")
    elif path.exists():
        return FoundImages([path], [])
    elif any(sign in str(path) for sign in "*?["):
        candidates = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    else:
        raise FileNotFoundError(f"{path} does not exist; give a file, a folder or a pattern")
    # Names with a leading dot are not photos but files of the operating system.
    files = [file for file in candidates if file.name[0] != "." and file.is_file()]
    known = read_suffixes()
    unread = {*UNREAD_SUFFIXES, *OPTIONAL_SUFFIXES}.difference(known)
    return FoundImages(
        [file for file in files if file.suffix.lower() in known],
        [file for file in files if file.suffix.lower() in unread],
    )


def _explain_no_image(path: Path, found: FoundImages) -> str:
    problem = f"folder {path} holds no image" if path.is_dir() else f"no image matches {path}"
    if not found.unreadable:
        return f"{problem} ({', '.join(read_suffixes())})"
    return f"{problem} that can be read: {explain_unread(_sort_unique(found.unreadable))}"


def explain_unread(files: Sequence[Path]) -> str:
    """Return one line that names images of kinds that are not read, and says what to do.

    >>> explain_unread([Path("in/a.cr2"), Path("in/b.gif")])
    'a.cr2 and b.gif are of kinds that are not read; save them as JPEG or PNG'
    """
    names = [printable(file.name) for file in files]
    # More would fill the screen.
    if len(names) > 5:
        names = [*names[:4], f"{len(names) - 4} more"]
    *others, last = names
    advice = advise_unread(files)
    if not others:
        return f"{last} is of a kind that is not read; {advice.format(them='it')}"
    known = f"{', '.join(others)} and {last}"
    return f"{known} are of kinds that are not read; {advice.format(them='them')}"


def advise_unread(files: Iterable[Path]) -> str:
    """Return what to do about images that are not read, with ``{them}`` for what they are called.

    >>> advise_unread([Path("a.gif")])
    'save {them} as JPEG or PNG'
    """
    if any(file.suffix.lower() in OPTIONAL_SUFFIXES for file in files):
        return f"run {INSTALL}, or save {{them}} as JPEG or PNG"
    return "save {them} as JPEG or PNG"


def _sort_unique(files: Iterable[Path]) -> list[Path]:
    unique = {file.resolve(): file for file in reversed(list(files))}
    return sorted(unique.values(), key=natural_order)
