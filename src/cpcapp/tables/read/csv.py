"""Delimited text: a fast parser, and a careful one for blocks with anything unusual."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar, cast

import numpy as np

from cpcapp.tables.messages import TableError, count_of
from cpcapp.tables.read.numbers import MISSING, NumberMarks, describe_non_number, find_marks
from cpcapp.tables.read.table import Chunk, Progress, Table

_SNIFFED_ROWS = 100
_DELIMITERS = ",\t;|"
_HEAD_BYTES = 1 << 20
# A block that fits the cache of a processor is read a fifth faster than a larger one. But Arrow
# takes some time for each column of each block, so that wide tables want larger ones.
_BLOCK_BYTES, _MAX_BLOCK_BYTES = 4 << 20, 16 << 20
_BLOCK_BYTES_PER_COLUMN, _PART_BYTES = 16 << 10, 1 << 20
# More without the end of a line is no table.
_MAX_LINE_BYTES = 256 << 20
_GZIP_MARK = b"\x1f\x8b"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# C's spelling of a NaN with a payload, which Arrow takes for a number and Python does not.
_NAN_PAYLOAD = re.compile(rb"nan\(", re.IGNORECASE)
_LONE_RETURN = re.compile(rb"\r(?!\n)")


class CsvTable(Table):
    """A CSV or TSV file, with gzip or without; or a stream, which can be read once.

    Blocks of whole lines are parsed by Arrow. What it refuses is parsed once more by Python's
    parser, which gives the same numbers, knows more spellings, and names the lines of bad rows.
    The ending of the name suggests the delimiter.
    """

    unit: ClassVar[str] = "line"

    def __init__(self, source: Path | IO[bytes], name: str) -> None:
        self.source, self.name = source, name
        self.rereadable = isinstance(source, Path) and source.is_file()
        self._n_grouped, self._grouped = 0, ""  # numbers with thousands separators, and the first
        self._text = _Text(source, name)
        try:
            with self._naming_damage():
                head = self._text.read_head()
        finally:
            if self.rereadable:
                self._text.close()
        self.delimiter = _find_delimiter(head, name)
        lines = io.StringIO(self._text.decode(head, 1), newline="\n")
        reader, records = csv.reader(lines, delimiter=self.delimiter), list[list[str]]()
        try:
            for record in reader:
                if record and not records:
                    self._header_lines = reader.line_num
                records += [record] if record else []
                if len(records) > _SNIFFED_ROWS:
                    break
        except csv.Error as error:
            raise self._explain(error, reader.line_num) from error
        if not records:
            raise TableError(f"{name} is empty")
        header, self._sample = records[0], records[1:]
        self.columns = [column.strip() for column in header]
        if self._sample and len(self._sample[0]) == len(header) + 1:
            self.columns.insert(0, "")  # R's write.table gives the row names no name
        values = (value for record in self._sample for value in record)
        self.marks: NumberMarks = find_marks(values, self.delimiter)
        unnamed = self.name_columns()
        if unnamed is not None:
            number = unnamed + 1
            raise TableError(f"{name}: column {number} has no name in the first line; give it one")

    def reading_notes(self) -> list[str]:
        """Return what was recognised: an encoding, decimal commas, thousands separators."""
        encodings = {"latin-1": "Latin-1 (Windows-1252), not UTF-8", "utf-16": "UTF-16"}
        notes = [encodings[e] for e in [self._text.encoding] if e in encodings]
        if self.marks.decimal == ",":
            notes.append("decimal commas")
        if self._n_grouped:
            number = count_of(self._n_grouped, "number")
            notes.append(f"thousands separators in {number} ({self._grouped})")
        return notes

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns that have no number in the first rows."""
        complete = [record for record in self._sample if len(record) == len(self.columns)]

        def is_text(name: str) -> bool:
            index = self.column_index[name]
            values = [v for record in complete if (v := record[index].strip()) not in MISSING]
            return bool(values) and not any(self.marks.looks_numeric(value) for value in values)

        return [name for name in names if is_text(name)]

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows; see `Table.chunks`."""
        if self.rereadable:
            encoding = self._text.encoding
            self._text = _Text(self.source, self.name)
            self._text.encoding = encoding
        self._n_grouped = 0
        wide = _BLOCK_BYTES_PER_COLUMN * len(self.columns)
        size = min(_MAX_BLOCK_BYTES, max(_BLOCK_BYTES, wide))
        text, n_rows = self._text, 0
        try:
            with self._naming_damage():
                text.pass_over_lines(self._header_lines)
                while data := text.read_block(size):
                    chunk = self._parse_fast(data, features, kept, n_rows)
                    if chunk is None:
                        chunk = self._parse_carefully(data, features, kept, n_rows)
                    else:
                        text.line += len(chunk.rows)
                    n_rows += len(chunk.rows) + len(chunk.unreadable)
                    if len(chunk.rows) or chunk.unreadable:
                        yield chunk
                    if progress is not None:
                        progress(text.share())
        finally:
            text.close()

    def _parse_fast(
        self, data: bytes, features: Sequence[str], kept: Sequence[str], n_before: int
    ) -> Chunk | None:
        """Return the rows of a block, or None unless each line is a record like the others."""
        import pyarrow as pa
        import pyarrow.csv

        if b"(" in data and _NAN_PAYLOAD.search(data):
            return None
        if b"\r" in data and _LONE_RETURN.search(data):
            return None
        if not _ends_outside_quotes(data, self.delimiter):
            return None
        types = {**dict.fromkeys(kept, pa.string()), **dict.fromkeys(features, pa.float64())}
        n_lines = data.count(b"\n") + (not data.endswith(b"\n"))
        # Arrow parses parts of the block in parallel, and looks for lines to divide it.
        divides = b'"' not in data and len(data) < _PART_BYTES // 16 * n_lines
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(_copy_to_arrow(data)),
                pa.csv.ReadOptions(
                    column_names=self.columns,
                    block_size=_PART_BYTES if divides else len(data) + 1,
                ),
                pa.csv.ParseOptions(delimiter=self.delimiter),
                pa.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=sorted(MISSING),
                    decimal_point=self.marks.decimal,
                ),
            )
        except pa.ArrowInvalid:
            return None
        # Otherwise some lines are blank, or in quotes: line numbers would be wrong.
        if table.num_rows != n_lines:
            return None
        # A look-up by name costs Arrow more than the values of a short block.
        columns = dict(zip(types, table.itercolumns(), strict=True))
        values = np.empty((table.num_rows, len(features)))
        for index, name in enumerate(features):
            # to_numpy gives NaN for what is missing.
            values[:, index] = columns[name].to_numpy()
        count = np.arange(table.num_rows)
        texts = {name: columns[name].combine_chunks() for name in kept}
        return Chunk(n_before + 1 + count, self._text.line + count, values, texts)

    def _parse_carefully(
        self, data: bytes, features: Sequence[str], kept: Sequence[str], n_before: int
    ) -> Chunk:
        """Return the rows of a block that can be used, and the problems of the others.

        A record that goes on after the block is read to its end.
        """
        import pyarrow as pa

        text, first_line = self._text, self._text.line
        n_lines = data.count(b"\n") + (not data.endswith(b"\n"))
        reader = csv.reader(text.read_on(data), delimiter=self.delimiter)
        feature_indices = [self.column_index[name] for name in features]
        rows: list[int] = []
        lines: list[int] = []
        numbers: list[list[float]] = []
        texts: dict[str, list[str]] = {name: [] for name in kept}
        bad: dict[int, str] = {}
        unreadable: list[tuple[int, str]] = []
        number = n_before
        while reader.line_num < n_lines:
            line = first_line + reader.line_num
            try:
                record = next(reader)
            except csv.Error as error:
                raise self._explain(error, first_line + reader.line_num - 1, line) from error
            if text.is_cut_off:
                raise self._unclosed(line)
            if not record:
                continue
            number += 1
            if len(record) != len(self.columns):
                fields = count_of(len(record), "field")
                unreadable.append((line, f"{fields} where the header has {len(self.columns)}"))
                continue
            values = [self._to_number(record[index], line) for index in feature_indices]
            for name, index, value in zip(features, feature_indices, values, strict=True):
                if value is None:
                    hint = self.marks.describe_problem(record[index])
                    bad.setdefault(len(rows), describe_non_number(name, record[index]) + hint)
            rows.append(number)
            lines.append(line)
            numbers.append([float("nan") if value is None else value for value in values])
            for name, column in texts.items():
                column.append(record[self.column_index[name]])
        text.line = first_line + reader.line_num
        return Chunk(
            np.array(rows, dtype=np.int64),
            np.array(lines, dtype=np.int64),
            np.array(numbers, dtype=np.float64).reshape(len(rows), len(features)),
            {name: pa.array(column, pa.string()) for name, column in texts.items()},
            bad,
            unreadable,
        )

    def _to_number(self, text: str, line: int) -> float | None:
        """Return a number, NaN for a missing value, None for anything else."""
        value = self.marks.parse_plain(text)
        if value is None:
            value = self.marks.parse_grouped(text)
            if value is not None:
                if not self._n_grouped:
                    self._grouped = f"line {line}: {text.strip()!r} is {value:.15g}"
                self._n_grouped += 1
        return value

    def _explain(self, error: csv.Error, line: int, begin: int = 1) -> TableError:
        """Return what is wrong in the words of this package."""
        if "new-line character" in str(error):
            return TableError(
                f"{self.name}: line {line} has a carriage return (CR) in the middle of it; remove "
                "it, or save the file with one kind of line ends"
            )
        if "field limit" in str(error):
            return self._unclosed(begin)
        return TableError(f"{self.name}: line {line}: {error}")

    def _unclosed(self, line: int) -> TableError:
        return TableError(
            f"{self.name}: the record that begins in line {line} does not end; is there a quote "
            "that is not closed?"
        )

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Turn what a damaged file raises into an error that says up to where it was good."""
        try:
            yield
        # Only files are unpacked, no streams.
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            assert isinstance(self.source, Path)
            where = _locate_gzip_damage(self.source)
            raise TableError(f"{self.name} is damaged {where}; use an undamaged copy") from error


