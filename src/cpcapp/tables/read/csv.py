"""Delimited text: parsed by Arrow, and with anything unusual by Python's own parser."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from cpcapp.tables.messages import TableError, count_of, one_line
from cpcapp.tables.read.numbers import MISSING, describe_non_number, find_marks
from cpcapp.tables.read.table import Chunk, Progress, Table, require_unique

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
_ENCODINGS = {"latin-1": "Latin-1 (Windows-1252), not UTF-8", "utf-16": "UTF-16"}


class CsvTable(Table):
    """A CSV or TSV file, with gzip or without; a sheet as CSV; or a stream, to be read once.

    What Arrow refuses of a block is parsed once more by Python's parser, which gives the same
    numbers, knows more spellings, and names the lines of bad rows.
    """

    def __init__(self, source: Path | io.BufferedReader | bytes, name: str) -> None:
        self.source, self.name = source, name
        self.unit = "row" if isinstance(source, bytes) else "line"
        self.rereadable = isinstance(source, bytes) or (
            isinstance(source, Path) and source.is_file()
        )
        self._n_grouped, self._grouped = 0, ""  # numbers with thousands separators, and the first
        self._text = _Text(source, name)
        self._text.close()
        head = self._text.head
        self.delimiter = "," if isinstance(source, bytes) else _find_delimiter(head, name)
        lines = io.StringIO(self._text.decode(head), newline="\n")
        reader, records = csv.reader(lines, delimiter=self.delimiter), list[list[str]]()
        try:
            for record in reader:
                if record and not records:
                    self._header_lines = reader.line_num
                records += [record] if record else []
                if len(records) > _SNIFFED_ROWS:
                    break
        except csv.Error as error:
            raise self._explain(error, reader.line_num, 1) from error
        if not records:
            raise TableError(f"{name} is empty")
        header, self._sample = records[0], records[1:]
        self.columns = [column.strip() for column in header]
        if self._sample and len(self._sample[0]) == len(header) + 1:
            self.columns.insert(0, "")  # R's write.table gives the row names no name
        values = (value for record in self._sample for value in record)
        self.marks = find_marks(values, self.delimiter)
        require_unique(self.columns, name)
        if self.columns[0] == "":  # so R, pandas and spreadsheets write names of rows
            self.row_names = "row_name"
            while self.row_names in self.columns:
                self.row_names += "_"
            self.columns[0] = self.row_names
        if "" in self.columns:
            number = self.columns.index("") + 1
            raise TableError(f"{name}: column {number} has no name in the first line; give it one")

    def reading_notes(self) -> list[str]:
        """Return what was recognised: an encoding, decimal commas, thousands separators."""
        notes = [_ENCODINGS[e] for e in [self._text.encoding] if e in _ENCODINGS]
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
            self._text = _Text(self.source, self.name, self._text.encoding)
        self._n_grouped = 0
        wide = _BLOCK_BYTES_PER_COLUMN * len(self.columns)
        size = min(_MAX_BLOCK_BYTES, max(_BLOCK_BYTES, wide))
        text, n_rows = self._text, 0
        try:
            text.pass_over_header(self._header_lines)
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

        # Arrow takes a NaN with a payload, nan(1), for a number, and a lone CR for a line end.
        if b"(" in data and b"nan(" in data.lower():
            return None
        if b"\r" in data and data.count(b"\r") > data.count(b"\r\n"):
            return None
        if not _ends_record(data, self.delimiter):
            return None
        types = {**dict.fromkeys(kept, pa.string()), **dict.fromkeys(features, pa.float64())}
        n_lines = data.count(b"\n") + (not data.endswith(b"\n"))
        # Arrow parses parts of the block in parallel, and looks for lines to divide it.
        divides = b'"' not in data and len(data) < _PART_BYTES // 16 * n_lines
        # In Arrow's own memory: its threads may release their input late, and abort the process if
        # it is a Python object and the interpreter is ending (apache/arrow#36389, #39862).
        copy = pa.allocate_buffer(len(data))
        np.frombuffer(copy, np.uint8)[:] = np.frombuffer(data, np.uint8)
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(copy),
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
        values = np.empty((n_lines, len(features)))
        for index, name in enumerate(features):
            values[:, index] = columns[name].to_numpy()  # NaN for what is missing
        count = np.arange(n_lines)
        texts = {name: columns[name].combine_chunks() for name in kept}
        return Chunk(n_before + 1 + count, self._text.line + count, values, texts)

    def _parse_carefully(
        self, data: bytes, features: Sequence[str], kept: Sequence[str], n_before: int
    ) -> Chunk:
        """Return the rows of a block, and of a record that goes on after it; name bad ones."""
        import pyarrow as pa

        text, first_line, number = self._text, self._text.line, n_before
        n_lines = data.count(b"\n") + (not data.endswith(b"\n"))
        reader = csv.reader(text.lines(data), delimiter=self.delimiter)
        indices = [self.column_index[name] for name in features]
        places: list[tuple[int, int]] = []  # row and line of each record
        records: list[list[str]] = []
        numbers: list[list[float]] = []
        bad: dict[int, str] = {}
        unreadable: list[tuple[int, str]] = []
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
            values = [self._to_number(record[index], line) for index in indices]
            if None in values:
                first = values.index(None)
                wrong = record[indices[first]]
                hint = self.marks.describe_problem(wrong)
                bad[len(records)] = describe_non_number(features[first], wrong) + hint
            places.append((number, line))
            records.append(record)
            numbers.append([np.nan if value is None else value for value in values])
        text.line = first_line + reader.line_num
        rows, lines = np.array(places, dtype=np.int64).reshape(-1, 2).T
        texts = {name: [record[self.column_index[name]] for record in records] for name in kept}
        return Chunk(
            rows,
            lines,
            np.array(numbers, dtype=np.float64).reshape(len(records), len(features)),
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
                    self._grouped = f"{self.unit} {line}: {text.strip()!r} is {value:.15g}"
                self._n_grouped += 1
        return value

    def _explain(self, error: csv.Error, line: int, begin: int) -> TableError:
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


class _Text:
    """A text in blocks of whole lines: unpacked, without a mark, in UTF-8.

    ``line`` is the next one that was not parsed. ``encoding`` is "utf-8", "latin-1" or "utf-16",
    by the first bytes that are not ASCII. ``is_cut_off``: `lines` was asked for more than there is.
    """

    def __init__(
        self, source: Path | io.BufferedReader | bytes, name: str, encoding: str | None = None
    ) -> None:
        self.name, self.encoding, self.line, self.is_cut_off = name, encoding, 1, False
        self._stream: Any = source.open("rb") if isinstance(source, Path) else source
        if isinstance(source, bytes):
            self._stream = io.BufferedReader(cast(Any, io.BytesIO(source)))
        self._file, self._size, self.head = self._stream, 0, b""
        if isinstance(source, Path) and source.is_file():
            self._size = max(source.stat().st_size, 1)
        try:
            with self._naming_damage():
                self._skip_mark()
            while self.head.count(b"\n") < 3 and (more := self._read(_HEAD_BYTES)):
                self.head += more
        except BaseException:
            self.close()
            raise

    def _skip_mark(self) -> None:
        if self._size and self._stream.peek(2)[:2] == _GZIP_MARK:
            self._stream = gzip.GzipFile(fileobj=self._stream)
        start = self._stream.peek(3)[:3]
        if start[:2] in _UTF16_MARKS:
            self.encoding = "utf-16"
            self._stream = io.TextIOWrapper(self._stream, "utf-16", newline="\n")
        elif start == codecs.BOM_UTF8:
            self._stream.read(3)

    def share(self) -> float:
        """Return the share that has been read; 0 for streams."""
        return min(1.0, self._file.tell() / self._size) if self._size else 0.0

    def close(self) -> None:
        """Close the file; streams of others stay open."""
        if self._size:
            self._file.close()

    def pass_over_header(self, n_lines: int) -> None:
        """Leave out the first lines of the text."""
        self.head = b"\n".join(self.head.split(b"\n", n_lines)[n_lines:])
        self.line = n_lines + 1

    def read_block(self, size: int) -> bytes:
        """Return whole lines of about so many bytes; none at the end."""
        data, self.head = self.head, b""
        return data or self._read(size)

    def lines(self, data: bytes) -> Iterator[str]:
        """Yield the lines of a block, and those after it as long as anybody asks."""
        yield from io.StringIO(self.decode(data), newline="\n")
        while line := self._read(0):
            yield self.decode(line)
        self.is_cut_off = True

    def decode(self, data: bytes) -> str:
        """Return text, or raise `TableError` that names the line."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            bad_line = self.line + data.count(b"\n", 0, error.start)
            raise TableError(
                f"{self.name}: line {bad_line} is not UTF-8, as other lines are; correct it, or "
                "save the file as UTF-8"
            ) from error

    def _read(self, size: int) -> bytes:
        """Return so many bytes and those up to the end of a line, as UTF-8."""
        with self._naming_damage():
            data = self._stream.read(size)
            if data[-1:] not in ("\n", b"\n"):
                line = self._stream.readline(_MAX_LINE_BYTES)
                if len(line) == _MAX_LINE_BYTES:
                    raise TableError(
                        f"{self.name}: a line has more than {_MAX_LINE_BYTES >> 20} MB; is it text?"
                    )
                data += line
        return data.encode() if isinstance(data, str) else self._to_utf8(data)

    def _to_utf8(self, data: bytes) -> bytes:
        """Return Latin-1 as UTF-8.

        Where other bytes are UTF-8, those that are not stay as they are: they may be in a column
        that is not read.
        """
        if self.encoding == "utf-8" or data.isascii():
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

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Turn what damaged bytes raise into an error of one line."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise TableError(
                f"{self.name} is UTF-16 and damaged in line {self.line} or after it: "
                f"{error.reason}; use an undamaged copy"
            ) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TableError(
                f"{self.name} is damaged: {one_line(error)}; use an undamaged copy"
            ) from error


def _ends_record(data: bytes, delimiter: str) -> bool:
    """Return whether it is certain that a block ends outside quotes.

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


def _find_delimiter(head: bytes, name: str) -> str:
    """Return the delimiter that the ending of the name suggests, or else the most frequent one."""
    if b"\0" in head[:4096]:
        raise TableError(f"{name} is not text; give it the ending of its format")
    if b"\r" in head and b"\n" not in head:
        raise TableError(f"{name} has old Mac line ends (CR); save it with LF or CRLF")
    header = head.split(b"\n", 1)[0].decode("latin-1")
    stem = name.lower().removesuffix(".gz")
    expected = "\t" if stem.endswith((".tsv", ".tab", ".txt")) else ","
    best = max(_DELIMITERS, key=header.count)
    return best if expected not in header and best in header else expected
