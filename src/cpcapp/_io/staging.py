"""Replacing several files of a folder together: all of them, or none."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from cpcapp._io.files import (
    FolderInUseError,
    atomic_write,
    lock,
    make_folder,
    name_part,
    sync_folder,
)

_PLAN: Final = "plan.json"
_NEW: Final = "new"
_OLD: Final = "old"


class StagedResults:
    """Files that are made in a folder of their own and then take their places together.

    Made by `stage_results`. The folder beside the results has the ending ``.part``; in it are
    ``new``, where the files are made, ``old``, where the files they replace are kept until all are
    in place, and ``plan.json``, which is written between the two. If one of them can't take its
    place, all go back. If the process is killed meanwhile, `finish_interrupted` goes on.

    Attributes
    ----------
    folder : Path
        Where the results go to.
    new : Path
        Where to make them, by the same names. Write them with
        `cpcapp._io.files.atomic_write`, which syncs them.
    """

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder = folder
        self.place = place
        self.new = place / _NEW

    def commit(self, *, marker: str, remove: Sequence[str] = ()) -> None:
        """Put all files in their places.

        Parameters
        ----------
        marker : str
            The file that says that the others are complete: the first to go, the last to come.
        remove : sequence of str
            Old files that go, by their names in the folder. What is not there is passed over.

        Raises
        ------
        FolderInUseError
            If a folder, or something else that is no file, has the name of a result.
        OSError
            If something can't be moved; then everything is as it was.
        """
        names = _relative_names(self.new)
        for folder in {self.new / PurePosixPath(name).parent for name in names}:
            sync_folder(folder)
        leaving = [marker, *names, *remove]
        for name in leaving:
            check_replaceable(self.folder / name)
        plan = {
            "new": sorted(names, key=lambda name: name == marker),
            "remove": [name for name in remove if name not in names],
        }
        moves = _Moves()
        try:
            with atomic_write(self.place / _PLAN) as file:
                file.write(json.dumps(plan).encode())
            for name in dict.fromkeys(leaving):
                moves.move(self.folder / name, self.place / _OLD / name)
            for name in plan["new"]:
                moves.move(self.new / name, self.folder / name)
            for folder in {(self.folder / name).parent for name in names}:
                sync_folder(folder)
        except BaseException:
            moves.undo()
            (self.place / _PLAN).unlink(missing_ok=True)
            raise


@contextmanager
def stage_results(folder: str | os.PathLike[str]) -> Iterator[StagedResults]:
    """Make results beside those that a folder has; call `StagedResults.commit` to replace them.

    Without it, or after an error, the folder stays as it was.

    Parameters
    ----------
    folder : path
        It is made if it is not there.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with stage_results(folder) as staged:
    ...     for name in ("scores.csv", "summary.json"):
    ...         with atomic_write(staged.new / name) as file:
    ...             _ = file.write(b"new")
    ...     staged.commit(marker="summary.json")
    >>> sorted(path.name for path in folder.iterdir())
    ['scores.csv', 'summary.json']
    """
    folder = Path(folder)
    is_new = not folder.exists()
    place, descriptor = _open_place(make_folder(folder))
    try:
        staged = StagedResults(place.parent, place)
        staged.new.mkdir()
        (place / _OLD).mkdir()
        yield staged
    finally:
        # With a plan still there, old files could not be put back: the next run goes on.
        if not (place / _PLAN).exists() or not _has_files(place / _NEW):
            with suppress(OSError):
                shutil.rmtree(place)
        if descriptor is not None:
            os.close(descriptor)
        if is_new:
            # Only if nothing came into it.
            with suppress(OSError):
                folder.rmdir()


def finish_interrupted(place: Path) -> None:
    """Put the files in place that a killed run had ready, if all of them were.

    Parameters
    ----------
    place : Path
        The folder of a `StagedResults` whose process is gone.
    """
    try:
        plan = json.loads((place / _PLAN).read_bytes())
        names, remove = list(map(_safe_name, plan["new"])), list(map(_safe_name, plan["remove"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    folder = place.parent
    for name in names:
        if (place / _NEW / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (place / _NEW / name).replace(folder / name)
            sync_folder((folder / name).parent)
    for name in remove:
        (folder / name).unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Raise `FolderInUseError` if something that is no file has the name of a result."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise FolderInUseError(
            f"{path} is in the way: it is not a file", "move it away, or choose another folder"
        )


def _open_place(folder: Path) -> tuple[Path, int | None]:
    """Make a folder, locked while it is in use."""
    while True:
        place = name_part(folder / "results")
        place.mkdir()
        try:
            descriptor = os.open(place, os.O_RDONLY)
        except PermissionError:  # Windows opens no folders
            return place, None
        except FileNotFoundError:
            continue
        # Somebody who removes leftovers may have been here between the steps.
        if lock(descriptor) and place.exists():
            return place, descriptor
        os.close(descriptor)


class _Moves:
    """Moves of files that can be undone."""

    def __init__(self) -> None:
        self.moved: list[tuple[Path, Path]] = []
        self.made: list[Path] = []

    def move(self, source: Path, target: Path) -> None:
        """Move a file, if it is there."""
        if not os.path.lexists(source):
            return
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True)
            self.made.append(target.parent)
        self.moved.append((source, target))
        source.replace(target)

    def undo(self) -> None:
        for source, target in reversed(self.moved):
            # The last one may have failed before it moved anything.
            if os.path.lexists(target) and not os.path.lexists(source):
                target.replace(source)
        for folder in reversed(self.made):
            with suppress(OSError):
                folder.rmdir()


def _relative_names(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def _has_files(folder: Path) -> bool:
    return any(path.is_file() for path in folder.rglob("*"))


def _safe_name(name: object) -> str:
    """Return a name that stays within its folder, or raise ValueError."""
    if not isinstance(name, str) or PurePosixPath(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} is not the name of a result")
    return name
