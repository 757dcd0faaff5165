"""``cpcapp make-splices``: paste parts of photos into others, and keep the exact masks."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpcapp import __version__
from cpcapp._files import atomic_write
from cpcapp.cli._errors import UserError, require
from cpcapp.cli._progress import ProgressLine

if TYPE_CHECKING:
    from cpcapp.splicing.making.cuts import SpliceOptions
    from cpcapp.splicing.making.splices import SpliceMaker
    from cpcapp.splicing.photos.sources import SourcePhoto

_SECONDS_BETWEEN_SAVES = 5.0
_NAME = r"splice\d{5,}"


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
        "--jobs", type=int, default=2, help="splices made at once (default: %(default)s)"
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--resume", action="store_true", help="go on in DIR, with the splices that are there"
    )
    again.add_argument("--force", action="store_true", help="replace the splices in DIR")
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
    from cpcapp.splicing.making.splices import SpliceMaker, split_readable

    for name, lowest in (("count", 1), ("seed", 0), ("jobs", 1)):
        if getattr(arguments, name) < lowest:
            raise UserError(f"--{name} {getattr(arguments, name)} must be at least {lowest}")
    folder, start = arguments.output, time.monotonic()
    options = _options(arguments)
    try:
        sources = _sources(arguments.photos, folder)
        _check_folder(folder, arguments)
        with ProgressLine("reading photos") as progress:
            photos, problems = split_readable(sources, jobs=arguments.jobs, progress=progress)
        if len(photos) < 2:
            why = "".join(f"; {problem}" for problem in problems[:3])
            raise UserError(f"{len(photos)} photos can be read, at least two are needed{why}")
        maker = SpliceMaker(photos, options, arguments.seed)
        manifest = {
            "version": __version__,
            "seed": arguments.seed,
            "options": json.loads(json.dumps(asdict(options))),
            "photos": [photo.name for photo in photos],
        }
        _make_folders(folder)
        if arguments.force:
            _clear(folder)
        done = _found(folder, manifest)
        made = _make_all(maker, folder, manifest, done, arguments)
    except (OSError, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from error
    print(
        f"{folder}: {made} splices of {len(photos)} photos in {time.monotonic() - start:.0f} s"
        + (f", {len(done) - made} were there" if len(done) > made else "")
    )
    for problem in problems:
        print(f"cpcapp make-splices: left out {problem}", file=sys.stderr)
    return 1 if problems else 0


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


def _sources(paths: list[str], output: Path) -> list[SourcePhoto]:
    from cpcapp.splicing.datasets.bsds import bsds_sources
    from cpcapp.splicing.photos.images import image_files
    from cpcapp.splicing.photos.sources import photos_from

    # Each folder once, so that giving it twice does not give its photos two names.
    known = {Path(path).resolve(): path for path in paths}
    bsds = [path for path in known.values() if (Path(path) / "groundTruth").is_dir()]
    plain = [path for path in known.values() if path not in bsds]
    sources = [source for path in bsds for source in bsds_sources(path)]
    if plain:
        for file in image_files(plain):
            if file.resolve().is_relative_to(output.resolve()):
                raise UserError(f"{file} lies in {output}; choose another folder for the splices")
        sources += photos_from(plain)
    return sources


def _check_folder(folder: Path, arguments: argparse.Namespace) -> None:
    if folder.is_dir() and any(folder.iterdir()) and not (arguments.resume or arguments.force):
        raise UserError(
            f"{folder} is not empty; choose another folder, or --resume to go on in it, or "
            "--force to replace its splices"
        )


def _make_folders(folder: Path) -> None:
    for part in ("images", "masks"):
        try:
            (folder / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"can't make the folder {folder / part}: {error.strerror}") from error


def _clear(folder: Path) -> None:
    """Remove earlier splices, and nothing else."""
    (folder / "manifest.json").unlink(missing_ok=True)
    for part in ("images", "masks"):
        for file in (folder / part).iterdir():
            if re.fullmatch(_NAME + r"\.(png|jpg)", file.name):
                file.unlink()


def _found(folder: Path, manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the entries of the splices that an earlier run completed, by name."""
    path = folder / "manifest.json"
    if not path.exists():
        return {}
    try:
        earlier = json.loads(path.read_bytes())
        entries = {str(entry["name"]): entry for entry in earlier["splices"]}
        other = [name for name in manifest if earlier[name] != manifest[name]]
        found = {
            name: entry
            for name, entry in entries.items()
            if re.fullmatch(_NAME, name)
            and all((folder / entry[kind]).is_file() for kind in ("image", "mask"))
        }
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a manifest of splices; start anew with --force") from error
    if other:
        raise UserError(
            f"{folder} was made with other {' and '.join(other)}; give the same, or start anew "
            "with --force"
        )
    return found


def _make_all(
    maker: SpliceMaker,
    folder: Path,
    manifest: dict[str, Any],
    done: dict[str, dict[str, Any]],
    arguments: argparse.Namespace,
) -> int:
    """Make the splices that are not done, add their entries, and return how many they are."""
    missing = [i for i in range(arguments.count) if maker.name(i) not in done]
    left, jobs, count = iter(missing), set[Future[dict[str, Any]]](), 0
    _save(folder, manifest, done)
    saved = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool, ProgressLine("making splices") as progress:
        try:
            while True:
                # Just enough to keep everybody busy: what is not begun need not be called off.
                for index in islice(left, 3 * arguments.jobs - len(jobs)):
                    jobs.add(pool.submit(_make_one, maker, folder, index))
                if not jobs:
                    break
                finished, jobs = wait(jobs, return_when=FIRST_COMPLETED)
                for job in finished:
                    done[job.result()["name"]] = job.result()
                count += len(finished)
                progress(count / len(missing))
                # So that a run that is killed has little to make again.
                if time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                    _save(folder, manifest, done)
                    saved = time.monotonic()
        finally:
            pool.shutdown(cancel_futures=True)
            _save(folder, manifest, done)
    return len(missing)


def _make_one(maker: SpliceMaker, folder: Path, index: int) -> dict[str, Any]:
    import cv2

    splice = maker.make(index)
    name = splice.recipe["name"]
    files = {
        "image": f"images/{name}.{'png' if splice.jpeg is None else 'jpg'}",
        "mask": f"masks/{name}.png",
    }
    data = splice.jpeg
    if data is None:
        data = bytes(cv2.imencode(".png", splice.image[..., ::-1])[1])
    with atomic_write(folder / files["image"]) as file:
        file.write(data)
    with atomic_write(folder / files["mask"]) as file:
        file.write(bytes(cv2.imencode(".png", splice.mask.astype("uint8") * 255)[1]))
    return {"name": name, **files, **splice.recipe}


def _save(folder: Path, manifest: dict[str, Any], done: dict[str, dict[str, Any]]) -> None:
    # By length first: the numbers in the names have five digits or more.
    entries = [done[name] for name in sorted(done, key=lambda name: (len(name), name))]
    with atomic_write(folder / "manifest.json") as file:
        file.write(json.dumps({**manifest, "splices": entries}, indent=1).encode())
