"""``cpcapp train-network``: train the network that measures traces, or MFCN."""

from __future__ import annotations

import argparse
from pathlib import Path

from cpcapp._io.text import printable
from cpcapp.cli._errors import check_at_least, pick, print_left_out, require, user_errors
from cpcapp.cli._progress import ProgressLine

HELP = "train the network that measures traces, or MFCN to compare with"
DESCRIPTION = (
    "Train a network on splices that are made from photos while it trains. DIR "
    "gets network.safetensors for 'cpcapp train --network' or, of the architecture mfcn, "
    "mfcn.safetensors and sfcn.safetensors for 'cpcapp localize --model'; curve.png with the "
    "scores on photos that are held out; and everything that is needed to go on. Run again "
    "with the same DIR, the training goes on until SECONDS are spent in all. A GPU is used if "
    "there is one; a processor takes days."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add = parser.add_argument
    add("photos", nargs="+", type=Path, metavar="PHOTOS", help="folders of photos")
    add("-o", "--output", type=Path, required=True, metavar="DIR")
    architecture = """trace: the network of this package; mfcn: MFCN and SFCN, which the paper
    compares with, both on the same splices (default: %(default)s)"""
    add("--architecture", choices=("trace", "mfcn"), default="trace", help=architecture)
    seconds = "of training in all; the learning rate falls to 0 by then (default: %(default)g)"
    add("--seconds", type=float, default=1500.0, help=seconds)
    piece = "stop after so many seconds, to go on later"
    add("--piece", type=float, metavar="SECONDS", help=piece)
    add("--seed", type=int, default=0, help="default: %(default)s")
    workers = "processes that make splices (default: %(default)s)"
    add("--workers", type=int, default=4, help=workers)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("splicing", "cv2")
    require("torch", "torch", "onnx", "matplotlib")
    from cpcapp.splicing.networks.run import train_in_folder

    check_at_least(arguments, seconds=1, seed=0, workers=0)
    with user_errors(), ProgressLine() as line:
        done = train_in_folder(
            arguments.photos,
            arguments.output,
            piece_seconds=arguments.piece,
            reading_progress=line.stage("reading photos"),
            progress=line.stage("training"),
            **pick(arguments, "seconds", "seed", "workers", "architecture"),
        )
    scores = ", ".join(
        f"{name.removesuffix('_f1').replace('_', ' ')} F1 {score:.3f}"
        for name, score in done.curve[-1].items()
        if name.endswith("_f1")
    )
    print(
        f"{printable(arguments.output)}: {done.step} steps in {done.seconds:.0f} s, on held-out "
        f"photos {scores}"
    )
    return print_left_out("train-network", done.problems)
