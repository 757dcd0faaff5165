"""Split delimited text into blocks of whole records, with the line number of each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cpcapp.tables.messages import TableError

# A block that fits the cache of a processor is read a fifth faster than a larger one. But Arrow
# takes some time for each column of each block, so that wide tables want larger ones.
_BLOCK_BYTES = 4 << 20
_MAX_BLOCK_BYTES = 16 << 20
_BLOCK_BYTES_PER_COLUMN = 16 << 10
# A quote that is never closed makes one record of all that follows.
_MAX_RECORD_BYTES = 256 << 20
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


@dataclass(frozen=True)
class Block:
    """Whole records.

    Attributes
    ----------
    data : bytes
    lines : ndarray of shape (n,)
        Where each record begins.
    longest : int
        Bytes of the longest record.
    multiline : bool
        Whether there are line ends within fields.
    """

    data: bytes
    lines: NDArray[np.int64]
    longest: int
    multiline: bool


def choose_block_bytes(n_columns: int) -> int:
    """Return the size of blocks with which a table of so many columns is read fastest."""
    return min(_MAX_BLOCK_BYTES, max(_BLOCK_BYTES, _BLOCK_BYTES_PER_COLUMN * n_columns))


def read_blocks(
    stream: IO[bytes], delimiter: str, name: str, size: int = _BLOCK_BYTES
) -> Iterator[Block]:
    """Yield text in blocks of about ``size`` bytes; blank lines are not records."""
    text, line, wanted, done = _Text(size), 1, size, False
    while not done:
        more = stream.read(wanted)
        done = not more
        text.append(more)
        length = len(text.bytes)
        if done and length and text.bytes[-1] != _NEWLINE:
            text.append(b"\n")
        ends, newlines = _record_ends(text, delimiter, complete=done)
        if not len(ends):
            if length > _MAX_RECORD_BYTES or (done and length):
                raise _unclosed_error(name, line)
            # Read twice as much each time, so that a long record is searched only a few times.
            wanted = max(size, length)
            continue
        end = int(ends[-1]) + 1
        # For each record count the line ends before it, those within quotes too.
        before = np.searchsorted(newlines, ends[:-1], side="right")
        lines = line + np.concatenate([[0], before]).astype(np.int64)
        starts = np.concatenate([[0], ends[:-1] + 1])
        lengths = ends - starts
        blank = (lengths == 0) | ((lengths == 1) & (text.bytes[starts] == _RETURN))
        n_lines = int(np.searchsorted(newlines, end))
        line += n_lines
        data, wanted = text.take(end), size
        if not blank.all():
            yield Block(data, lines[~blank], int(lengths.max()), n_lines > len(ends))
        if done and len(text.bytes):
            raise _unclosed_error(name, line)


class _Text:
    """Text between reading and dividing, in memory that is used for one block after the other.

    New memory for each block would cost more time than the search for the ends of the records.

    Attributes
    ----------
    bytes : ndarray of shape (n,)
        A view, which `append` and `take` make invalid.
    """

    def __init__(self, size: int) -> None:
        self._allocate(size + size // 8)
        self.bytes: NDArray[np.uint8] = self._memory[:0]

    def _allocate(self, size: int) -> None:
        self._memory = np.empty(size, dtype=np.uint8)
        self._matches = np.empty(size, dtype=np.bool_)

    def append(self, more: bytes) -> None:
        start, end = len(self.bytes), len(self.bytes) + len(more)
        if end > len(self._memory):
            self._allocate(end + end // 8)
            self._memory[:start] = self.bytes
        self._memory[start:end] = np.frombuffer(more, np.uint8)
        self.bytes = self._memory[:end]

    def take(self, end: int) -> bytes:
        """Remove the first bytes, and return them."""
        taken, rest = self.bytes[:end].tobytes(), self.bytes[end:]
        self._memory[: len(rest)] = rest
        self.bytes = self._memory[: len(rest)]
        return taken

    def find(self, character: int) -> NDArray[np.int64]:
        """Return the offsets of a character."""
        matches = self._matches[: len(self.bytes)]
        return np.flatnonzero(np.equal(self.bytes, character, out=matches))


def _unclosed_error(name: str, line: int) -> TableError:
    return TableError(
        f"{name}: the record that begins in line {line} does not end; is there a quote that is "
        "not closed?"
    )


def _record_ends(
    text: _Text, delimiter: str, *, complete: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the offsets of the newlines that end records, and of all newlines."""
    newlines, quotes = text.find(_NEWLINE), text.find(_QUOTE)
    if not len(quotes):
        return newlines, newlines
    # Every other quote opens a field. A quote that is not at the start of a field is an ordinary
    # character (5" pipe). Then counting is not enough.
    opening = quotes[::2]
    may_precede = np.zeros(256, dtype=np.bool_)
    may_precede[[ord(delimiter), _NEWLINE, _RETURN, _QUOTE]] = True
    if not may_precede[text.bytes[opening[opening > 0] - 1]].all():
        data = text.bytes.tobytes()
        return _parse_record_ends(data, newlines, delimiter, complete), newlines
    inside = np.searchsorted(quotes, newlines) % 2 == 1
    return newlines[~inside], newlines


def _parse_record_ends(
    data: bytes, newlines: NDArray[np.int64], delimiter: str, complete: bool
) -> NDArray[np.int64]:
    # Latin-1 decodes any bytes, with delimiters and quotes as in UTF-8.
    reader = csv.reader(io.StringIO(data.decode("latin-1"), newline="\n"), delimiter=delimiter)
    counts = [reader.line_num for _ in reader]
    if counts and (not complete or counts[-1] > len(newlines)):
        counts.pop()  # may go on in the next block
    return newlines[np.array(counts, dtype=np.int64) - 1]