class _Text:
    """A text in blocks of whole lines: unpacked, without a mark, in UTF-8."""

    def __init__(self, source: Path | IO[bytes], name: str) -> None:
        # The next line that was not parsed; whether `read_on` was asked for more than there is.
        self.name, self.line, self.is_cut_off = name, 1, False
        # "utf-8", "latin-1" or "utf-16", by the first bytes that are not ASCII.
        self.encoding: str | None = None
        file: Any = source.open("rb") if isinstance(source, Path) else source
        self._file = self._stream = file
        self._size, self._decoder = 0, cast(Any, None)
        if isinstance(source, Path) and source.is_file():
            self._size = max(source.stat().st_size, 1)
            if file.peek(2)[:2] == _GZIP_MARK:
                self._stream = gzip.GzipFile(fileobj=file)
        self._rest: bytes | None = None  # read, but not taken yet

    def share(self) -> float:
        """Return the share that has been read; 0 for streams."""
        return min(1.0, self._file.tell() / self._size) if self._size else 0.0

    def close(self) -> None:
        """Close the file; streams of others stay open."""
        if self._size:
            self._file.close()

    def read_head(self) -> bytes:
        """Return the first lines, which are read again later."""
        head = b""
        while more := self._read_lines(_HEAD_BYTES):
            head += more
            if head.count(b"\n") > 2:
                break
        self._rest = head + (self._rest or b"")
        return self._to_utf8(head)

    def pass_over_lines(self, count: int) -> None:
        """Leave out the first lines."""
        for _ in range(count):
            self._next_line()
        self.line = count + 1

    def read_block(self, size: int) -> bytes:
        """Return whole lines of about so many bytes; none at the end."""
        return self._to_utf8(self._read_lines(size))

    def read_on(self, data: bytes) -> Iterator[str]:
        """Yield the lines of a block, and those after it as long as anybody asks."""
        yield from io.StringIO(self.decode(data, self.line), newline="\n")
        while line := self._next_line():
            yield self.decode(self._to_utf8(line), self.line)
        self.is_cut_off = True

    def decode(self, data: bytes, line: int) -> str:
        """Return text, or raise `TableError` that names the line."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            bad_line = line + data.count(b"\n", 0, error.start)
            raise TableError(
                f"{self.name}: line {bad_line} is not UTF-8, as other lines are; correct it, or "
                "save the file as UTF-8"
            ) from error

    def _next_line(self) -> bytes:
        block = self._read_lines(1 << 16)
        end = block.find(b"\n") + 1 or len(block)
        self._rest = block[end:] + (self._rest or b"")
        return block[:end]

    def _read_lines(self, size: int) -> bytes:
        """Return whole lines of about so many bytes, and at least one."""
        parts = [self._read_start() if self._rest is None else self._rest]
        end = parts[0].rfind(b"\n", 0, size) + 1 if len(parts[0]) > size else 0
        if end:
            self._rest = parts[0][end:]
            return parts[0][:end]
        total = len(parts[0])
        while total <= _MAX_LINE_BYTES:
            more = self._read(size)
            end = more.rfind(b"\n") + 1
            if end or not more:
                self._rest = more[end:]
                return b"".join([*parts, more[:end]])
            parts.append(more)
            total += len(more)
        raise TableError(
            f"{self.name}: a line has more than {_MAX_LINE_BYTES >> 20} MB; is it text?"
        )

    def _read_start(self) -> bytes:
        """Return the first bytes, after a mark."""
        start = bytes(self._stream.read(3))
        if start[:2] in _UTF16_MARKS:
            self.encoding, self._decoder = "utf-16", codecs.getincrementaldecoder("utf-16")()
            return bytes(self._decoder.decode(start).encode())
        return start.removeprefix(codecs.BOM_UTF8)

    def _read(self, size: int) -> bytes:
        data = bytes(self._stream.read(size))
        while self._decoder is not None:
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise TableError(
                    f"{self.name} is UTF-16 and damaged in line {self.line} or after it: "
                    f"{error.reason}; use an undamaged copy"
                ) from error
            if text or not data:
                return bytes(text.encode())
            data = bytes(self._stream.read(size))
        return data

    def _to_utf8(self, data: bytes) -> bytes:
        """Return whole lines as UTF-8.

        Bytes that are not UTF-8 stay as they are where others are UTF-8: they may be in a column
        that is not read.
        """
        if self.encoding in ("utf-8", "utf-16") or data.isascii():
            return data
        if self.encoding is None:
            # In Latin-1 the bytes of a character of UTF-8 are rare: an accent before a symbol.
            text = data.decode(errors="replace")
            n_wrong = text.count("\ufffd")
            n_right = len(text) - len(text.encode("ascii", "ignore")) - n_wrong
            self.encoding = "utf-8" if n_right >= n_wrong else "latin-1"
            if self.encoding == "utf-8":
                return data
        try:
            # Windows-1252 is Latin-1, with printable characters in place of control codes.
            return data.decode("cp1252").encode()
        except UnicodeDecodeError as error:
            bad_line = self.line + data.count(b"\n", 0, error.start)
            raise TableError(
                f"{self.name}: line {bad_line} is neither UTF-8 nor Latin-1; save the file as UTF-8"
            ) from error


def _ends_outside_quotes(data: bytes, delimiter: str) -> bool:
    """Return whether it is certain that a block ends outside quotes, and so with a record.

    Every other quote opens a field. A quote that is not at the start of a field is an ordinary
    character (5" pipe): then counting is not enough.
    """
    if b'"' not in data:
        return True
    text = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    opening = quotes[::2]
    before = text[opening[opening > 0] - 1]
    return len(quotes) % 2 == 0 and bool(np.isin(before, list(f'{delimiter}\n\r"'.encode())).all())


def _copy_to_arrow(data: bytes) -> Any:
    """Return a copy in Arrow's own memory.

    Arrow's threads may release their input late. If it is a Python object and the interpreter is
    ending, the process aborts (apache/arrow#36389, #39862).
    """
    import pyarrow as pa

    copy = pa.allocate_buffer(len(data))
    np.frombuffer(copy, np.uint8)[:] = np.frombuffer(data, np.uint8)
    return copy


def _find_delimiter(head: bytes, name: str) -> str:
    if b"\0" in head[:4096]:
        raise TableError(f"{name} is not text; give it the ending of its format")
    if b"\r" in head and b"\n" not in head:
        raise TableError(f"{name} has old Mac line ends (CR); save it with LF or CRLF")
    header = head.split(b"\n", 1)[0].decode("latin-1")
    stem = name.lower().removesuffix(".gz")
    expected = "\t" if stem.endswith((".tsv", ".tab", ".txt")) else ","
    best = max(_DELIMITERS, key=header.count)
    return best if expected not in header and best in header else expected


def _locate_gzip_damage(path: Path) -> str:
    """Return after which line a compressed text is in doubt, and why."""
    n_lines = 0
    try:
        with gzip.open(path) as file:
            for _ in file:
                n_lines += 1
    except EOFError:
        return f"after line {n_lines}: it is cut off"
    except (OSError, zlib.error) as error:
        if "CRC" in str(error) or "length" in str(error):
            return f"in line {n_lines} or before it: its checksum is wrong"
        return f"after line {n_lines}: {str(error).partition(': ')[2] or error}"
    return f"after line {n_lines}"
