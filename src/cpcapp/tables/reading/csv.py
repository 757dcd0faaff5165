"""Delimited text: a fast parser, and a careful one for blocks with anything unusual."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from cpcapp.tables.messages import TableError, count_of
from cpcapp.tables.reading.encodings import UTF8_MARK, UTF16_MARKS, TextEncoding, Utf16Stream
from cpcapp.tables.reading.gzip_damage import locate_gzip_damage
from cpcapp.tables.reading.numbers import MISSING, NumberMarks, find_marks
from cpcapp.tables.reading.records import Block, choose_block_bytes, read_blocks
from cpcapp.tables.reading.table import Chunk, Progress, Table, make_text_column, require_unique

_SNIFFED_ROWS = 100
_DELIMITERS = ",\t;|"
_RETURN, _NEWLINE = 13, 10
# C's spelling of a NaN with a payload, which Arrow takes for a number and Python does not.
_NAN_PAYLOAD = re.compile(rb"nan\(", re.IGNORECASE)


class CsvTable(Table):
    """A CSV or TSV file, with gzip or without; or a stream, which can be read once.

    Blocks of whole records are parsed by Arrow. What it refuses is parsed once more in Python,
    which gives the same numbers, knows more spellings, and names the lines of bad rows. Without
    Arrow everything is parsed in Python.

    Parameters
    ----------
    source : Path or binary file
    name : str
        For messages; its ending suggests the delimiter.

    Attributes
    ----------
    encoding : TextEncoding
    marks : NumberMarks
    """

    unit: ClassVar[str] = "line"

    def __init__(self, source: Path | IO[bytes], name: str) -> None:
        self.source, self.name = source, name
        self.rereadable = isinstance(source, Path) and source.is_file()
        self.encoding, self._grouped = TextEncoding(name), _GroupedNumbers()
        self._pushed_back: _PrefixedStream | None = None
        with self._naming_damage(), self._open(keep=not self.rereadable) as (stream, _):
            start = _read_head(stream)
            if not self.rereadable:
                self._pushed_back = _PrefixedStream(start, stream)
        self.delimiter = _find_delimiter(start, name)
        records = self._read_head_records(start)
        self.columns, self._sample = _split_header(records)
        values = (value for record in records[1:] for value in record)
        self.marks: NumberMarks = find_marks(values, self.delimiter)
        require_unique(self.columns, name)
        if self.columns and self.columns[0] == "":
            # R and pandas leave the column of row names without a name.
            self.row_names = self.columns[0] = unused_name("row_name", self.columns)
        if "" in self.columns:
            number = self.columns.index("") + 1
            raise TableError(f"{name}: column {number} has no name in the first line; give it one")

    def _read_head_records(self, start: bytes) -> list[list[str]]:
        whole = start[: start.rfind(b"\n") + 1] or start
        _refuse_stray_return(whole, self.name, 1)
        text = self.encoding.decode(self.encoding.to_utf8(whole, 1), 1)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)
        try:
            records = [record for record in reader if record]
        except csv.Error as error:
            raise TableError(f"{self.name}: line {reader.line_num}: {error}") from error
        if not records:
            raise TableError(f"{self.name} is empty")
        return records

    def reading_notes(self) -> list[str]:
        """Return what was recognised: an encoding, decimal commas, thousands separators."""
        notes = [self.encoding.note] if self.encoding.note else []
        if self.marks.decimal == ",":
            notes.append("decimal commas")
        if self._grouped.count:
            number = count_of(self._grouped.count, "number")
            notes.append(f"thousands separators in {number} ({self._grouped.example})")
        return notes

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns that have no number in the first rows."""
        found = []
        complete = [record for record in self._sample if len(record) == len(self.columns)]
        for name in names:
            index = self.column_index[name]
            values = [record[index].strip() for record in complete]
            values = [value for value in values if value not in MISSING]
            if values and not any(self.marks.looks_numeric(value) for value in values):
                found.append(name)
        return found

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows; see `Table.chunks`."""
        done, header, self._grouped = 0, True, _GroupedNumbers()
        with self._naming_damage(), self._open() as (stream, position):
            size = choose_block_bytes(len(self.columns))
            for block in read_blocks(stream, self.delimiter, self.name, size):
                if header:
                    header, block = False, self._drop_header(block)
                    if not len(block.lines):
                        continue
                first_line = int(block.lines[0])
                _refuse_stray_return(block.data, self.name, first_line)
                text = self.encoding.to_utf8(block.data, first_line)
                if text is not block.data:
                    # A character of Windows-1252 has up to three bytes in UTF-8.
                    block = replace(block, data=text, longest=3 * block.longest)
                chunk = self._parse_fast(block, features, kept, done)
                if chunk is None:
                    chunk = self._parse_carefully(block, features, kept, done)
                done += len(block.lines)
                yield chunk
                if progress is not None:
                    progress(position())

    # -- two parsers ---------------------------------------------------------------------------

    def _parse_fast(
        self, block: Block, features: Sequence[str], kept: Sequence[str], done: int
    ) -> Chunk | None:
        """Return the rows of a block, or None if anything in it is unusual."""
        try:
            import pyarrow as pa
            import pyarrow.csv
        except ImportError:
            return None
        if b"(" in block.data and _NAN_PAYLOAD.search(block.data):
            return None
        types = {**dict.fromkeys(kept, pa.string()), **dict.fromkeys(features, pa.float64())}
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(_copy_to_arrow(block.data)),
                pa.csv.ReadOptions(
                    column_names=self.columns, block_size=max(1 << 20, 2 * block.longest)
                ),
                # Arrow looks through a text twice where there may be lines within values.
                pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=block.multiline),
                pa.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=sorted(MISSING),
                    decimal_point=self.marks.decimal,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(block.lines):
            return None
        # A look-up by name costs Arrow more than the values of a short block.
        found = dict(zip(types, table.itercolumns(), strict=True))
        values = np.empty((table.num_rows, len(features)))
        for column, name in enumerate(features):
            # to_numpy gives NaN for what is missing.
            values[:, column] = found[name].to_numpy()
        columns = {name: found[name].combine_chunks() for name in kept}
        return Chunk(done + 1 + np.arange(table.num_rows), block.lines, values, columns)

    def _parse_carefully(
        self, block: Block, features: Sequence[str], kept: Sequence[str], done: int
    ) -> Chunk:
        """Return the rows of a block that can be used, and the problems of the others."""
        text = self.encoding.decode(block.data, int(block.lines[0]))
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)
        feature_indices = [self.column_index[name] for name in features]
        kept_indices = {name: self.column_index[name] for name in kept}
        whole: list[int] = []
        numbers: list[list[float]] = []
        columns: dict[str, list[str]] = {name: [] for name in kept}
        bad: dict[int, str] = {}
        unreadable: list[tuple[int, str]] = []
        try:
            records = [record for record in reader if record]
            if len(records) != len(block.lines):
                raise TableError(
                    f"{self.name}: between lines {block.lines[0]} and {block.lines[-1]} a record "
                    "can't be divided from the next; is there a quote or a carriage return (CR) "
                    "that does not belong there?"
                )
            for number, record in enumerate(records):
                if len(record) != len(self.columns):
                    fields = f"{len(record)} field{'s' if len(record) > 1 else ''}"
                    reason = f"{fields} where the header has {len(self.columns)}"
                    unreadable.append((int(block.lines[number]), reason))
                    continue
                line = int(block.lines[number])
                row = [self._to_number(record[index], line) for index in feature_indices]
                for index, value in zip(feature_indices, row, strict=True):
                    if value is None:
                        reason = self._describe_non_number(self.columns[index], record[index])
                        bad.setdefault(len(whole), reason)
                whole.append(number)
                numbers.append([float("nan") if value is None else value for value in row])
                for name, index in kept_indices.items():
                    columns[name].append(record[index])
        except csv.Error as error:
            line = int(block.lines[0]) + reader.line_num - 1
            raise TableError(f"{self.name}: line {line}: {error}") from error
        chosen = np.array(whole, dtype=np.int64)
        return Chunk(
            done + 1 + chosen,
            block.lines[chosen],
            np.array(numbers, dtype=np.float64).reshape(len(whole), len(features)),
            {name: make_text_column(values) for name, values in columns.items()},
            bad,
            unreadable,
        )

    def _to_number(self, text: str, line: int) -> float | None:
        """Return a number, NaN for a missing value, None for anything else."""
        value = self.marks.parse_plain(text)
        if value is None:
            value = self.marks.parse_grouped(text)
            if value is not None:
                self._grouped.add(text, value, line)
        return value

    def _describe_non_number(self, column: str, text: str) -> str:
        shown = text if len(text) <= 30 else text[:27] + "..."
        return f"column {column!r} is {shown!r}, not a number{self.marks.describe_problem(text)}"

    def _drop_header(self, block: Block) -> Block:
        if len(block.lines) == 1:
            return Block(b"", block.lines[:0], 0, multiline=False)
        end = 0
        for _ in range(int(block.lines[1]) - 1):
            end = block.data.index(b"\n", end) + 1
        return replace(block, data=block.data[end:], lines=block.lines[1:])

    # -- files ---------------------------------------------------------------------------------

    @contextmanager
    def _open(self, *, keep: bool = False) -> Iterator[tuple[Any, Any]]:
        """Open the text at its start; also give a function that returns the share read."""
        if self._pushed_back is not None:
            yield self._pushed_back, lambda: 0.0
            return
        if not isinstance(self.source, Path):
            yield self._remove_mark(self.source), lambda: 0.0
            return
        file = self.source.open("rb")
        try:
            size = max(self.source.stat().st_size, 1)
            compressed = self.rereadable and file.peek(2)[:2] == b"\x1f\x8b"
            text: Any = gzip.GzipFile(fileobj=file) if compressed else file
            yield self._remove_mark(text), lambda: min(1.0, file.tell() / size)
        finally:
            if not keep:
                file.close()

    def _remove_mark(self, stream: Any) -> Any:
        """Return a stream of UTF-8, or of what `encoding` turns into it, without a mark."""
        start = stream.read(3)
        if start[:2] in UTF16_MARKS:
            self.encoding.found = "utf-16"
            return Utf16Stream(_PrefixedStream(start, stream), self.name)
        return stream if start == UTF8_MARK else _PrefixedStream(start, stream)

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Turn what a damaged file raises into an error that says up to where it was good."""
        try:
            yield
        except csv.Error as error:
            raise TableError(f"{self.name} is damaged: {error}") from error
        # Only files are unpacked, no streams.
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            assert isinstance(self.source, Path)
            where = locate_gzip_damage(self.source)
            raise TableError(f"{self.name} is damaged {where}; use an undamaged copy") from error


