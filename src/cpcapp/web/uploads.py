"""Files that clients send: written to disk as they come, and counted while they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from cpcapp.web.errors import ApiError
from cpcapp.web.jobs import JobQueue, Place
from cpcapp.web.settings import Settings

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

# Of a field that is not a file: names of models and columns.
_MAX_FIELD_BYTES = 65_536
_MAX_PARTS = 16
# Of the headers of a part: the longest name that a file system has, and more.
_MAX_HEADER_BYTES = 8192
_MAX_NAME = 150
# Read and thrown away of what is refused; then the connection is closed.
_DISCARDED_BYTES = 16 << 20
# What a form adds to its files.
_FORM_BYTES = 1 << 20


@dataclass
class Upload:
    """What a form held.

    Attributes
    ----------
    files : dict
        The path of each file on disk, by the name of its field.
    names : dict
        What the client calls them: to be shown, never to be opened.
    fields : dict
        The other fields.
    """

    files: dict[str, Path] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)


async def receive_upload(
    request: Request,
    folder: Path,
    settings: Settings,
    *,
    files: Collection[str],
    fields: Collection[str] = (),
) -> Upload:
    """Read a form, and write its files to a folder, each under the name of its field."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise ApiError(
            415,
            "not_a_form",
            "The request must be a form with a file (multipart/form-data).",
            "For example: curl -F file=@photo.jpg ADDRESS/api/localize",
        )
    reader = _FormReader(folder, settings, frozenset(files), frozenset(fields))
    chunks = receive_chunks(request, settings)
    try:
        await _parse(reader, boundary, chunks, request.headers.get("content-length", ""))
    except ApiError:
        await _discard(chunks)
        raise
    finally:
        reader.close()
    missing = [name for name in files if name not in reader.upload.files]
    if missing:
        raise ApiError(422, "no_file", f"The form has no file {missing[0]!r}.", "Choose a file.")
    return reader.upload


@asynccontextmanager
async def reserve_for_upload(request: Request, jobs: JobQueue, client: str) -> AsyncIterator[Place]:
    """Give a place in the queue for what a form holds.

    If there is none, the form is read all the same, up to a limit: a connection that is closed on a
    client that still sends is an error to it, and not the answer that it should try again.
    """
    async with AsyncExitStack() as stack:
        try:
            place = await stack.enter_async_context(jobs.reserve(client))
        except ApiError:
            await _discard(receive_chunks(request, jobs.settings))
            raise
        yield place


async def _parse(
    reader: _FormReader, boundary: bytes, chunks: AsyncIterator[bytes], length: str
) -> None:
    settings = reader.settings
    limit = settings.max_bytes * len(reader.files) + _FORM_BYTES
    if length.isdecimal() and int(length) > limit:
        raise _too_large(settings)
    try:
        parser = MultipartParser(boundary, reader.callbacks(), max_size=limit)
        async for chunk in chunks:
            if parser.write(chunk) < len(chunk):
                raise _too_large(settings)
        parser.finalize()
    except MultipartParseError as error:
        raise ApiError(400, "broken_form", "The form is damaged or cut off.") from error
    if not reader.complete:
        raise ApiError(400, "broken_form", "The form is damaged or cut off.")


async def _discard(chunks: AsyncIterator[bytes]) -> None:
    """Read a little more of a form that is refused: most clients hear nothing while they send."""
    n_bytes = 0
    with suppress(ApiError):
        async for chunk in chunks:
            n_bytes += len(chunk)
            if n_bytes > _DISCARDED_BYTES:
                break


async def receive_chunks(request: Request, settings: Settings) -> AsyncIterator[bytes]:
    """Yield the body of a request."""
    end = time.monotonic() + settings.upload_seconds
    stream = request.stream()
    while True:
        left = min(settings.stall_seconds, end - time.monotonic())
        try:
            yield await asyncio.wait_for(anext(stream), max(left, 0.0))
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise ApiError(408, "too_slow", "The upload took too long.", "Try again.") from error
        except ClientDisconnect as error:
            raise ApiError(400, "hung_up", "The upload broke off.") from error


def _too_large(settings: Settings) -> ApiError:
    return ApiError(
        413,
        "too_large",
        f"The file is larger than {settings.max_bytes / 1e6:,.0f} MB.",
        "Send a smaller file, or start the server with a larger --max-megabytes.",
    )


class _FormReader:
    """What the parser of a form calls."""

    def __init__(
        self, folder: Path, settings: Settings, files: frozenset[str], fields: frozenset[str]
    ) -> None:
        self.folder, self.settings, self.files, self.fields = folder, settings, files, fields
        self.upload = Upload()
        self.complete = False
        self._n_parts = 0
        self._header, self._value = b"", b""
        self._name = ""
        self._file: IO[bytes] | None = None
        self._text = b""
        self._size = 0

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._add_header,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._open,
            "on_part_data": self._write,
            "on_part_end": self.close,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._n_parts += 1
        if self._n_parts > _MAX_PARTS:
            raise ApiError(400, "broken_form", f"The form has more than {_MAX_PARTS} parts.")
        self._disposition = b""
        self._name, self._text, self._size = "", b"", 0

    def _add_header(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._header += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._value += data[start:end]

    def _count_header(self, n_bytes: int) -> None:
        """Refuse long headers: they are kept in memory, and each further piece copies them."""
        self._size += n_bytes
        if self._size > _MAX_HEADER_BYTES:
            raise ApiError(400, "broken_form", "A part of the form has too long headers.")

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def _open(self) -> None:
        self._size = 0  # from here on that of the content
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        known = self.files | self.fields
        if self._name not in known or self._name in {*self.upload.files, *self.upload.fields}:
            expected = ", ".join(sorted(known))
            raise ApiError(
                422, "unknown_field", f"The form has a field too many; it may have: {expected}."
            )
        if self._name in self.files:
            # The name of the field, which is one of ours: a client's name is never a path.
            path = self.folder / self._name
            self._file = path.open("xb")
            self.upload.files[self._name] = path
            given = options.get(b"filename", b"").decode("utf-8", "replace")
            self.upload.names[self._name] = clean_name(given)

    def _write(self, data: bytes, start: int, end: int) -> None:
        self._size += end - start
        if self._file is None:
            self._text += data[start:end]
            if self._size > _MAX_FIELD_BYTES:
                raise ApiError(413, "too_large", f"The field {self._name!r} is too long.")
        elif self._size > self.settings.max_bytes:
            raise _too_large(self.settings)
        else:
            self._file.write(data[start:end])

    def close(self) -> None:
        """End a part."""
        if self._file is not None:
            self._file.close()
            self._file = None
        elif self._name in self.fields:
            self.upload.fields[self._name] = self._text.decode("utf-8", "replace")
        self._name = ""

    def _end(self) -> None:
        self.complete = True


def clean_name(name: str) -> str:
    r"""Return a file's name as it can be shown: without folders and signs that are not printed.

    >>> clean_name("C:\\photos\\cat.jpg"), clean_name("../../etc/passwd"), clean_name("a\nb\u202e")
    ('cat.jpg', 'passwd', 'a b')
    >>> clean_name("")
    'photo'
    """
    name = name.replace("\\", "/").rpartition("/")[2]
    shown = "".join(sign if sign.isprintable() else " " for sign in name)
    return " ".join(shown.split())[:_MAX_NAME] or "photo"
