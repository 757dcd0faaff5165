"""MFCN, which the paper compares cPCA++ with, and SFCN, beside the package's models.

    CPCAPP_DATA=... python benchmarks/mfcn.py prepare training device-data/training
    CPCAPP_DATA=... python benchmarks/mfcn.py prepare test device-data/test
    python benchmarks/mfcn.py train device-data/training -o RUN --seconds 1020 [--piece 510]
    python benchmarks/mfcn.py edges-first device-data/training -o RUN/edges_first.json
    python benchmarks/mfcn.py maps device-data/test RUN -o RUN/maps.npz
    CPCAPP_DATA=... python benchmarks/mfcn.py score RUN [--ours MODEL...]
    python benchmarks/mfcn.py costs

Training and maps need torch, NumPy, Pillow and safetensors only, and want a GPU: they can be run on
another machine that has the repository and the prepared folders. `train` goes on with a training
that RUN holds. Of RUN, `score` needs run.json, facts.json and maps.npz, and reads edges_first.json
where there is one. `score` and `costs` write benchmarks/results/mfcn.json and mfcn.md, and keep
what the other measured. Figures of networks that RUN does not have are kept too, and so are those
of a shorter training. The figures of the package's models are quoted from models.json; with --ours
those of each photo are added.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
EXAMPLES = RESULTS / "mfcn_logits.npz"
RATE = 0.02


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
        steps=arguments.steps,
        names=tuple(arguments.networks),
    )


def _edges_first(arguments: argparse.Namespace) -> None:
    from _mfcn_edges_first import try_edges_first

    try_edges_first(
        arguments.photos,
        arguments.output,
        steps=arguments.steps,
        outline_steps=arguments.outline_steps,
        workers=arguments.workers,
        rate=RATE,
        tiny=arguments.tiny,
    )


def _maps(arguments: argparse.Namespace) -> None:
    from _mfcn_gpu import make_maps

    make_maps(arguments.photos, arguments.run_folder, arguments.output)


def _score(arguments: argparse.Namespace) -> None:
    from _mfcn_scores import (
        describe_training,
        keep_shorter,
        quote_ours,
        score_networks,
        score_ours,
        store_examples,
    )

    data = Path(os.environ["CPCAPP_DATA"])
    before = _read_results()
    results = before | {
        "training": describe_training(arguments.run_folder, RESULTS),
        "sets": quote_ours(RESULTS / "models.json"),
    }
    for name, methods in score_networks(arguments.run_folder / "maps.npz", data).items():
        results["sets"][name] |= methods
    keep_shorter(before, results)
    if "mfcn" in results["training"]["trained"]:
        store_examples(arguments.run_folder / "maps.npz", data, EXAMPLES)
    for name, methods in before.get("sets", {}).items():
        for model, found in methods.items():
            if "photos" in found and model in results["sets"].get(name, {}):
                results["sets"][name][model].setdefault("photos", found["photos"])
    edges_first = arguments.run_folder / "edges_first.json"
    if edges_first.is_file():
        results["edges_first"] = json.loads(edges_first.read_text())

    def keep(name: str, model: str, found: dict[str, Any]) -> None:
        results["sets"][name][model]["photos"] = found["photos"]
        _write_results(results)

    _write_results(results)
    score_ours(data, arguments.ours, keep)


def _costs(arguments: argparse.Namespace) -> None:
    from _machine import describe_machine
    from _mfcn_costs import METHODS, measure

    results = _read_results()
    results["costs"] = {}
    results["costs_machine"] = describe_machine()
    for method in METHODS:
        results["costs"][method] = measure(method)
        print(method, json.dumps(results["costs"][method]), flush=True)
    _write_results(results)


def _read_results() -> dict[str, Any]:
    file = RESULTS / "mfcn.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def _write_results(results: dict[str, Any]) -> None:
    from _machine import describe_machine
    from _mfcn_report import PAPER, as_markdown

    results["date"] = datetime.now(UTC).date().isoformat()
    results["machine"] = describe_machine()
    results["paper"] = PAPER
    (RESULTS / "mfcn.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "mfcn.md").write_text(as_markdown(results))


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
    train.add_argument("--steps", type=int, help="in all, if that comes first")
    train.add_argument(
        "--networks", nargs="+", default=("mfcn", "sfcn"), help="mfcn, sfcn, or traces alone"
    )
    train.add_argument("--piece", type=float, help="seconds until it stops, to go on later")
    train.add_argument("--workers", type=int, default=12)
    train.add_argument("--rate", type=float, default=RATE, help="learning rate at its highest")
    train.add_argument("--tiny", action="store_true", help="tiny networks, to try it")
    train.set_defaults(step=_train)
    first = steps.add_parser("edges-first", help="try whether outlines of BSDS500 help, if first")
    first.add_argument("photos", type=Path)
    first.add_argument("-o", "--output", type=Path, required=True)
    first.add_argument("--steps", type=int, default=2500)
    first.add_argument("--outline-steps", type=int, default=1500)
    first.add_argument("--workers", type=int, default=12)
    first.add_argument("--tiny", action="store_true", help="tiny networks, to try it")
    first.set_defaults(step=_edges_first)
    maps = steps.add_parser("maps", help="measure the test photos")
    maps.add_argument("photos", type=Path)
    maps.add_argument("run_folder", type=Path, metavar="RUN")
    maps.add_argument("-o", "--output", type=Path, required=True)
    maps.set_defaults(step=_maps)
    score = steps.add_parser("score", help="score what was found in the test photos")
    score.add_argument("run_folder", type=Path, metavar="RUN")
    score.add_argument("--ours", nargs="+", default=[], metavar="MODEL")
    score.set_defaults(step=_score)
    costs = steps.add_parser("costs", help="measure time and memory on the CPU")
    costs.set_defaults(step=_costs)
    arguments = parser.parse_args()
    arguments.step(arguments)


if __name__ == "__main__":
    main()
