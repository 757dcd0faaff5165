"""Localizing very many photos on a cluster: one row a photo in a Parquet table."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import cv2

from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp._io.text import printable
from cpcapp._io.threads import shared_cores
from cpcapp.moments.dask import map_in_order
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.output.entries import describe_result
from cpcapp.splicing.output.files import ResultFiles
from cpcapp.splicing.output.folder import ResultsError, make_folder
from cpcapp.splicing.output.model_identity import open_model
from cpcapp.splicing.photo.file_search import find_images
from cpcapp.splicing.photo.read import MAX_PIXELS, check_max_pixels, file_bytes, read_image
from cpcapp.splicing.photo.remote import RemoteBytes, is_url, list_folder

# Rows and seconds after which a part of the table is written: so much is done again after a stop.
# Chosen by hand.
_ROWS_PER_PART = 1024
_SECONDS_PER_PART = 60.0
_PART = re.compile(r"photos-(\d{6})\.parquet")
# What a row says, of what the JSON file of a single photo says.
_TEXTS = ("file", "sha256", "format", "verdict", "verdict_code", "pasted_side_by", "error")
_NUMBERS = (
    *("score", "p_value", "threshold", "share_above_threshold"),
    *("region_share", "hot_spots_share", "seconds"),
)
_COUNTS = ("width", "height", "jpeg_quality")


@dataclass(frozen=True)
class PhotoTable:
    """What became of very many photos.

    Attributes
    ----------
    folder : Path
        With the parts of the table.
    n_photos, n_earlier, n_failed : int
        All photos, those of earlier runs, and those of this run that could not be used.
    """

    folder: Path
    n_photos: int
    n_earlier: int
    n_failed: int


def localize_to_table(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    model: SpliceLocalizer | str | os.PathLike[str] | None = None,
    *,
    client: Any,
    recursive: bool = False,
    resume: bool = False,
    force: bool = False,
    max_pixels: float = MAX_PIXELS,
    progress: Callable[[float], None] | None = None,
) -> PhotoTable:
    """Look for splices in very many photos on a Dask cluster, and write a Parquet table.

    The folder gets ``photos-000000.parquet`` and so on, each complete. A row has the verdict, the
    p-value and where the seam is, or the reason why the photo could not be used. There are no
    pictures: `cpcapp.splicing.localize_files` makes those of the photos that are worth a look.

    ``paths``: files, folders, patterns, or URLs of folders such as ``s3://bucket/photos``. The
    workers must be able to open them.

    ``resume``: go on: photos that are in the table already are not looked at again.
    """
    _require_pyarrow()
    check_max_pixels(max_pixels)
    if resume and force:
        raise ValueError("resume=True and force=True can't be combined; choose one")
    photos = list(dict.fromkeys(find_photos(paths, recursive=recursive)))
    localizer, identity = open_model(model)
    table = _TableWriter(Path(folder), identity)
    earlier = table.start(resume=resume, force=force)
    left = [photo for photo in photos if photo not in earlier]
    n_done, n_failed = len(photos) - len(left), 0
    work = partial(describe_photo, localizer, max_pixels)
    running = map_in_order(client, work, left, on_lost=_describe_lost)
    try:
        with closing(running):
            for number, row in enumerate(running, start=1):
                n_failed += row["error"] is not None
                table.add(row)
                if progress is not None:
                    progress((n_done + number) / len(photos))
    finally:
        # Also if it was stopped.
        table.write()
    return PhotoTable(table.folder, len(photos), n_done, n_failed)


def find_photos(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, recursive: bool = False
) -> Iterator[str]:
    """Yield photos as absolute paths or URLs: names that a worker understands too."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in given:
        if is_url(path):
            found = list_folder(str(path), recursive=recursive)
            if not found:
                raise FileNotFoundError(f"{path} holds no photos; check the URL")
            yield from found
        else:
            for file in find_images(path, recursive=recursive).readable:
                yield str(file.absolute())


