"""Localizing many photos and writing the results to a folder."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2

from cpcapp._io.files import remove_leftovers
from cpcapp._io.messages import Message
from cpcapp._io.text import natural_order, printable
from cpcapp._io.threads import map_threads
from cpcapp.reports.pdf import require_reportlab
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.output.entries import (
    has_whole_pictures,
    has_whole_reports,
    is_result_picture,
    read_entry,
    write_result,
)
from cpcapp.splicing.output.files import (
    INDEX_NAME,
    SUMMARY_NAME,
    ResultFiles,
    name_results,
)
from cpcapp.splicing.output.folder import ResultsError, check_folder, make_folder
from cpcapp.splicing.output.index_page import write_index
from cpcapp.splicing.output.model_identity import open_model
from cpcapp.splicing.output.photo_result import PhotoResult
from cpcapp.splicing.output.report import PhotoReport
from cpcapp.splicing.output.summary import read_results, write_summary
from cpcapp.splicing.photo.file_search import (
    FoundImages,
    advise_unread,
    explain_unread,
    find_images,
)
from cpcapp.splicing.photo.read import (
    MAX_PIXELS,
    ImageError,
    check_max_pixels,
    file_bytes,
    read_image,
)


def localize_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    model: SpliceLocalizer | str | os.PathLike[str] | None = None,
    *,
    recursive: bool = False,
    report: bool = False,
    jobs: int = 1,
    resume: bool = False,
    force: bool = False,
    max_pixels: float = MAX_PIXELS,
    device: str | None = None,
    on_result: Callable[[PhotoResult], None] | None = None,
    progress: Callable[[float], None] | None = None,
    on_stop: Callable[[], None] | None = None,
) -> list[PhotoResult]:
    """Show where photos were spliced, and write the results to a folder.

    The folder gets, for each photo, ``NAME.overlay.png``, ``NAME.boundary.png``, ``NAME.json``,
    ``NAME.thumbnail.jpg`` and, of a calibrated model, ``NAME.region.png`` and
    ``NAME.hot_spots.png``; and ``summary.csv`` and ``index.html`` of all results in it. If it is
    stopped (Ctrl-C), the photos at hand are finished and everything that is done is kept.

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
    report : bool, default=False
        Whether to write ``NAME.report.html`` and ``NAME.report.pdf`` too: all that somebody needs
        to hand a result on, or to repeat it.
    jobs : int, default=1
        Photos at once; each takes memory of its own.
    resume : bool, default=False
        Keep earlier results in the folder, if photo and model are the same.
    force : bool, default=False
        Replace earlier results in the folder.
    max_pixels : int, default=120_000_000
        Larger photos are not read; see `read_image`.
    device : str, optional
        Where the filters run, such as ``"cuda"``; see `cpcapp.splicing.devices.to_device`. By
        default the CPU, without torch.
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
        ``error``. So has an image of a kind that is not read, such as GIF, in a folder.

    Raises
    ------
    FileNotFoundError
        If a path does not exist, or there is no photo that can be read.
    ModelError
        If the model can't be used.
    ResultsError
        If there are earlier results, and neither ``resume`` nor ``force``; or if the folder
        can't be written to.
    ImportError
        If a report is asked for without reportlab, which the extra ``report`` installs, or a device
        without torch, which the extra ``torch`` installs.

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
    ['index.html', 'summary.csv']
    """
    if jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1")
    if resume and force:
        raise ValueError("resume=True and force=True can't be combined; choose one")
    check_max_pixels(max_pixels)
    if report:
        require_reportlab()
    folder = Path(folder)
    found = _find_photos(paths, recursive)
    named = name_results(found.readable, folder)
    remove_leftovers(folder)
    check_folder(folder, named, resume=resume, force=force)
    localizer, identity = open_model(model)
    if device is not None:
        from cpcapp.splicing.devices import to_device

        localizer = to_device(localizer, device)
    make_folder(folder)
    items: list[ResultFiles | Path] = [*named, *found.unreadable]
    items.sort(key=_sort_key)
    shares = _Shares(progress, len(items))
    settings = None if not report else _settings(model)
    job = _Job(localizer, identity, resume, max_pixels, settings)
    work = partial(_localize_photo, job=job, shares=shares)
    results: list[PhotoResult] = []
    running = map_threads(work, items, jobs=jobs, on_stop=on_stop)
    try:
        with closing(running):
            for result in running:
                results.append(result)
                if on_result is not None:
                    on_result(result)
    finally:
        # Also if it was stopped: table and page show what is done.
        _write_overviews(folder, results)
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


@dataclass(frozen=True)
class _Job:
    """What is the same for all photos; with ``settings`` there are reports."""

    localizer: SpliceLocalizer
    identity: dict[str, str]
    resume: bool
    max_pixels: float
    settings: dict[str, Any] | None


def _settings(model: SpliceLocalizer | str | os.PathLike[str] | None) -> dict[str, Any]:
    """Return what a report says that was chosen by hand."""
    if model is None or isinstance(model, SpliceLocalizer):
        return {}
    # Where it lies is nobody's business.
    return {"model": Path(model).name}


def _localize_photo(item: ResultFiles | Path, *, job: _Job, shares: _Shares) -> PhotoResult:
    with shares.of_photo() as progress:
        return _localize_one(item, job, progress)


def _localize_one(
    item: ResultFiles | Path, job: _Job, progress: Callable[[float], None]
) -> PhotoResult:
    if isinstance(item, Path):
        advice = advise_unread([item]).format(them="it")
        reason = f"{item.suffix} files are not read; {advice}"
        return PhotoResult(item, error=f"{printable(item)}: {reason}")
    photo, message = item.photo, None
    try:
        # Read once: the hash is that of the pixels, also if the file is replaced meanwhile.
        content = _PhotoBytes(photo)
        origin = {"sha256": content.sha256, "model": job.identity}
        remark = ""
        if job.resume and (entry := read_entry(item.entry)) is not None:
            remark = _explain_renewal(item, entry, origin, report=job.settings is not None)
            if not remark:
                return PhotoResult(photo, item, entry, "already done")
        image = read_image(content, max_pixels=job.max_pixels)
        data = None if job.settings is None else content.getvalue()
        del content
        found = job.localizer.localize(image, progress=progress)
        report = None
        if job.settings is not None:
            report = PhotoReport.build(
                image, data, found, job.identity, name=photo.name, settings=job.settings
            )
        threshold = float(job.localizer.threshold)
        entry = write_result(item, image, found, threshold=threshold, origin=origin, report=report)
        return PhotoResult(photo, item, entry, remark)
    except MemoryError:
        reason = "needs more memory than there is; work on fewer photos at once or make it smaller"
    except OSError as error:
        reason = f"can't write its results to {printable(item.folder)}: {error.strerror}"
    except ImageError as error:
        reason, message = error.message.problem, error.message
    except (ValueError, cv2.error) as error:
        reason = " ".join(str(error).split())
    # An error of the reader begins with the path.
    path = printable(photo)
    reason = f"{path}: {reason.removeprefix(f'{path}: ')}"
    if message is not None:
        message = Message(reason, message.advice, message.values)
        reason = message.text()
    return PhotoResult(photo, item, error=reason, message=message)


def _explain_renewal(
    files: ResultFiles, entry: dict[str, Any], origin: dict[str, Any], *, report: bool
) -> str:
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
    if not has_whole_pictures(files, entry):
        return "made again: was not complete"
    if report and not (entry.get("report") and has_whole_reports(files)):
        return "made again: with a report"
    return ""


def _write_overviews(folder: Path, results: list[PhotoResult]) -> None:
    entries = read_results(folder, results)
    for write, name in ((write_summary, SUMMARY_NAME), (write_index, INDEX_NAME)):
        try:
            write(folder, entries)
        except OSError as error:
            path = printable(folder / name)
            raise ResultsError(f"can't write {path}: {error.strerror}") from error
