"""``cpcapp make-splices``: paste parts of photos into others, and keep the exact masks."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpcapp._io.files import FolderInUseError, remove_leftovers
from cpcapp.cli._errors import UserError, require
from cpcapp.cli._stages import Stages

if TYPE_CHECKING:
    from cpcapp.splicing.making.cuts import SpliceOptions


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "make-splices",
        help="make spliced photos with exact masks",
        description="Paste parts of photos into others. DIR gets images/ (PNG, or the very JPEG "
        "file where the splice was compressed), masks/ (white is pasted) and manifest.json, which "
        "says how each splice was made. The result depends on the photos, the options and the "
        "seed only.",
    )
    parser.add_argument(
        "photos",
        nargs="+",
        metavar="PHOTOS",
        help="files, folders or patterns; of the folder of BSDS500 the training and validation "
        "photos are taken, with the things that people outlined in them",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--count", type=int, default=100, help="splices (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--preset",
        choices=("varied", "hard"),
        default="varied",
        help="hard: pixels copied as they are, hard edges, no JPEG (default: %(default)s)",
    )
    parser.add_argument(
        "--jpeg",
        type=_quality,
        metavar="Q",
        help="quality of every finished photo, from 1 to 100, or none",
    )
    parser.add_argument(
        "--feather",
        type=float,
        metavar="SIGMA",
        help="softness of every edge in pixels; 0 is a hard edge",
    )
    parser.add_argument(
        "--size", type=int, help="longest side; longer photos are cropped or shrunk"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2,
        help="splices made at the same time (default: %(default)s)",
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--resume",
        dest="existing",
        action="store_const",
        const="resume",
        default="error",
        help="go on in DIR, with the splices that are there",
    )
    again.add_argument(
        "--force",
        dest="existing",
        action="store_const",
        const="replace",
        help="replace the splices in DIR",
    )
    parser.set_defaults(run=run)


def _quality(text: str) -> int:
    """Return a JPEG quality; 0 stands for none."""
    if text == "none":
        return 0
    if text.isdecimal() and 1 <= int(text) <= 100:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} must be from 1 to 100, or none")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("cv2", "splicing")
    require("PIL", "splicing")
    from cpcapp.splicing.making.folder import make_splices

    for name, lowest in (("count", 1), ("seed", 0), ("jobs", 1)):
        if getattr(arguments, name) < lowest:
            raise UserError(f"--{name} {getattr(arguments, name)} must be at least {lowest}")
    options, start = _options(arguments), time.monotonic()
    for part in (".", "images", "masks"):
        remove_leftovers(arguments.output / part)
    try:
        with Stages() as stages:
            found = make_splices(
                arguments.photos,
                arguments.output,
                arguments.count,
                options=options,
                seed=arguments.seed,
                jobs=arguments.jobs,
                existing=arguments.existing,
                reading_progress=stages("reading photos"),
                progress=stages("making splices"),
            )
    except FolderInUseError as error:
        advice = (
            "give the same photos and options"
            if arguments.existing == "resume"
            else "--resume to go on"
        )
        raise UserError(
            f"{error.reason}; choose another folder, or {advice}, or --force to replace its splices"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from error
    print(
        f"{found.folder}: {found.n_made} splices of {found.n_photos} photos in "
        f"{time.monotonic() - start:.0f} s"
        + (f", {found.n_kept} were there" if found.n_kept else "")
    )
    for problem in found.problems:
        print(f"cpcapp make-splices: left out {problem}", file=sys.stderr)
    return 1 if found.problems else 0


def _options(arguments: argparse.Namespace) -> SpliceOptions:
    from cpcapp.splicing.making.cuts import MIN_SOURCE_SIDE, SpliceOptions

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
    preset = SpliceOptions.hard() if arguments.preset == "hard" else SpliceOptions.varied()
    return replace(preset, **changes)
