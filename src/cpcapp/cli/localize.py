"""``cpcapp localize``: show where photos were spliced."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpcapp._io.text import printable
from cpcapp.cli._errors import (
    UserError,
    check_at_least,
    pick,
    require,
    spell_as_option,
    user_errors,
)
from cpcapp.cli._progress import ProgressLine

if TYPE_CHECKING:
    from cpcapp.splicing import PhotoResult

HELP = "show where photos were spliced"
DESCRIPTION = """Look for the seam of a pasted part in photos, and say of each whether there are
signs of splicing (p at most 0.05), weak signs (p at most 0.15) or none; p is the share of genuine
photos that scored as high. DIR gets, for each photo: NAME.overlay.png (the photo in grey with the
likely seam in colours, from purple to light yellow, and a blue line around what reaches the
threshold; both are fainter with weak signs, there are none without signs, and where the verdict is
"can't tell" the map is grey), NAME.boundary.png (the boundary map as it is, whatever the
verdict; grey 255 stands for boundary_white in NAME.json), NAME.region.png (white: the part that
may come from elsewhere; all black without signs), NAME.thumbnail.jpg and NAME.json (verdict,
p-value, JPEG quality and more); with --report also NAME.report.html and NAME.report.pdf.
summary.csv and the page index.html have all results in DIR. Pictures are upright, like the photo on
a screen. Photos that can't be read are named at the end, also GIF and raw files in a folder, and
the exit status is 1. After Ctrl-C the photos at hand are finished, and --resume goes on."""

MODEL_HELP = """a model of the package (default, filters or paper), or the path of a model file
(default: default)"""
DEVICE_HELP = """run the filters there, for example cuda (needs the extra torch; default: on the
processor, without torch)"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add = parser.add_argument
    photos = "files, folders or patterns: JPEG, PNG, TIFF, WebP, BMP, AVIF, HEIC"
    add("photos", nargs="+", metavar="PHOTO", help=photos)
    output = "folder for the results (default: %(default)s)"
    add("-o", "--output", type=Path, default=Path("cpcapp-output"), metavar="DIR", help=output)
    models = parser.add_mutually_exclusive_group()
    models.add_argument("--model", metavar="M", help=MODEL_HELP)
    fast = "use the quick model, without a network: the same as --model filters"
    models.add_argument("--fast", dest="model", action="store_const", const="filters", help=fast)
    add("--recursive", action="store_true", help="search the folders in a folder too")
    report = """write NAME.report.html and NAME.report.pdf too: verdict, pictures, what the file
    says, and how to repeat it (needs the extra report)"""
    add("--report", action="store_true", help=report)
    jobs = "photos at once; each takes memory of its own (default: %(default)s)"
    add("--jobs", type=int, default=1, metavar="J", help=jobs)
    add("--device", metavar="D", help=DEVICE_HELP)
    limit = """refuse larger photos, and kinds that take more than 12 MB of memory a megapixel
    of this limit to be read, such as a WebP of 76 megapixels (default: 120)"""
    add("--max-megapixels", type=float, default=120.0, metavar="MP", help=limit)
    add("--json", action="store_true", help="print the results as one JSON array, and nothing else")
    cluster = """look at the photos on the workers of a Dask cluster, which can open the same paths;
    the results are written here, and Ctrl-C drops the photos at hand (needs the extra dask)"""
    add("--scheduler", metavar="ADDRESS", help=cluster)
    earlier = parser.add_mutually_exclusive_group()
    resume = "go on in DIR; results that are there stay, if photo and model are the same"
    earlier.add_argument("--resume", action="store_true", help=resume)
    earlier.add_argument("--force", action="store_true", help="replace the results in DIR")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("splicing", "cv2", "PIL", "simplejpeg", "safetensors", "jinja2")
    if arguments.report:
        require("report", "reportlab")
    if arguments.scheduler is not None and arguments.device is not None:
        raise UserError("--device does not go with --scheduler; leave one out")
    if arguments.device is not None:
        require("torch", "torch")
    check_at_least(arguments, jobs=1)
    if not 1e-6 <= arguments.max_megapixels <= 1e6:  # nor is it NaN
        raise UserError(
            f"--max-megapixels {arguments.max_megapixels:g} must be above 0 and at most 1000000"
        )
    from cpcapp.splicing import localize_files

    start, cluster = time.monotonic(), open_cluster(arguments.scheduler)
    with user_errors(), cluster as client, ProgressLine("localizing") as progress:
        printer = _Printer(progress, arguments.json)
        results = localize_files(
            arguments.photos,
            arguments.output,
            max_pixels=1e6 * arguments.max_megapixels,
            client=client,
            on_result=printer.print_result,
            progress=progress,
            on_stop=lambda: progress.note("stopping after the photos at hand"),
            **pick(arguments, "model", "recursive", "report", "jobs", "resume", "force", "device"),
        )
    failed = [result for result in results if result.error]
    if arguments.json:
        print("\n]", flush=True)
    else:
        done, seconds = len(results) - len(failed), time.monotonic() - start
        page = printable(arguments.output / "index.html")
        print(f"{done} of {len(results)} photos in {seconds:.0f} s -> {page}", flush=True)
    for result in failed:
        print(f"cpcapp localize: {_error_text(result)}", file=sys.stderr)
    return 1 if failed else 0


def _error_text(result: PhotoResult) -> str:
    return result.message.text(spell_as_option) if result.message else result.error


class _Printer:
    """Prints each result as it comes: a line, or an item of a JSON array."""

    def __init__(self, progress: ProgressLine, as_json: bool) -> None:
        self.progress, self.as_json, self.is_first = progress, as_json, True

    def print_result(self, result: PhotoResult) -> None:
        self.progress.clear()
        if self.as_json:
            entry = result.to_dict()
            if result.error:
                entry["error"] = _error_text(result)
            item = json.dumps(entry, indent=1, allow_nan=False)
            print("[" if self.is_first else ",", item, sep="\n", end="", flush=True)
            self.is_first = False
        elif result.files is not None and not result.error:
            verdict = f": {result.verdict}" if result.verdict else ""
            remark = f" ({result.remark})" if result.remark else ""
            photo, overlay = printable(result.photo), printable(result.files.overlay)
            print(f"{photo} -> {overlay}{verdict}{remark}", flush=True)


def open_cluster(address: str | None) -> AbstractContextManager[Any]:
    """Give the client of a Dask cluster, or None without an address."""
    if address is None:
        return nullcontext()
    require("dask", "distributed")
    from cpcapp.moments.dask import connect

    return connect(address)
