"""Writing files so that a crash never leaves half of one, and making folders."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Whether a file can be seen to be in use by a process.
HAS_LOCKS: Final = fcntl is not None
#: Names of files and folders that are not complete yet; the group is what they were to become.
PART_NAME: Final = re.compile(r"(?s)(.*)\.[0-9a-f]{16}\.part")
# The name is cut, as it could be too long with something added. Characters, of up to 4 bytes each.
_KEPT_OF_NAME: Final = 40


class FolderInUseError(ValueError):
    """A folder holds something that is not to be replaced.

    Attributes
    ----------
    reason : str
        What is the matter, without advice.
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}; {advice}")
        self.reason = reason


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder and those above it, if they are not there.

    Examples
    --------
    >>> import tempfile
    >>> make_folder(Path(tempfile.mkdtemp()) / "a" / "b").is_dir()
    True
    """
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
    ending ``.part`` may stay; `cpcapp._io.leftovers.remove_leftovers` removes it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "file"
    >>> with atomic_write(path) as file:
    ...     _ = file.write(b"all of it")
    >>> path.read_bytes()
    b'all of it'
    """
    path = Path(path)
    part, file = _open_part(path)
    kept = -1
    try:
        with file:
            # Holds the lock, and can be synced, also when the file is closed.
            kept = os.dup(file.fileno())
            yield file
        os.fsync(kept)
        if fcntl is None:  # Windows replaces no open file
            os.close(kept)
            kept = -1
        part.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    finally:
        if kept >= 0:
            os.close(kept)


def _open_part(path: Path) -> tuple[Path, IO[bytes]]:
    """Open a new file beside ``path``, locked while it is open."""
    while True:
        part = name_part(path)
        file = _open_new(part)
        # Somebody who removes leftovers may have been here between the two steps.
        if lock(file.fileno()) and part.exists():
            return part, file
        file.close()


def _open_new(path: Path) -> IO[bytes]:
    # Not by the tempfile module, whose files nobody but their owner may read.
    return path.open("xb")


def name_part(path: Path) -> Path:
    """Return a new name beside ``path`` that `PART_NAME` matches."""
    return path.with_name(f"{shorten_name(path.name)}.{secrets.token_hex(8)}.part")


def shorten_name(name: str) -> str:
    """Return what is kept of a name in that of its part."""
    return name[:_KEPT_OF_NAME]


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


def sync_folder(folder: Path) -> None:
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
