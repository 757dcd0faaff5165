"""Localizing many photos and writing the results to a folder."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cv2

from cpcapp._leftovers import remove_leftovers
from cpcapp._parallel import map_threads
from cpcapp._text import natural_order, printable
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.photos.file_search import FoundImages, explain_unread, find_images
from cpcapp.splicing.photos.images import file_bytes, read_image
from cpcapp.splicing.results.entries import (
    has_whole_pictures,
    is_result_picture,
    read_entry,
    write_result,
)
from cpcapp.splicing.results.files import SUMMARY_NAME, ResultFiles, name_results
from cpcapp.splicing.results.folder import ResultsError, check_folder, make_folder
from cpcapp.splicing.results.model_identity import open_model
from cpcapp.splicing.results.photo_result import PhotoResult
from cpcapp.splicing.results.summary import write_summary


def localize_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    model: SpliceLocalizer | str | os.PathLike[str] | None = None,
    *,
    recursive: bool = False,
    jobs: int = 1,
    resume: bool = False,
    force: bool = False,
    on_result: Callable[[PhotoResult], None] | None = None,
    progress: Callable[[float], None] | None = None,
    on_stop: Callable[[], None] | None = None,
) -> list[PhotoResult]:
    """Show where photos were spliced, and write the results to a folder.

    The folder gets, for each photo, ``NAME.overlay.png``, ``NAME.boundary.png``, ``NAME.json``
    and, of a calibrated model, ``NAME.region.png`` and ``NAME.hot_spots.png``; and one
    ``summary.csv`` of all results in it. If it is stopped (Ctrl-C), the photos at hand are
    finished and everything that is done is kept.

    Parameters
    ----------
    paths : path or iterable of paths
        Files, folders or patterns such as ``"in/*.jpg"``.
    folder : path
        For the results; it is made if need be.
    model : SpliceLocalizer, str or path, optional
        A localizer, the name of a model of the package, or the path of a file. Without it, the
        default model.
    recursive : bool, default=False
        Whether to search the folders in a folder too.
    jobs : int, default=1
        Photos at once; each takes memory of its own.
    resume : bool, default=False
        Keep earlier results in the folder, if photo and model are the same.
    force : bool, default=False
        Replace earlier results in the folder.
    on_result : callable, optional
        Called with each `PhotoResult` when it is ready, in the order of the photos.
    progress : callable, optional
        Called with the share done, from 0 to 1.
    on_stop : callable, optional
        Called without arguments if it is stopped early, before the photos at hand are finished.

    Returns
    -------
    list of PhotoResult
        In natural order: ``2.jpg`` before ``10.jpg``. A photo that can't be read has an
        ``error``. So has an image of a kind that is not read, such as HEIC, in a folder.

    Raises
    ------
    FileNotFoundError
        If a path does not exist, or there is no photo that can be read.
    ModelError
        If the model can't be used.
    ResultsError
        If there are earlier results, and neither ``resume`` nor ``force``; or if the folder
        can't be written to.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import cv2
    >>> from cpcapp.splicing.examples import example_photos
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> cv2.imwrite(str(folder / "cup.png"), example_photos()[1].image[..., ::-1])
    True
    >>> result, = localize_files(folder, folder / "out", "filters")
    >>> result.photo.name, result.entry["width"], result.error
    ('cup.png', 640, '')
    >>> sorted(path.name for path in (folder / "out").iterdir())[-2:]
    ['cup.region.png', 'summary.csv']
    """
    if jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1")
    if resume and force:
        raise ValueError("resume=True and force=True can't be combined; choose one")
    folder = Path(folder)
    found = _find_photos(paths, recursive)
    named = name_results(found.readable, folder)
    remove_leftovers(folder)
    check_folder(folder, named, resume=resume, force=force)
    localizer, identity = open_model(model)
    make_folder(folder)
    items: list[ResultFiles | Path] = [*named, *found.unreadable]
    items.sort(key=_sort_key)
    shares = _Shares(progress, len(items))
    work = partial(
        _localize_photo, localizer=localizer, identity=identity, resume=resume, shares=shares
    )
    results: list[PhotoResult] = []
    running = map_threads(work, items, jobs=jobs, on_stop=on_stop)
    try:
        with closing(running):
            for result in running:
                results.append(result)
                if on_result is not None:
                    on_result(result)
    finally:
        # Also if it was stopped: the table shows what is done.
        _write_summary(folder, results)
    return results


class _Shares:
    """How much of each photo is done; several threads may tell."""

    def __init__(self, report: Callable[[float], None] | None, count: int) -> None:
        self._report, self._count = report, count
        self._done, self._lock = 0.0, threading.Lock()
        self._add(0.0)

    @contextmanager
    def of_photo(self) -> Iterator[Callable[[float], None]]:
        """Give what is to be called with the share of a photo; in the end all of it is done."""
        last = 0.0

        def tell(share: float) -> None:
            nonlocal last
            last, step = share, share - last
            self._add(step)

        try:
            yield tell
        finally:
            tell(1.0)

    def _add(self, step: float) -> None:
        with self._lock:
            self._done += step
            if self._report is not None:
                self._report(min(1.0, self._done / self._count))


def _find_photos(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], recursive: bool
) -> FoundImages:
    found = find_images(paths, recursive=recursive)
    if not found.readable:
        if not found.unreadable:
            raise ValueError("paths is empty; give files, folders or patterns")
        raise FileNotFoundError(f"no photo can be read: {explain_unread(found.unreadable)}")
    # Pictures of an earlier run may lie beside the photos.
    photos = [file for file in found.readable if not is_result_picture(file)]
    if not photos:
        first = printable(found.readable[0])
        raise ResultsError(f"{first} is a picture of an earlier result", "give photos")
    return FoundImages(photos, found.unreadable)


def _sort_key(item: ResultFiles | Path) -> list[str | int]:
    return natural_order(item.photo if isinstance(item, ResultFiles) else item)


class _PhotoBytes(io.BytesIO):
    """The bytes of a photo, which `read_image` reads like a file of that name."""

    def __init__(self, photo: Path) -> None:
        data = file_bytes(photo)
        super().__init__(data)
        self.name = os.fspath(photo)
        self.sha256 = hashlib.sha256(data).hexdigest()


def _localize_photo(
    item: ResultFiles | Path,
    *,
    localizer: SpliceLocalizer,
    identity: dict[str, str],
    resume: bool,
    shares: _Shares,
) -> PhotoResult:
    with shares.of_photo() as progress:
        return _localize_one(item, localizer, identity, resume, progress)


def _localize_one(
    item: ResultFiles | Path,
    localizer: SpliceLocalizer,
    identity: dict[str, str],
    resume: bool,
    progress: Callable[[float], None],
) -> PhotoResult:
    if isinstance(item, Path):
        reason = f"{item.suffix} files are not read; save it as JPEG or PNG"
        return PhotoResult(item, error=f"{printable(item)}: {reason}")
    photo = item.photo
    try:
        # Read once: the hash is that of the pixels, also if the file is replaced meanwhile.
        content = _PhotoBytes(photo)
        origin = {"sha256": content.sha256, "model": identity}
        remark = ""
        if resume and (entry := read_entry(item.entry)) is not None:
            remark = _explain_renewal(item, entry, origin)
            if not remark:
                return PhotoResult(photo, item, entry, "already done")
        image = read_image(content)
        del content
        found = localizer.localize(image, progress=progress)
        threshold = float(localizer.threshold)
        entry = write_result(item, image, found, threshold=threshold, origin=origin)
        return PhotoResult(photo, item, entry, remark)
    except MemoryError:
        reason = "needs more memory than there is; work on fewer photos at once or make it smaller"
    except OSError as error:
        reason = f"can't write its results to {printable(item.folder)}: {error.strerror}"
    except (ValueError, cv2.error) as error:
        reason = " ".join(str(error).split())
    # An error of the reader begins with the path.
    path = printable(photo)
    return PhotoResult(photo, item, error=f"{path}: {reason.removeprefix(f'{path}: ')}")


def _explain_renewal(files: ResultFiles, entry: dict[str, Any], origin: dict[str, Any]) -> str:
    """Return why an earlier result has to be made again; nothing if it can stay."""
    if entry["sha256"] != origin["sha256"]:
        if Path(str(entry["file"])).resolve() != files.photo.resolve():
            raise ValueError(
                f"{printable(files.entry)} is of another photo, {printable(entry['file'])}; "
                "choose another folder for the results, or force to replace it"
            )
        return "made again: the photo has changed"
    if entry["model"] != origin["model"]:
        return "made again: with another model"
    return "" if has_whole_pictures(files, entry) else "made again: was not complete"


def _write_summary(folder: Path, results: list[PhotoResult]) -> None:
    try:
        write_summary(folder, results)
    except OSError as error:
        path = printable(folder / SUMMARY_NAME)
        raise ResultsError(f"can't write {path}: {error.strerror}") from error
