"""``cpcapp make-splices``: paste parts of photos into others, and keep the exact masks."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpcapp._io.files import remove_leftovers
from cpcapp.cli._errors import UserError, check_at_least, pick, print_left_out, require, user_errors
from cpcapp.cli._progress import ProgressLine

if TYPE_CHECKING:
    from cpcapp.splicing.make.cuts import SpliceOptions


HELP = "make spliced photos with exact masks"
DESCRIPTION = (
    "Paste parts of photos into others. DIR gets images/ (PNG, or the very JPEG "
    "file where the splice was compressed), masks/ (white is pasted) and manifest.json, which "
    "says how each splice was made. The result depends on the photos, the options and the "
    "seed only."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add: Any = parser.add_argument
    photos = """files, folders or patterns; of the folder of BSDS500 the training and validation
    photos are taken, with the things that people outlined in them"""
    add("photos", nargs="+", metavar="PHOTOS", help=photos)
    add("-o", "--output", type=Path, required=True, metavar="DIR")
    add("--count", type=int, default=100, help="splices (default: %(default)s)")
    add("--seed", type=int, default=0, help="default: %(default)s")
    preset = "hard: pixels copied as they are, hard edges, no JPEG (default: %(default)s)"
    add("--preset", choices=("varied", "hard"), default="varied", help=preset)
    jpeg = "quality of every finished photo, from 1 to 100, or none"
    add("--jpeg", type=_quality, metavar="Q", help=jpeg)
    feather = "softness of every edge in pixels; 0 is a hard edge"
    add("--feather", type=float, metavar="SIGMA", help=feather)
    add("--size", type=int, help="longest side; longer photos are cropped or shrunk")
    jobs = "splices made at the same time (default: %(default)s)"
    add("--jobs", type=int, default=2, help=jobs)
    existing: Any = {"dest": "existing", "action": "store_const", "default": "error"}
    add = parser.add_mutually_exclusive_group().add_argument
    resume = "go on in DIR, with the splices that are there"
    add("--resume", const="resume", **existing, help=resume)
    add("--force", const="replace", **existing, help="replace the splices in DIR")


def _quality(text: str) -> int:
    """Return a JPEG quality; 0 stands for none."""
    if text == "none":
        return 0
    if text.isdecimal() and 1 <= int(text) <= 100:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} must be from 1 to 100, or none")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("splicing", "cv2", "PIL", "simplejpeg")
    from cpcapp.splicing.make.folder import make_splices

    check_at_least(arguments, count=1, seed=0, jobs=1)
    options, start = _options(arguments), time.monotonic()
    for part in (".", "images", "masks"):
        remove_leftovers(arguments.output / part)
    resumed = arguments.existing == "resume"
    advice = "give the same photos and options" if resumed else "--resume to go on"
    advice = f"choose another folder, or {advice}, or --force to replace its splices"
    with user_errors(in_use=advice), ProgressLine() as line:
        made = make_splices(
            arguments.photos,
            arguments.output,
            arguments.count,
            options=options,
            reading_progress=line.stage("reading photos"),
            progress=line.stage("making splices"),
            **pick(arguments, "seed", "jobs", "existing"),
        )
    seconds, kept = time.monotonic() - start, f", {made.n_kept} were there" if made.n_kept else ""
    counts = f"{made.n_made} splices of {made.n_photos} photos"
    print(f"{made.folder}: {counts} in {seconds:.0f} s{kept}")
    return print_left_out("make-splices", made.problems)


def _options(arguments: argparse.Namespace) -> SpliceOptions:
    from cpcapp.splicing.make.cuts import MIN_SOURCE_SIDE, SpliceOptions

    if arguments.size is not None and arguments.size < MIN_SOURCE_SIDE:
        raise UserError(f"--size {arguments.size} must be at least {MIN_SOURCE_SIDE}")
    if arguments.feather and not 0.1 <= arguments.feather <= 100:
        raise UserError(f"--feather {arguments.feather:g} must be 0, or from 0.1 to 100")
    changes: dict[str, Any] = {"size": arguments.size}
    if arguments.jpeg is not None:
        changes["jpeg_share"] = float(arguments.jpeg > 0)
    if arguments.jpeg:
        changes["jpeg"] = (arguments.jpeg, arguments.jpeg)
    if arguments.feather is not None:
        changes["hard_share"] = float(arguments.feather == 0)
    if arguments.feather:
        changes["feather"] = (arguments.feather, arguments.feather)
    preset = SpliceOptions.hard() if arguments.preset == "hard" else SpliceOptions()
    return replace(preset, **changes)
