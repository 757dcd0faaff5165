"""What the libraries below Pillow and OpenCV print: their warnings go to standard error.

libjpeg and libtiff fill what is missing in a photo with grey or black, and only say so there.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

import cv2
import numpy as np

# Lines of libtiff are "Function: text." or "Function: Warning, text.".
_LINES = re.compile(
    rb"^(?:Corrupt JPEG data|Premature end of JPEG|Inconsistent progression|Invalid SOS|"
    rb"Unknown Adobe|Warning: unknown JFIF|Unsupported marker|[\w.]{3,40}: )[^\n]*(?:\n|\Z)",
    re.MULTILINE,
)
_PREMATURE = re.compile(rb"[Pp]remature end")
_lock = threading.Lock()


class LibraryOutput:
    """What was printed while standard error was caught."""

    def __init__(self) -> None:
        self.text = b""

    @property
    def says_cut_off(self) -> bool:
        """Whether a library came to an end before the photo did."""
        return _PREMATURE.search(self.text) is not None


@contextmanager
def catch_library_output() -> Iterator[LibraryOutput]:
    r"""Catch what C libraries print on standard error; one thread at a time.

    What is not a line of theirs, such as the progress of another thread, is printed afterwards.

    Examples
    --------
    >>> import os
    >>> with catch_library_output() as output:
    ...     _ = os.write(2, b"TIFFReadDirectory: Warning, unknown field.\n")
    >>> output.text
    b'TIFFReadDirectory: Warning, unknown field.\n'
    """
    output = LibraryOutput()
    with _lock, ExitStack() as stack:
        try:
            file = stack.enter_context(_open_scratch())
            kept = os.dup(2)
        except OSError:  # a process without standard error, or without a place for the text
            yield output
            return
        _flush_python()
        os.dup2(file.fileno(), 2)
        try:
            yield output
        finally:
            _flush_python()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            found = file.read()
            output.text = b"".join(line[0] for line in _LINES.finditer(found))
            rest = _LINES.sub(b"", found)
            if rest:
                os.write(2, rest)


def _open_scratch() -> IO[bytes]:
    """Return a file for a few lines; in memory where that can be, since a disk may be full."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("cpcapp"), "w+b")
    return tempfile.TemporaryFile()


def _flush_python() -> None:
    with suppress(Exception):  # it may be closed, or be something that has no file
        sys.stderr.flush()


def jpeg_warning(files: Iterable[bytes]) -> LibraryOutput:
    """Decode JPEG files at an eighth of their size, only to hear what libjpeg says of them.

    Pillow keeps libjpeg's warnings to itself; OpenCV lets it print the first one.
    """
    with catch_library_output() as output:
        for file in files:
            with suppress(cv2.error):
                cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_REDUCED_GRAYSCALE_8)
    return output
