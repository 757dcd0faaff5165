"""Finding the files of a data set: at hand, in the cache, or at their official source."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp.datasets._errors import DataNotFoundError, DownloadError, UnverifiedDownloadWarning
from cpcapp.datasets._registry import RemoteFile

PathLike = str | os.PathLike[str]

HASHES_FILE = "first-seen-hashes.json"
_INSTALL = "pip install 'cpcapp[datasets]'"
_RETRIES = 2  # after 1 second, and after 2 more
_TIMEOUT = 30.0  # seconds without a byte
_MAX_SECONDS = 3600.0  # for a file; the largest come in an hour at 0.3 MB/s


def home_folders(data_home: PathLike | None = None) -> list[Path]:
    """Return the folders in which files may lie, in the order in which they are looked through.

    ``data_home`` alone if it is given; else the folder named by the environment variable
    ``CPCAPP_DATA``, then the cache.

    Examples
    --------
    >>> [folder.as_posix() for folder in home_folders("/data")]
    ['/data']
    """
    if data_home is not None:
        return [Path(data_home).expanduser()]
    named = os.environ.get("CPCAPP_DATA")
    return [*([_absolute(named)] if named else []), cache_folder()]


def cache_folder() -> Path:
    """Return where fetched files are kept: ``CPCAPP_CACHE``, or the user's cache folder."""
    named = os.environ.get("CPCAPP_CACHE")
    if named:
        return _absolute(named)
    try:
        import pooch
    except ImportError:
        return Path("~/.cache/cpcapp").expanduser()
    return Path(pooch.os_cache("cpcapp"))


def _absolute(named: str) -> Path:
    """Return a folder by a path that still holds when a program goes to another folder."""
    return Path(named).expanduser().absolute()


def find(look: Callable[[Path], Path | None], data_home: PathLike | None = None) -> Path | None:
    """Return what ``look`` finds in the first folder where it finds something."""
    found = (look(folder) for folder in home_folders(data_home))
    return next((path for path in found if path is not None), None)


def fetch(file: RemoteFile, data_home: PathLike | None = None) -> Path:
    """Return the path of a file, fetched into the cache, or into ``data_home``, if need be.

    In ``data_home`` and ``CPCAPP_DATA`` a file is taken as it is. In the cache its hash is
    checked each time, and a file that is not whole is fetched again.

    Raises
    ------
    DataNotFoundError
        If it is not here and can't be fetched, for instance without a network.
    DownloadError
        If the connection breaks three times, or the file that came has another hash.
    """
    *_, folder = folders = home_folders(data_home)
    taken_as_they_are = folders if data_home is not None else folders[:-1]
    for place in taken_as_they_are:
        if (place / file.name).is_file():
            return place / file.name
    target = folder / file.name
    advice = f"get that file on another machine and put it at {target}"
    try:
        import pooch  # noqa: F401
        import requests  # noqa: F401
        import tqdm  # noqa: F401
    except ImportError as error:
        if target.is_file():
            return target
        raise DataNotFoundError(
            f"{target.name} is not here; to fetch it from {file.url}, install what that needs "
            f"with {_INSTALL}, or {advice}"
        ) from error

    known_hash = file.published_hash or _recorded_hash(folder, file)
    if _hash_matches(target, known_hash):
        return target
    if os.environ.get("CPCAPP_OFFLINE") == "1":
        raise DataNotFoundError(
            f"{target.name} is not here, and CPCAPP_OFFLINE=1 forbids to fetch it from "
            f"{file.url}; {advice}"
        )
    with _file_lock(folder):
        # Another job may have fetched it while this one waited.
        if known_hash is not None and _hash_matches(target, known_hash):
            return target
        found = _download(file, folder, known_hash, advice)
        if known_hash is None:
            _record_hash(folder, file, found)
    return target


def _download(file: RemoteFile, folder: Path, known_hash: str | None, advice: str) -> str:
    """Fetch a file, which gets its name once it is whole and its hash is right; return its SHA-256.

    After an attempt that fails, others follow.
    """
    import requests
    from urllib3.exceptions import ProtocolError, ReadTimeoutError

    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent, target.name)
    for attempt in range(1 + _RETRIES):
        if attempt:
            time.sleep(attempt)
        try:
            return _download_once(file, target, known_hash, advice)
        except (
            requests.RequestException,
            ProtocolError,
            ReadTimeoutError,
            DownloadError,
            _TooSlowError,
        ) as error:
            failure: Exception = error
    if isinstance(failure, ProtocolError):
        raise DownloadError(
            f"fetching {file.url} broke off in each of {1 + _RETRIES} attempts; try again, or "
            f"{advice}"
        ) from failure
    if not isinstance(failure, DownloadError):
        raise DataNotFoundError(
            f"{target.name} is not here and can't be fetched from {file.url} "
            f"({_reason(failure)}); {advice}"
        ) from failure
    raise failure


class _TooSlowError(Exception):
    """A server sends a file too slowly."""


