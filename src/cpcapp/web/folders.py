"""The server's own temporary folder: nothing of it stays, not even after a crash."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from cpcapp._io.files import HAS_LOCKS, lock

_PREFIX = "cpcapp-serve-"
# Without locks only its age tells a leftover from the folder of a server that runs.
_OLD_SECONDS = 7 * 86_400.0


class ServerFolder:
    """A new folder that only this user can read, locked while the server runs.

    Examples
    --------
    >>> folder = ServerFolder()
    >>> folder.path.is_dir()
    True
    >>> folder.remove()
    >>> folder.path.exists()
    False
    """

    def __init__(self) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._descriptor = os.open(self.path, os.O_RDONLY) if HAS_LOCKS else -1
            # Another server that starts now may take it for a leftover between the two steps.
            if not HAS_LOCKS or (lock(self._descriptor) and self.path.exists()):
                break
            os.close(self._descriptor)

    def remove(self) -> None:
        """Remove it and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def remove_old_folders() -> None:
    """Remove what killed servers of this user left; folders of running ones stay."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # What can't be removed does no harm.
        with suppress(OSError):
            _remove_old(path)


def _remove_old(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return
    if not HAS_LOCKS:
        if time.time() - status.st_mtime > _OLD_SECONDS:
            shutil.rmtree(path)
        return
    if status.st_uid != os.getuid():
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if lock(descriptor):
            shutil.rmtree(path)
    finally:
        os.close(descriptor)
