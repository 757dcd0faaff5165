"""``cpcapp reproduce``: the paper's experiments as one report."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from cpcapp._io.text import printable
from cpcapp.cli._errors import UserError, require
from cpcapp.cli._progress import ProgressLine
from cpcapp.experiments import NAMES


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "reproduce",
        help="make the paper's experiments again, as one report",
        description="Run the experiments of the paper's Section III and Appendix B with PCA, cPCA, "
        "t-SNE and cPCA++, and one experiment of the paper on gcPCA, and write report.html (one "
        "page with everything in it), report.md with its pictures in figures/, and report.json "
        "with all numbers. Data sets are looked for in the folder that the environment variable "
        "CPCAPP_DATA names, then in the cache, and are then fetched from their official sources, "
        "unless CPCAPP_OFFLINE=1. Where data can't be had, the report says so, the rest is made, "
        "and the exit status is 1.",
    )
    parser.add_argument(
        "name",
        nargs="?",
        default="all",
        metavar="NAME",
        help=f"all (the default) or one of: {', '.join(NAMES)}",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for the report, which replaces an earlier one there",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="smaller samples and little t-SNE: under a minute instead of several",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of everything drawn (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.name not in ("all", *NAMES):
        raise UserError(f"NAME {arguments.name!r} must be all or one of {', '.join(NAMES)}")
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed} must be at least 0")
    for module in ("matplotlib", "PIL", "jinja2"):
        require(module, "reproduce")
    folder = arguments.output
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"can't make the folder {printable(folder)}: {error.strerror}") from error
    return _report(
        NAMES if arguments.name == "all" else (arguments.name,),
        folder,
        arguments.seed,
        arguments.quick,
    )


def _report(names: tuple[str, ...], folder: Path, seed: int, quick: bool) -> int:
    from cpcapp.experiments import Missing, Result, Settings, run_experiments
    from cpcapp.experiments.report import write_report

    settings = Settings(seed=seed, quick=quick)
    start = time.monotonic()
    with ProgressLine("") as line:

        def progress(name: str, share: float) -> None:
            line.title = f"{name:16}"
            line(share)

        outcomes = run_experiments(names, settings, progress)
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    missing = [outcome for outcome in outcomes if isinstance(outcome, Missing)]
    if not results:
        raise UserError(missing[0].reason)
    try:
        written = write_report(outcomes, folder, settings)
    except OSError as error:
        raise UserError(f"can't write to {printable(folder)}: {error.strerror}") from error
    for result in results:
        print(printable(f"{result.name}: {result.findings[0]}"))
    for path in written:
        print(printable(path))
    print(f"{len(results)} of {len(outcomes)} experiments in {time.monotonic() - start:.0f} s")
    for outcome in missing:
        line_out = printable(f"{outcome.name} was left out: {outcome.reason}")
        print(f"cpcapp reproduce: {line_out}", file=sys.stderr)
    return 1 if missing else 0