def _download_once(file: RemoteFile, target: Path, known_hash: str | None, advice: str) -> str:
    import requests

    # A compressed transfer would have another length and other bytes than the file.
    headers = {"Accept-Encoding": "identity"}
    begin = time.monotonic()
    digests = {name: hashlib.new(name) for name in {"sha256", _split_hash(known_hash)[0]}}
    with (
        requests.get(file.url, headers=headers, stream=True, timeout=_TIMEOUT) as answer,
        atomic_write(target) as out,
    ):
        answer.raise_for_status()
        stated = int(answer.headers.get("Content-Length") or 0)
        _check_length(file, stated, advice)
        done = 0
        head = b""
        with _progress_bar(stated) as bar:
            # Whatever has come: a server could take days for a chunk of some length.
            while chunk := answer.raw.read1(1 << 16):
                done += len(chunk)
                _check_length(file, done, advice)
                if time.monotonic() - begin > _MAX_SECONDS:
                    raise _TooSlowError
                head = (head + chunk)[: len(file.magic)] if len(head) < len(file.magic) else head
                for digest in digests.values():
                    digest.update(chunk)
                out.write(chunk)
                bar.update(len(chunk))
        if head != file.magic:
            raise _wrong_file_error(
                file, f"it begins with {head!r} instead of {file.magic!r}", advice
            )
        algorithm, expected = _split_hash(known_hash)
        found = digests[algorithm].hexdigest()
        # Within the block: the file must not take its name if this raises.
        if known_hash is not None and found != expected:
            why = f"its hash is wrong, expected {known_hash} but got {found}"
            raise _wrong_file_error(file, why, advice)
    return digests["sha256"].hexdigest()


def _check_length(file: RemoteFile, n_bytes: int, advice: str) -> None:
    if n_bytes > file.max_bytes:
        why = f"it has more than {file.max_bytes >> 20} MiB"
        raise _wrong_file_error(file, why, advice)


def _progress_bar(total: int) -> Any:
    from tqdm import tqdm

    shown = sys.stderr is not None and sys.stderr.isatty()
    return tqdm(total=total or None, unit="B", unit_scale=True, leave=True, disable=not shown)


def _split_hash(known_hash: str | None) -> tuple[str, str]:
    """Return the algorithm and the digits of a hash such as ``"md5:..."``."""
    algorithm, _, expected = (known_hash or "").rpartition(":")
    return algorithm or "sha256", expected.lower()


def _wrong_file_error(file: RemoteFile, why: str, advice: str) -> DownloadError:
    name = Path(file.name).name
    return DownloadError(f"{name} from {file.url} is not the file it should be: {why}; {advice}")


def _reason(error: Exception) -> str:
    """Say in a few words what a long chain of exceptions means."""
    import requests
    from urllib3.exceptions import ReadTimeoutError

    if isinstance(error, _TooSlowError):
        return f"it is not whole after {_MAX_SECONDS:g} seconds"
    if isinstance(error, requests.HTTPError):
        answer = error.response
        return f"the server answers {answer.status_code} {answer.reason}"
    if isinstance(error, requests.Timeout | ReadTimeoutError):
        return f"no answer within {_TIMEOUT:g} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return "no secure connection"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error)


def _hash_matches(target: Path, known_hash: str | None) -> bool:
    if not target.is_file() or known_hash is None:
        return target.is_file()
    algorithm, expected = _split_hash(known_hash)
    with target.open("rb") as content:
        return hashlib.file_digest(content, algorithm).hexdigest() == expected


def _recorded_hashes(folder: Path) -> dict[str, dict[str, str]]:
    try:
        seen = json.loads((folder / HASHES_FILE).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder / HASHES_FILE} can't be read ({error}); remove it to record the hashes of "
            "fetched files anew"
        ) from error
    return dict(seen)


def _recorded_hash(folder: Path, file: RemoteFile) -> str | None:
    entry = _recorded_hashes(folder).get(file.name)
    return entry["hash"] if entry and entry["url"] == file.url else None


def _record_hash(folder: Path, file: RemoteFile, found: str) -> None:
    """Record the hash of a file that nobody publishes one of."""
    entry = {"hash": f"sha256:{found}", "url": file.url, "seen": f"{datetime.now(UTC):%Y-%m-%d}"}
    with atomic_write(folder / HASHES_FILE) as out:
        out.write(json.dumps({**_recorded_hashes(folder), file.name: entry}, indent=1).encode())
    warnings.warn(
        f"nobody is known to publish a hash of {file.url}, so {Path(file.name).name} can't be "
        f"verified; its SHA-256 {found} is recorded in {folder / HASHES_FILE} and checked from "
        "now on",
        UnverifiedDownloadWarning,
        stacklevel=2,
    )


@contextmanager
def _file_lock(folder: Path) -> Iterator[None]:
    """Let parallel jobs that need the same file wait for the first to fetch it."""
    try:
        import fcntl
    except ImportError:  # Windows: the hash shows if two were at it
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".fetching.lock").open("w")
    except OSError as error:
        raise DataNotFoundError(
            f"nothing can be fetched into {folder} ({error.strerror}); name another folder by "
            "CPCAPP_CACHE or data_home"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def import_extra(package: str, what: str) -> Any:
    """Import an optional package, or say which extra has it.

    Examples
    --------
    >>> import_extra("json", "this").dumps(1)
    '1'
    """
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{what} needs {package}; install it with: {_INSTALL}") from error
