"""Files that clients send: read no further than they may be long, and no longer than they may."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, Collection
from pathlib import Path
from typing import IO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from cpcapp.web.errors import PageError
from cpcapp.web.settings import FORM_BYTES, MAX_FIELD_BYTES, MAX_PARTS, Settings

# Characters of a name that are shown.
_MAX_NAME = 150


class _FormParser(MultiPartParser):
    """Starlette's, which takes a form that is cut off for a whole one."""

    complete = False

    def on_end(self) -> None:
        self.complete = True

    async def parse(self) -> FormData:
        chunks = self.stream

        async def check_end() -> AsyncGenerator[bytes, None]:
            async for chunk in chunks:
                yield chunk
            if not self.complete:
                raise MultiPartException("it is cut off.")

        self.stream = check_end()
        return await super().parse()


async def receive_form(
    request: Request,
    folder: Path,
    settings: Settings,
    *,
    files: Collection[str],
    fields: Collection[str] = (),
) -> tuple[dict[str, str], dict[str, str]]:
    """Read a form, and write its files to a folder, each under the name of its field.

    Returns what the client calls each file, to be shown and never to be opened, and the fields.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise PageError(
            "not_a_form",
            "The request must be a form with a file (multipart/form-data).",
            "For example: curl -F file=@photo.jpg ADDRESS/api/localize",
        )
    chunks = receive_chunks(request, settings, settings.max_bytes * len(files) + FORM_BYTES)
    limits = {"max_files": MAX_PARTS, "max_fields": MAX_PARTS, "max_part_size": MAX_FIELD_BYTES}
    parser = _FormParser(request.headers, chunks, **limits)
    try:
        form = await parser.parse()
    except (MultiPartException, FormParserError) as error:
        raise PageError("broken_form", f"The form can't be read: {error}") from error
    names: dict[str, str] = {}
    values: dict[str, str] = {}
    try:
        for name, value in form.multi_items():
            is_field = isinstance(value, str)
            if name not in (fields if is_field else files) or name in names | values:
                expected = ", ".join(sorted({*files, *fields}))
                text = f"The form has a field too many; it may have: {expected}."
                raise PageError("unknown_field", text)
            if isinstance(value, str):
                values[name] = value
                continue
            if (value.size or 0) > settings.max_bytes:
                raise _too_large(settings)
            names[name] = clean_name(value.filename or "")
            # The name of the field, which is one of ours: a client's name is never a path.
            await asyncio.to_thread(_save, value.file, folder / name)
    finally:
        await form.close()
    for name in files:
        if name not in names:
            raise PageError("no_file", f"The form has no file {name!r}.", "Choose a file.")
    return names, values


async def receive_chunks(
    request: Request, settings: Settings, limit: int
) -> AsyncGenerator[bytes, None]:
    """Yield the body of a request, of at most so many bytes."""
    length = request.headers.get("content-length", "")
    n_bytes = int(length) if length.isdecimal() else 0
    end = time.monotonic() + settings.upload_seconds
    stream = request.stream()
    received = 0
    try:
        while max(n_bytes, received) <= limit:
            left = min(settings.stall_seconds, end - time.monotonic())
            async with asyncio.timeout(max(left, 0.0)):
                chunk = await anext(stream)
            received += len(chunk)
            yield chunk
    except StopAsyncIteration:
        return
    except TimeoutError as error:
        raise PageError("too_slow", "The upload took too long.", "Try again.") from error
    except ClientDisconnect as error:
        raise PageError("hung_up", "The upload broke off.") from error
    raise _too_large(settings)


def _too_large(settings: Settings) -> PageError:
    return PageError(
        "too_large",
        f"The file is larger than {settings.max_bytes / 1e6:,.0f} MB.",
        "Send a smaller file, or start the server with a larger --max-megabytes.",
    )


def _save(source: IO[bytes], path: Path) -> None:
    with path.open("xb") as target:
        shutil.copyfileobj(source, target)


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
