"""``cpcapp train-network``: train the network that measures traces, or MFCN."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from cpcapp._io.text import printable
from cpcapp.cli._errors import UserError, require
from cpcapp.cli._stages import Stages


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "train-network",
        help="train the network that measures traces, or MFCN to compare with",
        description="Train a network on splices that are made from photos while it trains. DIR "
        "gets network.safetensors for 'cpcapp train --network' or, of the architecture mfcn, "
        "mfcn.safetensors and sfcn.safetensors for 'cpcapp localize --model'; curve.png with the "
        "scores on photos that are held out; and everything that is needed to go on. Run again "
        "with the same DIR, the training goes on until SECONDS are spent in all. A GPU is used if "
        "there is one; a processor takes days.",
    )
    parser.add_argument("photos", nargs="+", type=Path, metavar="PHOTOS", help="folders of photos")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--architecture",
        choices=("trace", "mfcn"),
        default="trace",
        help="trace: the network of this package; mfcn: MFCN and SFCN, which the paper compares "
        "with, both on the same splices (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=1500.0,
        help="of training in all; the learning rate falls to 0 by then (default: %(default)g)",
    )
    parser.add_argument(
        "--piece", type=float, metavar="SECONDS", help="stop after so many seconds, to go on later"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--workers",
        type=int,
        default=4,
        help="processes that make splices (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("cv2", "splicing")
    for name in ("torch", "onnx", "matplotlib"):
        require(name, "torch")
    from cpcapp.splicing.networks.run import train_in_folder

    for name, lowest in (("seconds", 1.0), ("seed", 0), ("workers", 0)):
        if getattr(arguments, name) < lowest:
            raise UserError(f"--{name} {getattr(arguments, name):g} must be at least {lowest:g}")
    try:
        with Stages() as stages:
            done = train_in_folder(
                arguments.photos,
                arguments.output,
                seconds=arguments.seconds,
                piece_seconds=arguments.piece,
                seed=arguments.seed,
                workers=arguments.workers,
                architecture=arguments.architecture,
                reading_progress=stages("reading photos"),
                progress=stages("training"),
            )
    except (OSError, ValueError) as error:
        raise UserError(printable(" ".join(str(error).split()))) from error
    scores = ", ".join(
        f"{name.removesuffix('_f1').replace('_', ' ')} F1 {score:.3f}"
        for name, score in done.curve[-1].items()
        if name.endswith("_f1")
    )
    print(
        f"{printable(arguments.output)}: {done.step} steps in {done.seconds:.0f} s, on held-out "
        f"photos {scores}"
    )
    for problem in done.problems:
        print(f"cpcapp train-network: left out {problem}", file=sys.stderr)
    return 1 if done.problems else 0
