"""Localizing many photos, by threads or on a cluster, and writing the results to a folder."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2

from cpcapp._io.files import remove_leftovers
from cpcapp._io.messages import Message
from cpcapp._io.tensor_file import read_format
from cpcapp._io.text import natural_order, printable
from cpcapp._io.threads import map_threads, shared_cores
from cpcapp.reports.pdf import require_reportlab
from cpcapp.splicing import model as model_file
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.output.folder import (
    REPORTS,
    PhotoResult,
    ResultFiles,
    ResultsError,
    check_folder,
    is_complete,
    is_result_picture,
    make_result,
    name_results,
    read_entry,
    write_overviews,
    write_result,
)
from cpcapp.splicing.photo.files import advise_unread, explain_unread, find_images
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
    client: Any = None,
    on_result: Callable[[PhotoResult], None] | None = None,
    progress: Callable[[float], None] | None = None,
    on_stop: Callable[[], None] | None = None,
) -> list[PhotoResult]:
    """Show where photos were spliced, and write the results to a folder.

    The folder gets, for each photo, ``NAME.overlay.png``, ``NAME.boundary.png``, ``NAME.json``,
    ``NAME.thumbnail.jpg`` and, of a calibrated model, ``NAME.region.png``; and ``summary.csv`` and
    ``index.html`` of all results in it. If it is stopped (Ctrl-C), the photos at hand are finished
    and everything that is done is kept.

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
    client : distributed.Client, optional
        Looks at the photos on the workers of a Dask cluster, which can open the same paths, as many
        at once as it has threads. The results are written here. If it is stopped, the photos at
        hand are dropped.
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
    if device is not None and client is not None:
        raise ValueError(f"device={device!r} can't be used on a cluster; leave it out")
    check_max_pixels(max_pixels)
    if report:
        require_reportlab()
    folder = Path(folder)
    photos, unreadable = _find_photos(paths, recursive)
    if client is not None:
        # Names that a worker understands too.
        photos = [photo.absolute() for photo in photos]
    named = name_results(photos, folder)
    remove_leftovers(folder)
    check_folder(folder, named, resume=resume, force=force)
    localizer, identity = open_model(model)
    if device is not None:
        from cpcapp.splicing.devices import to_device

        localizer = to_device(localizer, device)
    _make_folder(folder)
    items: list[ResultFiles | Path] = [*named, *unreadable]
    items.sort(key=lambda item: natural_order(item if isinstance(item, Path) else item.photo))
    tasks = (_Task.of(item, resume) for item in items)
    # Where a model of the user lies is not told.
    model_name = Path(model).name if isinstance(model, str | os.PathLike) else ""
    job = _Job(localizer, identity, max_pixels, report, model_name)
    shares = _Shares(progress, len(items))
    if client is None:
        work = partial(_localize_here, job=job, shares=shares)
        running = map_threads(work, tasks, jobs=jobs, on_stop=on_stop)
    else:
        running = _localize_on_cluster(client, tasks, job, shares)
    results: list[PhotoResult] = []
    try:
        with closing(running):
            for result in running:
                results.append(result)
                if on_result is not None:
                    on_result(result)
    finally:
        # Also if it was stopped: table and page show what is done.
        write_overviews(folder, results)
    return results


def open_model(
    model: SpliceLocalizer | str | os.PathLike[str] | None = None,
) -> tuple[SpliceLocalizer, dict[str, str]]:
    """Return a localizer, and its name, version and the SHA-256 of its file.

    ``model``: a localizer, the name of a model of the package, or the path of a file; by default
    the default model. The hash of a localizer is that of the file it would be saved as; of one that
    was moved to a device that of the file it was read from.
    """
    if isinstance(model, SpliceLocalizer):
        localizer = model
        sha256 = model.file_sha256 if model.device is not None else None
        if sha256 is None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.safetensors"
                model_file.save_model(model, path)
                sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        try:
            localizer = read_model(model)
        except OSError as error:
            reason = error.strerror or str(error)
            raise model_file.ModelError(f"can't use the model: {reason}") from error
        # Of the bytes that it was read from: the file may be another one by now.
        sha256 = str(localizer.file_sha256)
    return localizer, {"name": localizer.name, "version": localizer.version, "sha256": sha256}


def read_model(model: str | os.PathLike[str] | None) -> SpliceLocalizer:
    """Read a model: one that `load_model` reads, or MFCN, which only networks know."""
    with model_file.find_model_file(model) as path:
        if read_format(path) != "cpcapp-mfcn":
            return model_file.load_model() if model is None else model_file.load_model(model)
        try:
            from cpcapp.splicing.networks.mfcn_localizer import read_localizer
        except ImportError as error:
            raise model_file.ModelError(
                f"{path} needs {error.name}; install it with: pip install 'cpcapp[torch]'"
            ) from error
        with model_file.model_errors(path):
            return read_localizer(path)


@dataclass(frozen=True)
class _Job:
    """What is the same for all photos."""

    localizer: SpliceLocalizer
    identity: dict[str, str]
    max_pixels: float
    report: bool
    model_name: str


