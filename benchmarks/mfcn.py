"""MFCN, which the paper compares cPCA++ with, and SFCN, beside the package's models.

    CPCAPP_DATA=... python benchmarks/mfcn.py prepare training device-data/training
    CPCAPP_DATA=... python benchmarks/mfcn.py prepare test device-data/test
    python benchmarks/mfcn.py train device-data/training -o RUN --seconds 1000 [--piece 500]
    python benchmarks/mfcn.py maps device-data/test RUN -o maps.npz

Training and maps need torch, NumPy, Pillow and safetensors only, and want a GPU: they can be run on
another machine that has the repository and the prepared folders. `train` goes on with a training
that RUN holds.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def _prepare(arguments: argparse.Namespace) -> None:
    from _mfcn_folders import EXAMPLES, SETS, prepare_test, prepare_training

    data = Path(os.environ["CPCAPP_DATA"])
    if arguments.kind == "training":
        prepare_training(data, arguments.folder)
    else:
        prepare_test(data, arguments.folder, tuple(arguments.sets or (*SETS, EXAMPLES)))
    files = list(arguments.folder.iterdir())
    size = sum(file.stat().st_size for file in files)
    print(f"{arguments.folder}: {len(files)} files, {size / 2**20:.1f} MiB")


def _train(arguments: argparse.Namespace) -> None:
    from _mfcn_gpu import train

    train(
        arguments.photos,
        arguments.output,
        seconds=arguments.seconds,
        piece=arguments.piece or arguments.seconds,
        workers=arguments.workers,
        rate=arguments.rate,
        tiny=arguments.tiny,
    )


def _maps(arguments: argparse.Namespace) -> None:
    from _mfcn_gpu import make_maps

    make_maps(arguments.photos, arguments.run_folder, arguments.output)


def main() -> None:
    """Run one of the steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(required=True)
    prepare = steps.add_parser("prepare", help="write the photos as small folders")
    prepare.add_argument("kind", choices=("training", "test"))
    prepare.add_argument("folder", type=Path)
    prepare.add_argument("--sets", nargs="+")
    prepare.set_defaults(step=_prepare)
    train = steps.add_parser("train", help="train both networks, or go on")
    train.add_argument("photos", type=Path)
    train.add_argument("-o", "--output", type=Path, required=True)
    train.add_argument("--seconds", type=float, required=True, help="in all")
    train.add_argument("--piece", type=float, help="seconds until it stops, to go on later")
    train.add_argument("--workers", type=int, default=12)
    train.add_argument("--rate", type=float, default=0.02, help="learning rate at its highest")
    train.add_argument("--tiny", action="store_true", help="tiny networks, to try it")
    train.set_defaults(step=_train)
    maps = steps.add_parser("maps", help="measure the test photos")
    maps.add_argument("photos", type=Path)
    maps.add_argument("run_folder", type=Path, metavar="RUN")
    maps.add_argument("-o", "--output", type=Path, required=True)
    maps.set_defaults(step=_maps)
    arguments = parser.parse_args()
    arguments.step(arguments)


if __name__ == "__main__":
    main()
