"""``cpcapp train-edges``: train a structured edge forest on human segmentations."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from cpcapp._io.files import remove_leftovers
from cpcapp.cli._errors import check_at_least, check_output, pick, require, user_errors
from cpcapp.cli._progress import ProgressLine

HELP = "train an edge detector on BSDS500"
DESCRIPTION = (
    "Train a structured edge forest on the training and validation photos of "
    "BSDS500 and write it to a file: in OpenCV's YAML if its name ends in .yml or .yml.gz, "
    "else as safetensors, compressed if the name ends in .gz. The result depends on the data "
    "and the seed only."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add = parser.add_argument
    add("folder", type=Path, metavar="BSDS_FOLDER", help="with images/, groundTruth/")
    add("-o", "--output", type=Path, required=True, metavar="FOREST")
    add("--trees", type=int, default=8, help="trees (default: %(default)s)")
    samples = "patches for each tree (default: %(default)s)"
    add("--samples", type=int, default=1_000_000, help=samples)
    add("--seed", type=int, default=0, help="default: %(default)s")
    jobs = "trees grown at once, 2 GB each (default: %(default)s)"
    add("--jobs", type=int, default=2, help=jobs)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("splicing", "cv2")
    require("edges", "numba")
    from cpcapp.splicing.datasets.sources import bsds_photos
    from cpcapp.splicing.measure.edges.features import EdgeOptions
    from cpcapp.splicing.measure.edges.trainer import train_forest

    check_at_least(arguments, trees=1, samples=100, seed=0, jobs=1)
    check_output(arguments.output)
    start, n_evaluated = time.monotonic(), min(3, arguments.trees)
    edges = EdgeOptions(numberOfTrees=arguments.trees, numberOfTreesToEvaluate=n_evaluated)
    with user_errors(), ProgressLine("growing trees") as progress:
        photos = bsds_photos(arguments.folder, ["train", "val"])
        options = {"n_samples": arguments.samples, **pick(arguments, "seed", "jobs")}
        forest = train_forest(photos, edges, **options, progress=progress)
        remove_leftovers(arguments.output.parent, arguments.output.name)
        forest.save(arguments.output)
    leaves = int((forest.childs > 0).sum()) + arguments.trees  # one more than questions, each
    print(
        f"{arguments.output}: {arguments.trees} trees, {leaves} leaves, from {len(photos)} photos "
        f"in {time.monotonic() - start:.0f} s"
    )
    return 0
