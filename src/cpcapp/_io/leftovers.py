"""What killed processes left in a folder."""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from cpcapp._io.files import HAS_LOCKS, PART_NAME, lock, shorten_name
from cpcapp._io.staging import finish_interrupted

# Without locks only its age tells a leftover from a file of a run that goes on.
_OLD_SECONDS: Final = 86_400.0


def remove_leftovers(folder: str | os.PathLike[str], name: str | None = None) -> None:
    """Remove what killed runs left in a folder; what belongs to a running one stays.

    Parameters
    ----------
    folder : path
        Nothing happens if there is none.
    name : str, optional
        Only what was to become this file. By default all; results that were complete when the run
        was killed are put in their place (see `cpcapp._io.staging.StagedResults`).

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "scores.csv.0123456789abcdef.part").touch()
    >>> (folder / "film.mp4.part").touch()
    >>> remove_leftovers(folder)
    >>> [path.name for path in folder.iterdir()]
    ['film.mp4.part']
    """
    try:
        found = [
            Path(entry.path) for entry in os.scandir(folder) if PART_NAME.fullmatch(entry.name)
        ]
    except OSError:
        return
    for path in found:
        match = PART_NAME.fullmatch(path.name)
        assert match is not None
        if name is None or match[1] == shorten_name(name):
            # What can't be removed does no harm: it is a name that nobody reads.
            with suppress(OSError):
                _remove_leftover(path)


def _remove_leftover(path: Path) -> None:
    status = path.lstat()
    is_folder = stat.S_ISDIR(status.st_mode)
    if not (is_folder or stat.S_ISREG(status.st_mode)):
        return
    if not HAS_LOCKS:
        if time.time() - status.st_mtime < _OLD_SECONDS:
            return
        _finish_and_remove(path, is_folder)
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if lock(descriptor):
            _finish_and_remove(path, is_folder)
    finally:
        os.close(descriptor)


def _finish_and_remove(path: Path, is_folder: bool) -> None:
    if not is_folder:
        path.unlink()
        return
    finish_interrupted(path)
    shutil.rmtree(path)