class _GroupedNumbers:
    """Counts numbers with thousands separators, and keeps the first as an example."""

    def __init__(self) -> None:
        self.count, self.example = 0, ""

    def add(self, text: str, value: float, line: int) -> None:
        if not self.count:
            self.example = f"line {line}: {text.strip()!r} is {value:.15g}"
        self.count += 1


def _copy_to_arrow(data: bytes) -> Any:
    """Return a copy in Arrow's own memory.

    Arrow's threads may release their input late. If it is a Python object and the interpreter is
    ending, the process aborts (apache/arrow#36389, #39862).
    """
    import pyarrow as pa

    copy = pa.allocate_buffer(len(data))
    np.frombuffer(copy, np.uint8)[:] = np.frombuffer(data, np.uint8)
    return copy


class _PrefixedStream(io.RawIOBase):
    """A stream, with bytes before it that were read already."""

    def __init__(self, start: bytes, stream: Any) -> None:
        self.start, self.stream = start, stream

    def read(self, size: int = -1) -> bytes:
        start, self.start = self.start, b""
        return start + bytes(self.stream.read(size))


def _read_head(stream: IO[bytes]) -> bytes:
    """Return the first lines: column names and a sample of the values."""
    start, wanted = b"", 1 << 20
    while True:
        more = stream.read(wanted)
        start += more
        if not more or start.count(b"\n") > 2 or len(start) > 64 << 20:
            return start


