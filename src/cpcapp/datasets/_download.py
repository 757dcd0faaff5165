"""Downloading a file so that a broken connection costs only what had not come yet.

The file grows under the name ``NAME.part``. Beside it ``NAME.part.json`` keeps what the server
said of the file (its ETag, its date and its size), so that two versions are never joined.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pooch

from cpcapp._files import atomic_write
from cpcapp.datasets._errors import DataNotFoundError, DownloadError

CHUNK = 1 << 16
TIMEOUT = 30.0


@dataclass(frozen=True)
class _Version:
    """What tells one version of a remote file from another."""

    url: str
    etag: str | None = None
    modified: str | None = None
    size: int | None = None

    @property
    def is_known(self) -> bool:
        return (self.etag or self.modified) is not None and self.size is not None


class ResumingDownloader:
    """Fetch by HTTP for pooch, going on where an earlier attempt ended.

    Parameters
    ----------
    target : path
        What the file will be called. Half a file is kept beside it.
    known_hash : str or None
        ``"algorithm:hexdigest"`` that the whole file must have.
    magic : bytes
        How the file must begin.
    advice : str
        What to do where nothing can be fetched, as the end of a message.
    """

    def __init__(self, target: Path, known_hash: str | None, magic: bytes, advice: str) -> None:
        self.target = target
        self.known_hash = known_hash
        self.magic = magic
        self.advice = advice
        self.part = target.with_name(f"{target.name}.part")
        self.notes = target.with_name(f"{target.name}.part.json")

    def __call__(
        self, url: str, output_file: Any, pooch: Any = None, check_only: bool | None = False
    ) -> None:
        """Write the file to ``output_file``, the way pooch calls its downloaders."""
        import requests

        try:
            with requests.Session() as session:
                self._fetch(session, url)
        except requests.RequestException as error:
            raise self._failure(url, error) from error
        self._check(url)
        self.notes.unlink(missing_ok=True)
        self.part.replace(output_file)

    def _fetch(self, session: Any, url: str) -> None:
        begun = self._begun(url)
        if begun is not None:
            if self.part.stat().st_size == begun.size:
                return
            headers = _range_headers(self.part.stat().st_size, begun)
            with _get(session, url, headers) as answer:
                if self._goes_on(answer, begun):
                    self._receive(answer, "ab", begun)
                    return
                if answer.status_code == 200:
                    self._begin(answer, url)
                    return
        with _get(session, url, {}) as answer:
            answer.raise_for_status()
            self._begin(answer, url)

    def _begun(self, url: str) -> _Version | None:
        """Return the version of which a part is here, if it can be gone on with."""
        try:
            begun = _Version(**json.loads(self.notes.read_text()))
            here = self.part.stat().st_size
        except (OSError, ValueError, TypeError):
            return None
        usable = begun.is_known and begun.url == url and 0 < here <= (begun.size or 0)
        return begun if usable else None

    def _goes_on(self, answer: Any, begun: _Version) -> bool:
        """Whether the answer is the rest of the very file of which a part is here."""
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
        if answer.status_code != 206 or found is None:
            return False
        size = int(found[2])
        starts_here = int(found[1]) == self.part.stat().st_size
        return starts_here and _version(answer, begun.url, size) == begun

    def _begin(self, answer: Any, url: str) -> None:
        length = answer.headers.get("Content-Length", "")
        version = _version(answer, url, int(length) if length.isdigit() else None)
        # The old part goes first: never the notes of one version beside the part of another.
        self.part.unlink(missing_ok=True)
        with atomic_write(self.notes) as file:
            file.write(json.dumps(asdict(version)).encode())
        self._receive(answer, "wb", version)

    def _receive(self, answer: Any, mode: str, version: _Version) -> None:
        from tqdm import tqdm

        with (
            self.part.open(mode) as file,
            tqdm(
                desc=self.target.name,
                total=version.size,
                initial=file.tell(),
                unit="B",
                unit_scale=True,
                disable=None,  # shown on terminals only
            ) as progress,
        ):
            for chunk in answer.iter_content(CHUNK):
                file.write(chunk)
                progress.update(len(chunk))
        here = self.part.stat().st_size
        # urllib3 before version 2 takes a connection that broke for the end of the file.
        if version.size is not None and here != version.size:
            raise self._failure(version.url, f"{here} bytes came instead of {version.size}")

    def _failure(self, url: str, error: object) -> DataNotFoundError:
        here = self.part.stat().st_size if self.part.exists() else 0
        if not here:
            return DataNotFoundError(
                f"{self.target.name} is not here and can't be fetched from {url} "
                f"({_reason(error)}); {self.advice}"
            )
        begun = self._begun(url)
        of = f" of {begun.size}" if begun else ""
        again = "goes on from there" if begun else "starts anew, as the server can't resume"
        return DownloadError(
            f"fetching {url} broke off after {here}{of} bytes ({_reason(error)}); the next call "
            f"{again} (kept in {self.part}); or {self.advice}"
        )

    def _check(self, url: str) -> None:
        with self.part.open("rb") as file:
            head = file.read(len(self.magic))
        if head != self.magic:
            raise self._rejected(url, f"it begins with {head!r} instead of {self.magic!r}")
        if self.known_hash is None:
            return
        algorithm, _, expected = self.known_hash.rpartition(":")
        algorithm = algorithm or "sha256"
        found = pooch.file_hash(str(self.part), alg=algorithm)
        if found != expected.lower():
            raise self._rejected(url, f"expected {algorithm} {expected}, found {found}")

    def _rejected(self, url: str, why: str) -> DownloadError:
        aside = self.target.with_name(f"{self.target.name}.rejected")
        self.part.replace(aside)
        self.notes.unlink(missing_ok=True)
        return DownloadError(
            f"{self.target.name} from {url} is not the file it should be: {why}; what came is "
            f"kept as {aside}; {self.advice}"
        )


def _get(session: Any, url: str, headers: dict[str, str]) -> Any:
    # A compressed transfer would have another length and other bytes than the file.
    headers = {"Accept-Encoding": "identity", **headers}
    return session.get(url, headers=headers, stream=True, timeout=TIMEOUT)


def _range_headers(start: int, begun: _Version) -> dict[str, str]:
    headers = {"Range": f"bytes={start}-"}
    # Weak validators are not allowed in If-Range; the answer's own are compared in any case.
    if begun.etag and not begun.etag.startswith("W/"):
        headers["If-Range"] = begun.etag
    elif begun.modified and not begun.etag:
        headers["If-Range"] = begun.modified
    return headers


def _version(answer: Any, url: str, size: int | None) -> _Version:
    headers = answer.headers
    return _Version(url, headers.get("ETag"), headers.get("Last-Modified"), size)


def _reason(error: object) -> str:
    """Say in a few words what a long chain of exceptions means."""
    import requests

    if isinstance(error, requests.HTTPError):
        answer = error.response
        return f"the server answers {answer.status_code} {answer.reason}"
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT:g} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return "no secure connection"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error)
