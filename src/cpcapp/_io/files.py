"""Writing files so that a crash never leaves half of one, and making folders."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Whether a file can be seen to be in use by a process.
HAS_LOCKS: Final = fcntl is not None
# Names of files and folders that are not complete yet; the group is what they were to become.
_PART_NAME: Final = re.compile(r"(?s)(.*)\.[0-9a-f]{16}\.part")
# The name is cut, as it could be too long with something added. Characters, of up to 4 bytes each.
_KEPT_OF_NAME: Final = 40
# Without locks only its age tells a leftover from a file of a run that goes on.
_OLD_SECONDS: Final = 86_400.0


class FolderInUseError(ValueError):
    """A folder holds something that is not to be replaced; ``reason`` is this without advice."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}; {advice}")
        self.reason = reason


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder and those above it, if they are not there."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"can't make the folder {path}: {error.strerror}") from error
    return path


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of ``path`` only once it is complete.

    It has the permissions that any new file of the process gets. File and folder are synced: after
    a power failure the old or the new content is there. If the process is killed, a file with the
    ending ``.part`` may stay; `remove_leftovers` removes it.
    """
    path = Path(path)
    part, file = _open_part(path)
    try:
        # Holds the lock, and can be synced, also when the file is closed.
        with os.fdopen(os.dup(file.fileno()), "wb") as held:
            with file:
                yield file
            os.fsync(held.fileno())
            if not HAS_LOCKS:  # Windows replaces no open file
                held.close()
            part.replace(path)
            _sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


class StagedResults:
    """Files that are made in a folder ``new`` of their own, and then moved to their places."""

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder, self.place, self.new = folder, place, place / "new"

    def commit(self, *, marker: str, remove: Sequence[str] = ()) -> None:
        """Put all files in their places; names in ``remove`` are old files that go.

        The marker says that the others are complete and belong together: it is the first to go and
        the last to come. If a file can't be moved, the old ones are put back. A folder with the
        name of a result is a `FolderInUseError`.
        """
        made = (path for path in sorted(self.new.rglob("*")) if path.is_file())
        names = [path.relative_to(self.new).as_posix() for path in made]
        for name in (*names, *remove):
            check_replaceable(self.folder / name)
        old, aside, placed = self.place / "old", [], []
        try:
            for name in dict.fromkeys((marker, *remove, *names)):
                if os.path.lexists(self.folder / name):
                    (old / name).parent.mkdir(parents=True, exist_ok=True)
                    (self.folder / name).replace(old / name)
                    aside.append(name)
            _sync_folder(self.folder)
            for name in sorted(names, key=lambda name: name == marker):
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.new / name).replace(self.folder / name)
                placed.append(name)
                _sync_folder((self.folder / name).parent)
        except BaseException:
            with suppress(OSError):
                for name in placed:
                    (self.folder / name).unlink()
                for name in reversed(aside):
                    (old / name).replace(self.folder / name)
            raise


@contextmanager
def stage_results(folder: str | os.PathLike[str]) -> Iterator[StagedResults]:
    """Make results beside those that a folder has; call `StagedResults.commit` to replace them.

    Without it, or after an error before it, the folder stays as it was; it is made if need be.
    """
    folder = Path(folder)
    is_new = not folder.exists()
    place, descriptor = make_locked_folder(make_folder(folder), "results")
    try:
        staged = StagedResults(folder, place)
        staged.new.mkdir()
        yield staged
    finally:
        with suppress(OSError):
            shutil.rmtree(place)
        if descriptor is not None:
            os.close(descriptor)
        if is_new:
            # Only if nothing came into it.
            with suppress(OSError):
                folder.rmdir()


def check_replaceable(path: Path) -> None:
    """Raise `FolderInUseError` if something that is no file has the name of a result."""
    if os.path.lexists(path) and not (path.is_file() or path.is_symlink()):
        raise FolderInUseError(
            f"{path} is in the way: it is not a file", "move it away, or choose another folder"
        )


def remove_leftovers(folder: str | os.PathLike[str], name: str | None = None) -> None:
    """Remove what killed runs left in a folder, all or of one name; what is in use stays."""
    with suppress(OSError):
        for path in list(Path(folder).iterdir()):
            match = _PART_NAME.fullmatch(path.name)
            if match is not None and (name is None or match[1] == name[:_KEPT_OF_NAME]):
                # What can't be removed does no harm: it is a name that is never read.
                with suppress(OSError):
                    _remove_leftover(path)


def _remove_leftover(path: Path) -> None:
    if path.is_symlink() or not (path.is_dir() or path.is_file()):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW) if HAS_LOCKS else None
    try:
        old = time.time() - path.lstat().st_mtime >= _OLD_SECONDS
        if old if descriptor is None else lock(descriptor):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    finally:
        if descriptor is not None:
            os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed; False if another process has done so."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network drives know no locks
        pass
    return True


def _open_part(path: Path) -> tuple[Path, IO[bytes]]:
    """Open a new file beside ``path``, locked while it is open."""
    while True:
        part = _name_part(path)
        file = _open_new(part)
        # Somebody who removes leftovers may have been here between the two steps.
        if lock(file.fileno()) and part.exists():
            return part, file
        file.close()


def _open_new(path: Path) -> IO[bytes]:
    # Not by the tempfile module, whose files nobody but their owner may read.
    return path.open("xb")


def make_locked_folder(folder: Path, name: str) -> tuple[Path, int | None]:
    """Make a folder in another one, locked until its descriptor is closed.

    Only this user can read it. If the process is killed, `remove_leftovers` of this name removes
    it.
    """
    while True:
        place = _name_part(folder / name)
        place.mkdir(mode=0o700)
        if not HAS_LOCKS:
            return place, None
        with suppress(FileNotFoundError):
            descriptor = os.open(place, os.O_RDONLY)
            if lock(descriptor) and place.exists():
                return place, descriptor
            os.close(descriptor)


def _name_part(path: Path) -> Path:
    return path.with_name(f"{path.name[:_KEPT_OF_NAME]}.{secrets.token_hex(8)}.part")


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure, where the system can do that."""
    if fcntl is None:  # Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network drives sync files only.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
