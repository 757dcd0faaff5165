"""Photos that lie in a bucket or on a server: folders by their URL, by way of fsspec."""

from __future__ import annotations

import io
import os
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any

from cpcapp._io.text import natural_order
from cpcapp.splicing.photo.file_search import read_suffixes
from cpcapp.splicing.photo.pixels import Pixels
from cpcapp.splicing.photo.read import MAX_BYTES, ImageError, ReadImage, read_image


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL such as ``s3://bucket/folder``."""
    return isinstance(path, str) and "://" in path


def list_folder(url: str) -> list[str]:
    """List the photos of a folder, or a single photo, by their URLs."""
    files, path = _open_system(url)
    try:
        found = files.find(path, maxdepth=1)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise OSError(f"{url} can't be listed: {' '.join(str(error).split())}") from error
    photos = [name for name in found if PurePosixPath(name).suffix.lower() in read_suffixes()]
    return sorted((files.unstrip_protocol(name) for name in photos), key=natural_order)


def read_remote(url: str) -> ReadImage:
    """Read a photo by its URL; see `cpcapp.splicing.read_image`."""
    return read_image(RemoteBytes(url))


def read_remote_pixels(url: str) -> Pixels:
    """Return the pixels of a photo by its URL, (height, width, 3)."""
    return read_remote(url).pixels


class RemoteBytes(io.BytesIO):
    """The content of a URL, which `read_image` reads like a file of that name."""

    def __init__(self, url: str) -> None:
        files, path = _open_system(url)
        try:
            with files.open(path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError as error:
            raise ImageError(f"{url}: does not exist; check the URL") from error
        # Each kind of storage has errors of its own.
        except Exception as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ImageError(f"{url}: can't be read ({reason})") from error
        super().__init__(data)
        self.name = url


def _open_system(url: str) -> tuple[Any, str]:
    try:
        fsspec = import_module("fsspec")
    except ImportError as error:
        raise ImportError(
            "needs fsspec for folders by URL; install it with: pip install 'cpcapp[dask]'"
        ) from error
    try:
        files, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise ValueError(f"{url} can't be opened: {' '.join(str(error).split())}") from error
    return files, path
