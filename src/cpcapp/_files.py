"""Writing files so that a crash never leaves half of one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
