"""``cpcapp train``: train a splice localizer."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from cpcapp.cli._errors import (
    UserError,
    check_at_least,
    check_output,
    pick,
    print_left_out,
    require,
    user_errors,
)
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli.localize import open_cluster

HELP = "train a splice localizer"
DESCRIPTION = (
    "Train a splice localizer on spliced photos with masks (Columbia, CASIA, "
    "Nimble, or images/ and masks/), or on splices made from plain photos and BSDS500 while "
    "it trains. The state is kept in MODEL.checkpoint: every 15 seconds while photos are read, "
    "after the last of them, and after every 16 photos of calibration. If the training is "
    "stopped or killed, the same command goes on from there and ends with the same file. "
    "Photos that can't be used are named at the end, and the exit status is 1."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add = parser.add_argument
    add("datasets", nargs="+", metavar="DATASET", help="folders of photos")
    add("-o", "--output", type=Path, required=True, metavar="MODEL")
    preset = """filters and the package's network, filters alone, or the method as published
    (default: %(default)s)"""
    add("--preset", choices=("default", "filters", "paper"), default="default", help=preset)
    network = "a network of train-network to take in place of the package's"
    add("--network", type=Path, metavar="FILE", help=network)
    splices = "splices to make from plain photos (default: %(default)s)"
    add("--splices", type=int, default=2000, metavar="N", help=splices)
    add("--seed", type=int, default=0, help="default: %(default)s")
    jobs = "photos at the same time (default: %(default)s); the result does not depend on it"
    add("--jobs", type=int, default=2, help=jobs)
    device = """cut patches and find filters there, for example cuda (needs the extra torch;
    default: on the processor, without torch)"""
    add("--device", metavar="D", help=device)
    cluster = """read the photos on the workers of a Dask cluster, which can open the same folders;
    dask scheduler prints its address, such as tcp://10.0.0.7:8786"""
    add("--scheduler", metavar="ADDRESS", help=cluster)
    force = "replace MODEL, and start anew where a stopped training would go on"
    add("--force", action="store_true", help=force)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("splicing", "cv2", "simplejpeg", "safetensors")
    if arguments.device is not None:
        require("torch", "torch")
    from cpcapp.splicing.model import load_network
    from cpcapp.splicing.train.sources import train_from_folders

    check_at_least(arguments, splices=1, seed=0, jobs=1)
    if arguments.network is not None and arguments.preset != "default":
        raise UserError(f"--network does not go with --preset {arguments.preset}")
    output: Path = arguments.output
    check_output(output)
    if output.exists() and not arguments.force:
        raise UserError(f"{output} exists; choose another name, or --force to replace it")
    if output.exists() and not output.is_file():
        raise UserError(f"{output} is not a file; choose another name")
    checkpoint, start = output.with_name(output.name + ".checkpoint"), time.monotonic()
    with user_errors(), open_cluster(arguments.scheduler) as client, ProgressLine() as line:
        network = load_network(arguments.network) if arguments.network is not None else None
        training = train_from_folders(
            arguments.datasets,
            arguments.preset,
            network=network,
            n_splices=arguments.splices,
            save_to=output,
            checkpoint=checkpoint,
            restart=arguments.force,
            opening_progress=line.stage("opening"),
            progress=line.stage("reading patches"),
            calibration_progress=line.stage("calibrating"),
            client=client,
            **pick(arguments, "seed", "jobs", "device"),
        )
    facts = training.localizer.facts
    for bank, counts in zip(training.localizer.banks, facts["banks"], strict=True):
        print(
            f"{bank.options.channels} {bank.options.size}x{bank.options.size}: "
            f"{counts['target_patches']} seam and {counts['background_patches']} background "
            f"patches, the top {counts['overlap_dimensions']} eigenvectors overlap by "
            f"{100 * counts['subspace_overlap']:.2f} %, eigenvalues {bank.eigenvalues[0]:.2f} to "
            f"{bank.eigenvalues[-1]:.2f}"
        )
    print(
        f"{output}: preset {training.localizer.name}, {facts['photos']['used']} photos, "
        f"{time.monotonic() - start:.0f} s"
    )
    return print_left_out("train", training.problems)
