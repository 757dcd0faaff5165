"""Delimited text: fast where all is well, and exact about what is not."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from cpcapp.tables._records import Block, blocks
from cpcapp.tables._table import Chunk, Progress, Table, TableError, require_unique

# Written by hand, by R, by pandas and by spreadsheets for "no value".
MISSING = frozenset(
    "NA N/A n/a #N/A #NA <NA> NaN nan NAN -nan NULL null None".split()  # noqa: SIM905
) | {""}

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SNIFFED_ROWS = 100
_DELIMITERS = ",\t;|"
_DECIMAL_COMMA = r"-?\d+,\d+([eE][-+]?\d+)?"


class CsvTable(Table):
    """A CSV or TSV file, compressed by gzip or not; or a stream, which is read once.

    Parameters
    ----------
    source : Path or binary file
    name : str
        For messages; its ending says which delimiter to expect.
    """

    place: ClassVar[str] = "line"

    def __init__(self, source: Path | IO[bytes], name: str) -> None:
        self.source, self.name = source, name
        self.again = isinstance(source, Path) and source.is_file()
        self._ahead: tuple[IO[bytes], bytes] | None = None
        with self._opened(keep=not self.again) as (stream, _):
            start = _read_start(stream, name)
            if not self.again:
                self._ahead = stream, start
        self.delimiter = _delimiter(start, name)
        self.columns, self._sample = self._read_header(start)
        self.decimal = _decimal(self._sample, self.delimiter)
        require_unique(self.columns, name)
        if self.columns and self.columns[0] == "":
            # R and pandas write the names of rows under an empty name.
            self.row_names = self.columns[0] = _free_name("row_name", self.columns)
        if "" in self.columns:
            number = self.columns.index("") + 1
            raise TableError(f"{name}: column {number} has no name in the first line; give it one")

    def _read_header(self, start: bytes) -> tuple[list[str], list[list[str]]]:
        text = _decoded(start[: start.rfind(b"\n") + 1] or start, self.name, 1)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)
        try:
            records = list(islice((record for record in reader if record), _SNIFFED_ROWS + 1))
        except csv.Error as error:
            raise TableError(f"{self.name}: line {reader.line_num}: {error}") from error
        if not records:
            raise TableError(f"{self.name} is empty")
        header, sample = [name.strip() for name in records[0]], records[1:]
        if sample and len(sample[0]) == len(header) + 1:
            header.insert(0, "")  # R's write.table names all columns but that of the row names
        return header, sample

    def text_columns(self, names: Sequence[str]) -> list[str]:
        """Return the columns of which no value in the first rows is a number."""
        found = []
        for name in names:
            place = self.columns.index(name)
            values = [r[place].strip() for r in self._sample if len(r) == len(self.columns)]
            values = [value for value in values if value not in MISSING]
            if values and all(self._number(value) is None for value in values):
                found.append(name)
        return found

    def chunks(
        self, features: Sequence[str], kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """Yield all rows; see `Table.chunks`."""
        done, header = 0, True
        with self._opened() as (stream, position):
            try:
                for block in blocks(stream, self.delimiter, self.name):
                    if header:
                        header, block = False, self._without_header(block)
                        if not len(block.lines):
                            continue
                    chunk = self._fast(block, features, kept, done)
                    if chunk is None:
                        chunk = self._exact(block, features, kept, done)
                    done += len(block.lines)
                    yield chunk
                    if progress is not None:
                        progress(position())
            except (EOFError, gzip.BadGzipFile, zlib.error, csv.Error) as error:
                raise TableError(f"{self.name} is damaged: {error}") from error

    # -- two ways to read a block --------------------------------------------------------------

    def _fast(
        self, block: Block, features: Sequence[str], kept: Sequence[str], done: int
    ) -> Chunk | None:
        """Return the rows of a block; None if anything about it is unusual."""
        import pyarrow as pa
        import pyarrow.csv

        types = {**dict.fromkeys(kept, pa.string()), **dict.fromkeys(features, pa.float64())}
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(_outside_python(block.data)),
                pa.csv.ReadOptions(
                    column_names=self.columns, block_size=max(1 << 20, 2 * block.longest)
                ),
                pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=block.quoted),
                pa.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=sorted(MISSING),
                    decimal_point=self.decimal,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(block.lines):
            return None
        values = np.empty((table.num_rows, len(features)))
        for place, name in enumerate(features):
            # to_numpy gives NaN for what is missing.
            values[:, place] = table[name].to_numpy()
        columns = {name: table[name].combine_chunks() for name in kept}
        return Chunk(done + 1 + np.arange(table.num_rows), block.lines, values, columns)

    def _exact(
        self, block: Block, features: Sequence[str], kept: Sequence[str], done: int
    ) -> Chunk:
        """Return the rows of a block that can be used, and what is wrong with the others."""
        import pyarrow as pa

        text = _decoded(block.data, self.name, int(block.lines[0]))
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)
        where = [self.columns.index(name) for name in features]
        whole: list[int] = []
        numbers: list[list[float]] = []
        columns: dict[str, list[str]] = {name: [] for name in kept}
        bad: dict[int, str] = {}
        broken: list[tuple[int, str]] = []
        try:
            for number, record in enumerate(record for record in reader if record):
                if len(record) != len(self.columns):
                    fields = f"{len(record)} field{'s' if len(record) > 1 else ''}"
                    reason = f"{fields} where the header has {len(self.columns)}"
                    broken.append((int(block.lines[number]), reason))
                    continue
                row = [self._number(record[place]) for place in where]
                for place, value in zip(where, row, strict=True):
                    if value is None:
                        reason = _not_a_number(self.columns[place], record[place])
                        bad.setdefault(len(whole), reason)
                whole.append(number)
                numbers.append([float("nan") if value is None else value for value in row])
                for name in kept:
                    columns[name].append(record[self.columns.index(name)])
        except csv.Error as error:
            line = int(block.lines[0]) + reader.line_num - 1
            raise TableError(f"{self.name}: line {line}: {error}") from error
        chosen = np.array(whole, dtype=np.int64)
        return Chunk(
            done + 1 + chosen,
            block.lines[chosen],
            np.array(numbers, dtype=np.float64).reshape(len(whole), len(features)),
            {name: pa.array(values, pa.string()) for name, values in columns.items()},
            bad,
            broken,
        )

    def _number(self, text: str) -> float | None:
        """Return a number, NaN for a missing value, None for anything else."""
        text = text.strip()
        if text in MISSING:
            return float("nan")
        try:
            return None if "_" in text else float(text.replace(self.decimal, "."))
        except ValueError:
            return None

    def _without_header(self, block: Block) -> Block:
        if len(block.lines) == 1:
            return Block(b"", block.lines[:0], 0)
        text = block.data.decode("latin-1")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)
        next(record for record in reader if record)
        lines = text.split("\n", reader.line_num)
        return Block(lines[-1].encode("latin-1"), block.lines[1:], block.longest)

    # -- files ---------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, *, keep: bool = False) -> Iterator[tuple[Any, Any]]:
        """Open the text from its start; also give a function that tells the share read."""
        if self._ahead is not None:
            stream, start = self._ahead
            yield _Chained(start, stream), lambda: 0.0
            return
        if not isinstance(self.source, Path):
            yield self.source, lambda: 0.0
            return
        file = self.source.open("rb")
        try:
            size = max(self.source.stat().st_size, 1)
            compressed = self.again and file.peek(2)[:2] == b"\x1f\x8b"
            text: Any = gzip.GzipFile(fileobj=file) if compressed else file
            if self.again and text.peek(3)[:3] == _UTF8_MARK:
                text.read(3)
            yield text, lambda: min(1.0, file.tell() / size)
        finally:
            if not keep:
                file.close()


def _outside_python(data: bytes) -> Any:
    """Return a copy in memory of Arrow's own.

    Its threads drop their hold on the input when they like. If that is a Python object and the
    interpreter is about to end, the process aborts (apache/arrow#36389, #39862).
    """
    import pyarrow as pa

    copy = pa.allocate_buffer(len(data))
    np.frombuffer(copy, np.uint8)[:] = np.frombuffer(data, np.uint8)
    return copy


class _Chained(io.RawIOBase):
    """A stream from which something was read already."""

    def __init__(self, start: bytes, stream: IO[bytes]) -> None:
        self.start, self.stream = start, stream

    def read(self, size: int = -1) -> bytes:
        start, self.start = self.start, b""
        return start + self.stream.read(size)


def _read_start(stream: IO[bytes], name: str) -> bytes:
    """Return the first lines, for the names of the columns and the kinds of values."""
    start, wanted = b"", 1 << 20
    try:
        while True:
            more = stream.read(wanted)
            start += more
            if not more or start.count(b"\n") > 2 or len(start) > 64 << 20:
                return start.removeprefix(_UTF8_MARK)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TableError(f"{name} is damaged: {error}") from error


def _delimiter(start: bytes, name: str) -> str:
    if start[:2] in _UTF16_MARKS:
        raise TableError(f"{name} is UTF-16; save it as UTF-8")
    if b"\0" in start[:4096]:
        raise TableError(f"{name} is no text; give it the ending of what it is")
    if b"\r" in start and b"\n" not in start:
        raise TableError(f"{name} has the line ends of old Macs (CR); save it with LF or CRLF")
    header = start.split(b"\n", 1)[0].decode("latin-1")
    stem = name.removesuffix(".gz").lower()
    expected = "\t" if stem.endswith((".tsv", ".tab", ".txt")) else ","
    if expected in header:
        return expected
    found = max(_DELIMITERS, key=header.count)
    return found if found in header else expected


def _decoded(data: bytes, name: str, line: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        place = line + data.count(b"\n", 0, error.start)
        raise TableError(
            f"{name}: line {place} is not UTF-8; save the file as UTF-8 (for example with iconv "
            "-f latin1 -t utf-8)"
        ) from error


def _decimal(sample: Sequence[Sequence[str]], delimiter: str) -> str:
    """Return the decimal mark: a comma where spreadsheets of many countries write one."""
    if delimiter == ",":
        return "."
    values = [value.strip() for record in sample for value in record]
    commas = sum(re.fullmatch(_DECIMAL_COMMA, value) is not None for value in values)
    points = sum(re.fullmatch(r"-?\d+\.\d+([eE][-+]?\d+)?", value) is not None for value in values)
    return "," if commas > points else "."


def _not_a_number(column: str, text: str) -> str:
    shown = text if len(text) <= 30 else text[:27] + "..."
    hint = " (a decimal comma? write 1.5)" if re.fullmatch(_DECIMAL_COMMA, text.strip()) else ""
    return f"column {column!r} is {shown!r}, not a number{hint}"


def _free_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name
