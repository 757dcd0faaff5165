"""Finding the files of a data set: at hand, in the cache, or at their official source."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cpcapp._files import atomic_write
from cpcapp.datasets._errors import DataNotFoundError, DownloadError, UnverifiedDownloadWarning
from cpcapp.datasets._registry import RemoteFile

PathLike = str | os.PathLike[str]

HASHES_FILE = "first-seen-hashes.json"
_INSTALL = "pip install 'cpcapp[datasets]'"
_RETRIES = 2  # after 1 second, and after 2 more
_TIMEOUT = 30.0  # seconds without a byte


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
        import pooch
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
    with _file_lock(folder), _quiet_logger(pooch.get_logger()):
        _download(file, folder, known_hash, advice)
        if known_hash is None:
            _record_hash(folder, file, pooch.file_hash(str(target)))
    return target


def _download(file: RemoteFile, folder: Path, known_hash: str | None, advice: str) -> None:
    """Fetch a file with pooch: it gets its name once it is whole and its hash is right."""
    import pooch
    import requests

    http = pooch.HTTPDownloader(
        progressbar=sys.stderr is not None and sys.stderr.isatty(),
        chunk_size=1 << 16,
        timeout=_TIMEOUT,
        # A compressed transfer would have another length and other bytes than the file.
        headers={"Accept-Encoding": "identity"},
    )

    def download(url: str, output_file: str, caller: Any) -> None:
        http(url, output_file, caller)
        with Path(output_file).open("rb") as came:
            head = came.read(len(file.magic))
        if head != file.magic:
            raise _wrong_file_error(
                file, f"it begins with {head!r} instead of {file.magic!r}", advice
            )

    known = pooch.create(
        path=folder,
        base_url="",
        registry={file.name: known_hash},
        urls={file.name: file.url},
        retry_if_failed=_RETRIES,
    )
    try:
        known.fetch(file.name, downloader=download)
    except requests.exceptions.ChunkedEncodingError as error:
        raise DownloadError(
            f"fetching {file.url} broke off in each of {1 + _RETRIES} attempts; try again, or "
            f"{advice}"
        ) from error
    except requests.RequestException as error:
        raise DataNotFoundError(
            f"{(folder / file.name).name} is not here and can't be fetched from {file.url} "
            f"({_reason(error)}); {advice}"
        ) from error
    except ValueError as error:  # pooch's, of the hash; it names both
        raise _wrong_file_error(file, str(error).partition(". ")[0], advice) from error


def _wrong_file_error(file: RemoteFile, why: str, advice: str) -> DownloadError:
    name = Path(file.name).name
    return DownloadError(f"{name} from {file.url} is not the file it should be: {why}; {advice}")


def _reason(error: Exception) -> str:
    """Say in a few words what a long chain of exceptions means."""
    import requests

    if isinstance(error, requests.HTTPError):
        answer = error.response
        return f"the server answers {answer.status_code} {answer.reason}"
    if isinstance(error, requests.Timeout):
        return f"no answer within {_TIMEOUT:g} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return "no secure connection"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error)


def _hash_matches(target: Path, known_hash: str | None) -> bool:
    import pooch

    if not target.is_file() or known_hash is None:
        return target.is_file()
    algorithm, _, expected = known_hash.rpartition(":")
    return bool(pooch.file_hash(str(target), alg=algorithm or "sha256") == expected.lower())


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
def _quiet_logger(logger: logging.Logger) -> Iterator[None]:
    """Keep pooch from printing, which it does by default."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


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
