"""Writing files so that a crash never leaves half of one, and making folders."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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

    It has the permissions that any new file of the process gets.

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
    # Not by the tempfile module, whose files nobody but their owner may read. The name is cut, as
    # it could be too long with something added.
    part = path.with_name(f"{path.name[:40]}.{secrets.token_hex(8)}.part")
    file = part.open("xb")
    try:
        with file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