def _refuse_stray_return(data: bytes, name: str, line: int) -> None:
    """Raise `TableError` for a carriage return that neither ends a line nor is quoted.

    Some programs end a row there, and some do not.
    """
    if b"\r" not in data:
        return
    text = np.frombuffer(data, np.uint8)
    returns = np.flatnonzero(text[:-1] == _RETURN)
    if (text[returns + 1] == _NEWLINE).all():
        return
    quotes, counted = 0, 0
    for found in re.finditer(rb"\r(?!\n)", data):
        quotes, counted = quotes + data.count(b'"', counted, found.start()), found.start()
        if found.end() < len(data) and quotes % 2 == 0:
            before = data[: found.start()].lstrip(b"\r\n").count(b"\n")
            raise TableError(
                f"{name}: line {line + before} has a carriage return (CR) in the middle of it; "
                "remove it, or save the file with one kind of line ends"
            )


def _find_delimiter(start: bytes, name: str) -> str:
    if b"\0" in start[:4096]:
        raise TableError(f"{name} is not text; give it the ending of its format")
    if b"\r" in start and b"\n" not in start:
        raise TableError(f"{name} has old Mac line ends (CR); save it with LF or CRLF")
    header = start.split(b"\n", 1)[0].decode("latin-1")
    stem = name.lower().removesuffix(".gz")
    expected = "\t" if stem.endswith((".tsv", ".tab", ".txt")) else ","
    if expected in header:
        return expected
    found = max(_DELIMITERS, key=header.count)
    return found if found in header else expected


def _split_header(records: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the first rows."""
    header, sample = [name.strip() for name in records[0]], records[1 : _SNIFFED_ROWS + 1]
    if sample and len(sample[0]) == len(header) + 1:
        header.insert(0, "")  # R's write.table gives the row names no name
    return header, sample


def unused_name(name: str, taken: Sequence[str]) -> str:
    """Return a name for a column that no other has."""
    while name in taken:
        name += "_"
    return name
