"""``cpcapp localize``: show where photos were spliced."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cpcapp import __version__
from cpcapp._files import atomic_write
from cpcapp.cli._cores import shared_cores
from cpcapp.cli._errors import UserError, require
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli._results import (
    SUMMARY,
    Result,
    Target,
    digest,
    is_picture,
    is_summary,
    is_whole,
    name_targets,
    number,
    printable,
    read_entry,
    write_summary,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cpcapp.splicing.localizer import Localization, SpliceLocalizer


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "localize",
        help="show where photos were spliced",
        description="Look for the seam of a pasted part in photos, and say of each whether there "
        "are signs of splicing; p is the share of authentic photos that would look as suspicious. "
        "DIR gets, for each of them, NAME.overlay.png (the photo in grey with the likely seam in "
        "colours, from purple to light yellow, and a blue line around what reaches the "
        "threshold), NAME.boundary.png (the map alone; grey 255 stands for boundary_white in "
        "NAME.json), NAME.region.png (white: the part that may come from elsewhere, whatever the "
        "verdict), NAME.hot_spots.png (white: places that stand out even among thousands) and "
        "NAME.json, and one summary.csv of all that is in it. Pictures are upright, "
        "like the photo on a screen. "
        "Photos that can't be used are named at the end, and the exit status is 1.",
    )
    parser.add_argument(
        "photos",
        nargs="+",
        metavar="PHOTO",
        help="files, folders or patterns: JPEG, PNG, TIFF, WebP, BMP",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("cpcapp-output"),
        metavar="DIR",
        help="folder for the results (default: %(default)s)",
    )
    parser.add_argument(
        "--model", type=Path, metavar="M", help="a trained model (default: the one shipped)"
    )
    parser.add_argument("--recursive", action="store_true", help="take the folders in a folder too")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="J",
        help="photos at once; each takes memory of its own (default: %(default)s)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the results as one JSON array, and nothing else",
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--resume",
        action="store_true",
        help="go on in DIR; what is done stays, if photo and model are the same",
    )
    again.add_argument("--force", action="store_true", help="replace the results in DIR")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    for module in ("cv2", "PIL", "safetensors"):
        require(module, "splicing")
    if arguments.jobs < 1:
        raise UserError(f"--jobs {arguments.jobs} must be at least 1")
    start, folder = time.monotonic(), arguments.output
    targets = name_targets(_photos(arguments.photos, arguments.recursive), folder)
    _check_folder(folder, targets, arguments)
    model = open_model(arguments.model)
    _make_folder(folder)
    results: list[Result] = []
    try:
        with shared_cores(arguments.jobs):
            _localize_all(targets, model, arguments, results)
    finally:
        # Of a run that was stopped, too: what is done is done.
        try:
            write_summary(folder, results)
        except OSError as error:
            raise UserError(f"can't write {folder / SUMMARY}: {error.strerror}") from error
    failed = [result for result in results if result.error]
    if not arguments.json:
        print(
            f"{len(results) - len(failed)} of {len(results)} photos in "
            f"{time.monotonic() - start:.0f} s -> {printable(folder / SUMMARY)}",
            flush=True,
        )
    for result in failed:
        print(f"cpcapp localize: {result.error}", file=sys.stderr)
    return 1 if failed else 0


def _photos(paths: Sequence[str], recursive: bool) -> list[Path]:
    from cpcapp.splicing.photos.images import image_files

    try:
        found = image_files(paths, recursive=recursive)
    except (OSError, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from error
    # Pictures of an earlier run may lie beside the photos.
    photos = [file for file in found if not is_picture(file)]
    if not photos:
        raise UserError(f"{printable(found[0])} was made by this command; give photos")
    return photos


def _check_folder(folder: Path, targets: Sequence[Target], arguments: argparse.Namespace) -> None:
    """See that nothing gets lost unless it is said to."""
    photos = {target.photo.resolve() for target in targets}
    there = [path for target in targets for path in target.outputs if os.path.lexists(path)]
    for path in there:
        if path.resolve() in photos:
            raise UserError(
                f"{printable(path)} is a photo and would be replaced; choose another -o"
            )
    summary = folder / SUMMARY
    if not arguments.force and summary.is_file() and not is_summary(summary):
        raise UserError(
            f"{printable(summary)} is not of this command; choose another -o, or --force to replace it"
        )
    if there and not (arguments.resume or arguments.force):
        more = f", with {len(there) - 1} more" if len(there) > 1 else ""
        raise UserError(
            f"{printable(there[0])} is there already{more}; --resume to go on, --force to replace, "
            "or choose another -o"
        )


def open_model(path: Path | None) -> SpliceLocalizer:
    """Return a model, the shipped one by default, or raise `UserError`."""
    from cpcapp.splicing import load_model

    try:
        return load_model(path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"can't use the model: {reason}") from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"can't make the folder {printable(folder)}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise UserError(f"can't write to the folder {printable(folder)}; choose another -o")


def _localize_all(
    targets: Sequence[Target],
    model: SpliceLocalizer,
    arguments: argparse.Namespace,
    results: list[Result],
) -> None:
    """Localize photos; add the results, and tell of them, in the order of the photos."""
    stop = threading.Event()
    work = partial(
        _localize,
        model=model,
        identity=_identity(model, arguments.model),
        resume=arguments.resume,
        stop=stop,
    )
    with ThreadPoolExecutor(arguments.jobs) as pool, ProgressLine("localizing") as progress:
        try:
            progress(0.0)
            for job in [pool.submit(work, target) for target in targets]:
                result = job.result()
                results.append(result)
                last = len(results) == len(targets)
                _tell(result, progress, arguments.json, first=len(results) == 1, last=last)
                progress(len(results) / len(targets))
        except BaseException:
            stop.set()
            if progress.shown:
                progress.stream.write("\nstopping after the photos at hand\n")
            pool.shutdown(cancel_futures=True)
            raise


def _tell(
    result: Result, progress: ProgressLine, as_json: bool, *, first: bool, last: bool
) -> None:
    if progress.shown and sys.stdout.isatty():
        progress.stream.write("\r" + " " * 79 + "\r")
        progress.stream.flush()
    if as_json:
        entry = json.dumps(result.to_dict(), indent=1)
        print("[" if first else ",", entry, "]" if last else "", sep="\n", end="", flush=True)
        if last:
            print(flush=True)
    elif not result.error:
        remark = f" ({result.remark})" if result.remark else ""
        verdict = _verdict(result.entry or {})
        print(
            f"{printable(result.target.photo)} -> {printable(result.target.overlay)}{verdict}{remark}",
            flush=True,
        )


def _verdict(entry: dict[str, Any]) -> str:
    """Return what a line says of a photo."""
    if not entry.get("verdict"):
        return ""
    p_value = entry.get("p_value")
    return f": {entry['verdict']}" + ("" if p_value is None else f", p = {p_value:.2g}")


def _localize(
    target: Target,
    *,
    model: SpliceLocalizer,
    identity: dict[str, str],
    resume: bool,
    stop: threading.Event,
) -> Result:
    import cv2

    try:
        origin = {"sha256": digest(target.photo), "model": identity}
        remark = ""
        if resume and (entry := read_entry(target.entry)) is not None:
            remark = _why_again(target, entry, origin)
            if not remark:
                return Result(target, entry, "was there")
        return Result(target, _localize_and_write(target, model, origin, stop), remark)
    except MemoryError:
        reason = "needs more memory than there is; use fewer --jobs or make it smaller"
    except OSError as error:
        reason = f"can't write its results to {printable(target.folder)}: {error.strerror}"
    except (ValueError, cv2.error) as error:
        reason = " ".join(str(error).split())
    # An error of the reader begins with the path.
    path = printable(target.photo)
    return Result(target, error=f"{path}: {reason.removeprefix(f'{path}: ')}")


def _localize_and_write(
    target: Target, model: SpliceLocalizer, origin: dict[str, Any], stop: threading.Event
) -> dict[str, Any]:
    """Write all files of a photo; return what the last of them, the entry, says."""
    from cpcapp.splicing.photos.images import read_image

    _go_on_unless(stop)
    image = read_image(target.photo)
    _go_on_unless(stop)
    found = model.localize(image)
    _go_on_unless(stop)
    height, width = image.pixels.shape[:2]
    threshold = float(model.threshold)
    mask, hot_spots = found.mask, found.hot_spots
    entry: dict[str, Any] = {
        "file": str(target.photo),
        **origin,
        "cpcapp": __version__,
        "format": image.format,
        "width": width,
        "height": height,
        "notes": list(found.notes),
        "verdict": getattr(found, "verdict", None),
        "score": number(found.score),
        "p_value": number(found.p_value),
        "threshold": number(threshold),
        "share_above_threshold": number((found.boundary >= threshold).mean()),
        "seam": strongest_place(found.boundary, threshold),
        "seconds": number(found.seconds),
        "overlay": target.overlay.name,
        "boundary": target.boundary.name,
        "boundary_white": number(white_of(found.boundary, threshold)),
        "region": None if mask is None else target.region.name,
        "region_share": None if mask is None else number(mask.mean()),
        "hot_spots": None if hot_spots is None else target.hot_spots.name,
        "hot_spots_share": None if hot_spots is None else number(hot_spots.mean()),
    }
    # First to go and last to come: where it is, the pictures are whole and belong to it.
    target.entry.unlink(missing_ok=True)
    write_pictures(target, image.pixels, found, threshold)
    with atomic_write(target.entry) as file:
        file.write(json.dumps(entry, indent=1).encode())
    return entry


def _why_again(target: Target, entry: dict[str, Any], origin: dict[str, Any]) -> str:
    """Return why an earlier result is not good enough; nothing if it is."""
    if entry["sha256"] != origin["sha256"]:
        if Path(str(entry["file"])).resolve() != target.photo.resolve():
            raise ValueError(
                f"{printable(target.entry)} is of another photo, {printable(entry['file'])}; choose "
                "another -o, or --force to replace it"
            )
        return "made again: the photo has changed"
    if entry["model"] != origin["model"]:
        return "made again: by another model before"
    return "" if is_whole(target, entry) else "made again: was not complete"


def _identity(model: SpliceLocalizer, path: Path | None) -> dict[str, str]:
    """Return what tells a model from others, also from one of its name that was trained later."""
    shipped = files("cpcapp.splicing") / "models" / "default.safetensors"
    return {
        "name": model.name,
        "version": model.version,
        "sha256": digest(Path(str(shipped)) if path is None else path),
    }


def _go_on_unless(stop: threading.Event) -> None:
    if stop.is_set():
        raise CancelledError


def strongest_place(boundary: NDArray[np.float32], threshold: float) -> dict[str, Any] | None:
    """Return where a boundary map is highest, and the box of the piece of seam around it.

    Parameters
    ----------
    boundary : ndarray of shape (height, width), float32 in [0, 1]
    threshold : float
        The piece is what hangs together at this height or, if the map does not reach it, at
        half of its maximum.

    Returns
    -------
    dict or None
        With ``row``, ``column``, ``strength`` and ``box``: top, left, height, width. None if
        the map is 0 everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> boundary = np.zeros((40, 60), dtype=np.float32)
    >>> boundary[10:31, 20] = 0.5
    >>> boundary[25, 20] = 0.75
    >>> strongest_place(boundary, threshold=0.4)
    {'row': 25, 'column': 20, 'strength': 0.75, 'box': [10, 20, 21, 1]}
    """
    import cv2

    row, column = (int(i) for i in divmod(int(boundary.argmax()), boundary.shape[1]))
    strength = float(boundary[row, column])
    if strength <= 0.0:
        return None
    level = threshold if strength >= threshold else strength / 2
    _, labels, boxes, _ = cv2.connectedComponentsWithStats((boundary >= level).astype("uint8"))
    left, top, width, height = (int(side) for side in boxes[labels[row, column]][:4])
    return {
        "row": row,
        "column": column,
        "strength": number(strength),
        "box": [top, left, height, width],
    }


def white_of(boundary: NDArray[np.float32], threshold: float) -> float:
    """Return the value of a map that pictures show at its lightest.

    Models differ in how high their maps are, so it is the maximum; but of a map that does not
    reach the threshold, nothing may look like a seam.

    Examples
    --------
    >>> import numpy as np
    >>> white_of(np.array([[0.0, 0.5]], dtype=np.float32), threshold=0.1)
    0.5
    >>> white_of(np.array([[0.0, 0.01]], dtype=np.float32), threshold=0.1)
    0.1
    """
    return max(float(boundary.max()), threshold) or 1.0


def lightest_of(boundary: NDArray[np.float32], threshold: float) -> float:
    """Return the value of a map that an overlay shows at its lightest.

    A few places outshine the rest of a seam; an overlay has to show all of it, so the highest
    three of a thousand pixels look alike.

    Examples
    --------
    >>> import numpy as np
    >>> lightest_of(np.linspace(0, 1, 1001, dtype=np.float32), threshold=0.1)
    0.997
    >>> lightest_of(np.zeros((2, 2), dtype=np.float32), threshold=0.1)
    0.1
    """
    return max(round(float(np.quantile(boundary, 0.997)), 6), threshold) or 1.0


def write_pictures(
    target: Target, pixels: NDArray[Any], found: Localization, threshold: float
) -> None:
    """Write the overlay and the map of a photo, and region and places, if there are any."""
    from cpcapp.splicing.pictures.overlays import boundary_picture, overlay

    lightest = lightest_of(found.boundary, threshold)
    write_png(target.overlay, overlay(pixels, found.boundary, threshold, white=lightest))
    white = white_of(found.boundary, threshold)
    write_png(target.boundary, boundary_picture(found.boundary, white=white))
    for path, mask in ((target.region, found.mask), (target.hot_spots, found.hot_spots)):
        if mask is None:
            path.unlink(missing_ok=True)
        else:
            write_png(path, np.where(mask, np.uint8(255), np.uint8(0)))


def write_png(path: Path, picture: NDArray[np.uint8]) -> None:
    """Write an RGB or grey picture."""
    import cv2

    if picture.ndim == 3:
        picture = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".png", picture)
    with atomic_write(path) as file:
        file.write(bytes(data))