@dataclass(frozen=True)
class _Task:
    """A photo to be localized, and what there is of an earlier result that may stay."""

    photo: Path
    files: ResultFiles | None
    entry: dict[str, Any] | None = None
    complete: bool = False

    @classmethod
    def of(cls, item: ResultFiles | Path, resume: bool) -> _Task:
        if isinstance(item, Path):
            return cls(item, None)
        entry = read_entry(item.entry) if resume else None
        return cls(item.photo, item, entry, entry is not None and is_complete(item, entry))

    def explain_renewal(self, origin: dict[str, Any], *, report: bool) -> str:
        """Return why the earlier result has to be made again; nothing if it can stay."""
        assert self.entry is not None and self.files is not None
        if self.entry["sha256"] != origin["sha256"]:
            if Path(self.entry["file"]).resolve() != self.photo.resolve():
                raise ValueError(
                    f"{printable(self.files.entry)} is of another photo, "
                    f"{printable(self.entry['file'])}; choose another folder for the results, or "
                    "force to replace it"
                )
            return "made again: the photo has changed"
        if self.entry["model"] != origin["model"]:
            return "made again: with another model"
        if not self.complete:
            return "made again: was not complete"
        if report and not (self.entry.get("report") and self.entry.get("report_pdf")):
            return "made again: with a report"
        return ""


# What became of a photo, and the contents of the files that are to be written.
_Done = tuple[PhotoResult, dict[str, bytes]]


def _localize_here(task: _Task, *, job: _Job, shares: _Shares) -> PhotoResult:
    with shares.of_photo() as progress:
        return _write(_localize(task, job, progress))


def _localize_on_cluster(
    client: Any, tasks: Iterable[_Task], job: _Job, shares: _Shares
) -> Generator[PhotoResult]:
    from cpcapp.moments.dask import map_in_order

    work = partial(_localize_on_worker, job=job)
    with closing(map_in_order(client, work, tasks, on_lost=_explain_lost)) as running:
        for done in running:
            with shares.of_photo():
                result = _write(done)
            yield result


def _localize_on_worker(task: _Task, *, job: _Job) -> _Done:
    # A worker has as many threads as it should use; OpenCV would take all cores for each.
    with shared_cores(os.cpu_count() or 1):
        return _localize(task, job, None)


def _explain_lost(task: _Task) -> _Done:
    return _fail(task, "workers died of it again and again; look at it on its own")


def _localize(task: _Task, job: _Job, progress: Callable[[float], None] | None) -> _Done:
    if task.files is None:
        advice = advise_unread([task.photo]).format(them="it")
        return _fail(task, f"{task.photo.suffix} files are not read; {advice}")
    try:
        data, remark = file_bytes(task.photo), ""
        # Read once: the hash is that of the pixels, also if the file is replaced meanwhile.
        origin = {"sha256": hashlib.sha256(data).hexdigest(), "model": job.identity}
        if task.entry is not None:
            remark = task.explain_renewal(origin, report=job.report)
            if not remark:
                return PhotoResult(task.photo, task.files, task.entry, "already done"), {}
        image = replace(read_image(data, max_pixels=job.max_pixels), name=task.photo.name)
        result = job.localizer.localize(image, progress=progress)
        reports = REPORTS if job.report else ()
        entry, contents = make_result(
            task.files, image, data, result, origin, reports=reports, model=job.model_name
        )
        return PhotoResult(task.photo, task.files, entry, remark), contents
    except MemoryError:
        return _fail(
            task, "needs more memory than there is; work on fewer photos at once or make it smaller"
        )
    except ImageError as error:
        return _fail(task, error.message.problem, error.message)
    except (OSError, ValueError, cv2.error) as error:
        return _fail(task, " ".join(str(error).split()))


def _write(done: _Done) -> PhotoResult:
    result, contents = done
    if result.files is not None and result.entry is not None and contents:
        try:
            write_result(result.files, result.entry, contents)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            folder = printable(result.files.folder)
            error_text = f"{printable(result.photo)}: can't write its results to {folder}: {reason}"
            return PhotoResult(result.photo, result.files, error=error_text)
    return result


def _fail(task: _Task, reason: str, message: Message | None = None) -> _Done:
    problem = f"{printable(task.photo)}: {reason.removeprefix('the image: ')}"
    if message is None:
        return PhotoResult(task.photo, task.files, error=problem), {}
    message = replace(message, problem=problem)
    return PhotoResult(task.photo, task.files, error=message.text(), message=message), {}


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
) -> tuple[list[Path], list[Path]]:
    """Return the photos, and images of kinds that are not read."""
    images = find_images(paths, recursive=recursive)
    if not images.readable:
        if not images.unreadable:
            raise ValueError("paths is empty; give files, folders or patterns")
        raise FileNotFoundError(f"no photo can be read: {explain_unread(images.unreadable)}")
    # Pictures of an earlier run may lie beside the photos.
    photos = [file for file in images.readable if not is_result_picture(file)]
    if not photos:
        first = printable(images.readable[0])
        raise ResultsError(f"{first} is a picture of an earlier result", "give photos")
    return photos, images.unreadable


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(
            f"can't make the folder {printable(folder)}: {error.strerror}"
        ) from error
    if not os.access(folder, os.W_OK):
        raise ResultsError(
            f"can't write to the folder {printable(folder)}", "choose another {folder}"
        )
