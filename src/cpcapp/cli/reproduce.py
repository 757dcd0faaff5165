"""``cpcapp reproduce``: the paper's experiments as one report."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from cpcapp._io.files import make_folder
from cpcapp._io.text import printable
from cpcapp.cli._errors import UserError, check_at_least, require, user_errors
from cpcapp.cli._progress import ProgressLine
from cpcapp.experiments import NAMES, Missing, Result, Settings, run_experiments

HELP = "make the paper's experiments again, as one report"
DESCRIPTION = (
    "Run the experiments of the paper's Section III and Appendix B with PCA, cPCA, "
    "t-SNE and cPCA++, and one experiment of the paper on gcPCA, and write report.html (one "
    "page with everything in it), report.md with its pictures in figures/, and report.json "
    "with all numbers. Data sets are looked for in the folder that the environment variable "
    "CPCAPP_DATA names, then in the cache, and are then fetched from their official sources, "
    "unless CPCAPP_OFFLINE=1. Where data can't be had, the report says so, the rest is made, "
    "and the exit status is 1."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add = parser.add_argument
    names = f"all (the default) or one of: {', '.join(NAMES)}"
    add("name", nargs="?", default="all", metavar="NAME", help=names)
    output = "folder for the report, which replaces an earlier one there"
    add("-o", "--output", type=Path, required=True, metavar="DIR", help=output)
    quick = "smaller samples and little t-SNE: under a minute instead of several"
    add("--quick", action="store_true", help=quick)
    seed = "seed of everything drawn (default: %(default)s)"
    add("--seed", type=int, default=0, help=seed)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.name not in ("all", *NAMES):
        raise UserError(f"NAME {arguments.name!r} must be all or one of {', '.join(NAMES)}")
    check_at_least(arguments, seed=0)
    require("reproduce", "matplotlib", "PIL", "jinja2")
    with user_errors():
        make_folder(arguments.output)
    from cpcapp.experiments.report import write_report

    names = NAMES if arguments.name == "all" else (arguments.name,)
    folder, settings = arguments.output, Settings(arguments.seed, arguments.quick)
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
        left_out = printable(f"{outcome.name} was left out: {outcome.reason}")
        print(f"cpcapp reproduce: {left_out}", file=sys.stderr)
    return 1 if missing else 0
