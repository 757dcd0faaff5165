"""The encoding of a text: UTF-8, or one of those that older programs write."""

from __future__ import annotations

import codecs
import io
import re
from typing import IO

from cpcapp.tables.messages import TableError

UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF8_SEQUENCE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)


class Utf16Stream(io.RawIOBase):
    """A stream of UTF-16 with its byte order mark, read as UTF-8.

    Parameters
    ----------
    stream : binary file
    name : str
        For messages.
    """

    def __init__(self, stream: IO[bytes] | io.RawIOBase, name: str) -> None:
        self.stream, self.name = stream, name
        self._decoder = codecs.getincrementaldecoder("utf-16")()
        self._line = 1

    def read(self, size: int = -1) -> bytes:
        """Return about so many bytes; none at the end."""
        while True:
            data = self.stream.read(size) or b""
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise TableError(
                    f"{self.name} is UTF-16 and damaged after line {self._line}: {error.reason}; "
                    "use an undamaged copy"
                ) from error
            if text or not data:
                self._line += text.count("\n")
                return text.encode()


class TextEncoding:
    """The encoding of a text that is read in parts, by the first bytes that are not ASCII.

    Parameters
    ----------
    name : str
        Of the file, for messages.

    Attributes
    ----------
    found : {None, "utf-8", "latin-1", "utf-16"}
        None while all bytes are ASCII.

    Examples
    --------
    >>> encoding = TextEncoding("t.csv")
    >>> encoding.to_utf8("größe".encode("latin-1"), 1).decode(), encoding.found
    ('größe', 'latin-1')
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: str | None = None

    def to_utf8(self, data: bytes, line: int) -> bytes:
        """Return whole lines as UTF-8.

        Bytes that are not UTF-8 stay as they are where other lines are UTF-8: they may be in a
        column that is not read.

        Parameters
        ----------
        data : bytes
        line : int
            Number of the first line, for messages.
        """
        if self.found in ("utf-8", "utf-16") or data.isascii():
            return data
        if self.found is None:
            self.found = _guess(data)
            if self.found == "utf-8":
                return data
        try:
            # Windows-1252 is Latin-1, with printable characters in place of control codes.
            return data.decode("cp1252").encode()
        except UnicodeDecodeError as error:
            bad_line = line + data.count(b"\n", 0, error.start)
            raise TableError(
                f"{self.name}: line {bad_line} is neither UTF-8 nor Latin-1; save the file as UTF-8"
            ) from error

    def decode(self, data: bytes, line: int) -> str:
        """Return what `to_utf8` gave as text, or raise `TableError` that names the line."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            bad_line = line + data.count(b"\n", 0, error.start)
            raise TableError(
                f"{self.name}: line {bad_line} is not UTF-8, as other lines are; correct it, or "
                "save the file as UTF-8"
            ) from error

    @property
    def note(self) -> str:
        """The encoding in words, if it is not UTF-8."""
        return {"latin-1": "Latin-1 (Windows-1252), not UTF-8", "utf-16": "UTF-16"}.get(
            self.found or "", ""
        )


def _guess(data: bytes) -> str:
    try:
        data.decode()
        return "utf-8"
    except UnicodeDecodeError:
        # In Latin-1 such a sequence is rare: a capital with an accent before a symbol.
        n_sequences = len(_UTF8_SEQUENCE.findall(data))
        n_others = len(re.findall(rb"[\x80-\xff]", _UTF8_SEQUENCE.sub(b"", data)))
        return "utf-8" if n_sequences >= n_others else "latin-1"
