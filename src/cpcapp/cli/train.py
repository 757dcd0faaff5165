"""``cpcapp train``: train a splice localizer."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpcapp.cli._errors import UserError, require
from cpcapp.cli._progress import ProgressLine

if TYPE_CHECKING:
    from cpcapp.splicing.photos.samples import SampleSet

_PHOTOS_TO_JUDGE_BY = 1200


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="train a splice localizer",
        description="Train a splice localizer on spliced photos with masks (Columbia, CASIA, "
        "Nimble, or images/ and masks/), or on splices made from plain photos and BSDS500 while "
        "it trains. Stopped at any moment, the same command goes on where it was.",
    )
    parser.add_argument(
        "datasets", nargs="+", type=Path, metavar="DATASET", help="folders of photos"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL")
    parser.add_argument(
        "--preset",
        choices=("default", "paper"),
        default="default",
        help="the package's own way, or the steps of the paper (default: %(default)s)",
    )
    parser.add_argument(
        "--splices",
        type=int,
        default=2000,
        metavar="N",
        help="splices to make from plain photos (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--jobs", type=int, default=2, help="photos read at once (default: %(default)s)"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace MODEL, forget where a stopped run was"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("cv2", "splicing")
    require("safetensors", "splicing")
    from cpcapp.splicing.model_file import save_model
    from cpcapp.splicing.training.checkpoint import Checkpoint
    from cpcapp.splicing.training.train import train_localizer

    for name, lowest in (("splices", 1), ("seed", 0), ("jobs", 1)):
        if getattr(arguments, name) < lowest:
            raise UserError(f"--{name} {getattr(arguments, name)} must be at least {lowest}")
    output: Path = arguments.output
    if not output.parent.is_dir():
        raise UserError(f"there is no folder {output.parent} to write to")
    if output.exists() and not arguments.force:
        raise UserError(f"{output} exists; choose another name, or --force to replace it")
    checkpoint = output.with_name(output.name + ".checkpoint")
    if arguments.force:
        Checkpoint(checkpoint, "").remove()
    try:
        samples, judged = open_training_set(arguments.datasets, arguments.splices, arguments.seed)
        for problem in samples.problems:
            print(f"left out: {problem}")
        start = time.monotonic()
        with (
            ProgressLine("reading patches") as progress,
            ProgressLine("calibrating") as calibrating,
        ):
            localizer = train_localizer(
                samples,
                arguments.preset,
                seed=arguments.seed,
                jobs=arguments.jobs,
                checkpoint=checkpoint,
                progress=progress,
                facts={"data": [path.name for path in arguments.datasets], "kind": samples.name},
                calibrate_on=judged,
                calibration_progress=calibrating,
            )
        save_model(localizer, output)
    except (OSError, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from error
    facts = localizer.facts
    for problem in facts["problems"]:
        print(f"left out: {problem}")
    for bank, counts in zip(localizer.banks, facts["banks"], strict=True):
        print(
            f"{bank.options.channels} {bank.options.size}x{bank.options.size}: "
            f"{counts['target_patches']} seam and {counts['background_patches']} background "
            f"patches, the top {counts['overlap_dimensions']} eigenvectors overlap by "
            f"{100 * counts['subspace_overlap']:.2f} %, eigenvalues {bank.eigenvalues[0]:.2f} to "
            f"{bank.eigenvalues[-1]:.2f}"
        )
    print(
        f"{output}: preset {localizer.name}, {facts['photos']['used']} photos, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if facts["problems"] or samples.problems else 0


def open_training_set(
    folders: list[Path], n_splices: int, seed: int
) -> tuple[SampleSet, SampleSet | None]:
    """Return the photos of data sets, or splices made from plain photos and more to judge by."""
    from cpcapp.splicing.datasets import open_photos
    from cpcapp.splicing.datasets.bsds import bsds_sources
    from cpcapp.splicing.making.calibration_photos import calibration_photos
    from cpcapp.splicing.making.splices import training_splices
    from cpcapp.splicing.photos.samples import SampleSet
    from cpcapp.splicing.photos.sources import photos_from

    sources, opened = [], []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder")
        if (folder / "groundTruth").is_dir():
            sources += bsds_sources(folder)
            continue
        with ProgressLine("opening") as progress:
            found = open_photos(folder, progress=progress)
        if any(not sample.authentic for sample in found):
            opened.append(found)
        else:
            sources += photos_from([folder])
    if opened and sources:
        raise UserError("give either spliced photos with masks or plain photos, not both")
    if opened:
        several = len(opened) > 1
        return SampleSet(
            ", ".join(found.name for found in opened),
            tuple(
                _named(sample, f"{found.name}/{sample.name}" if several else sample.name)
                for found in opened
                for sample in found
            ),
            tuple(problem for found in opened for problem in found.problems),
        ), None
    n_judged = min(_PHOTOS_TO_JUDGE_BY, 2 * n_splices)
    judged = calibration_photos(sources, n_judged, seed=seed)
    return training_splices(sources, n_splices, seed=seed), judged


def _named(sample: Any, name: str) -> Any:
    from dataclasses import replace

    return replace(sample, name=name)