def describe_photo(localizer: SpliceLocalizer, max_pixels: float, photo: str) -> dict[str, Any]:
    """Return the row of a photo.

    >>> from cpcapp.splicing import load_model
    >>> describe_photo(load_model("filters"), 1e8, "nowhere.jpg")["error"]
    'nowhere.jpg: does not exist; check the path'
    """
    row: dict[str, Any] = dict.fromkeys((*_TEXTS, *_NUMBERS, *_COUNTS, "seam_box", "notes"))
    row["file"] = photo
    try:
        data = file_bytes(RemoteBytes(photo) if is_url(photo) else photo)
        origin = {"sha256": hashlib.sha256(data).hexdigest()}
        # A worker has as many threads as it should use; OpenCV would take all cores for each.
        with shared_cores(os.cpu_count() or 1):
            image = read_image(data, max_pixels=max_pixels)
            found = localizer.localize(image)
        files = ResultFiles(Path(photo), Path(), "")
        threshold = float(localizer.threshold)
        entry = describe_result(files, image, found, threshold=threshold, origin=origin)
        row |= {name: entry[name] for name in row.keys() & entry.keys()}
        row["file"] = photo
        row["seam_box"] = None if entry["seam"] is None else list(entry["seam"]["box"])
    except MemoryError:
        row["error"] = f"{printable(photo)}: needs more memory than the worker has"
    except (OSError, ValueError, cv2.error) as error:
        reason = " ".join(str(error).split()).removeprefix("the image: ")
        name = printable(photo)
        row["error"] = f"{name}: {reason.removeprefix(f'{name}: ')}"
    return row


def _describe_lost(photo: str) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys((*_TEXTS, *_NUMBERS, *_COUNTS, "seam_box", "notes"))
    reason = "workers died of it again and again; look at it on its own"
    return row | {"file": photo, "error": f"{printable(photo)}: {reason}"}


class _TableWriter:
    """The parts of a table in a folder; each is complete, and says which model it is of."""

    def __init__(self, folder: Path, identity: dict[str, str]) -> None:
        self.folder, self.identity = folder, identity
        self._rows: list[dict[str, Any]] = []
        self._number, self._last = 0, time.monotonic()

    def start(self, *, resume: bool, force: bool) -> set[str]:
        """Return the photos that are in the table, or raise `ResultsError`."""
        make_folder(self.folder)
        remove_leftovers(self.folder)
        parts = sorted(path for path in self.folder.iterdir() if _PART.fullmatch(path.name))
        if force:
            for path in parts:
                path.unlink()
            return set()
        if parts and not resume:
            raise ResultsError(
                f"{printable(parts[0])} is there already",
                "{resume} to go on, {force} to replace, or choose another {folder}",
                resume=True,
                force=True,
            )
        found = {name for path in parts for name in self._read(path)}
        self._number = 1 + int(parts[-1].name[7:13]) if parts else 0
        return found

    def _read(self, path: Path) -> list[str]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(path) as file:
                about = json.loads((file.schema_arrow.metadata or {})[b"cpcapp"])
                names: list[str] = file.read(columns=["file"])["file"].to_pylist()
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise ResultsError(
                f"{printable(path)} is no part of a table of photos", "choose another {folder}"
            ) from error
        if about != self.identity:
            raise ResultsError(
                f"{printable(path)} is of another model",
                "choose another {folder}, or {force} to replace it",
                force=True,
            )
        return names

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        late = time.monotonic() - self._last > _SECONDS_PER_PART
        if late or len(self._rows) >= _ROWS_PER_PART:
            self.write()

    def write(self) -> None:
        """Write the rows since the last part, if there are any."""
        if not self._rows:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields = [(name, pa.string()) for name in _TEXTS]
        fields += [(name, pa.float64()) for name in _NUMBERS]
        fields += [(name, pa.int32()) for name in _COUNTS]
        fields += [("seam_box", pa.list_(pa.int32())), ("notes", pa.list_(pa.string()))]
        schema = pa.schema(fields, metadata={"cpcapp": json.dumps(self.identity)})
        part = pa.Table.from_pylist(self._rows, schema=schema)
        with atomic_write(self.folder / f"photos-{self._number:06d}.parquet") as file:
            pq.write_table(part, file)
        self._rows, self._number, self._last = [], self._number + 1, time.monotonic()


def _require_pyarrow() -> None:
    try:
        import_module("pyarrow")
    except ImportError as error:
        raise ImportError("needs pyarrow; install it with: pip install 'cpcapp[dask]'") from error
