"""``cpcapp evaluate``: score a model, and the controls it has to beat, on a data set."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from cpcapp._io.text import printable
from cpcapp.cli._errors import UserError, check_at_least, print_left_out, require, user_errors
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli.localize import MODEL_HELP

_KINDS: Final = ("auto", "columbia", "casia", "nimble", "pairs")


HELP = "score a model on spliced photos with known masks"
DESCRIPTION = (
    "Score how well a model finds the seam in the spliced photos of a data set, "
    "beside simple controls. edge: the truth is a band of 4 pixels to either side of the "
    "seam, and for each photo the best threshold counts; edge-r2: the same with 2 pixels; "
    "edge-fixed: 4 pixels, and the model's own threshold for all photos. surface: the truth is "
    "the pasted part, best threshold, the better of map and negative; surface-fixed: threshold "
    "0.5 and no negative. Scores are means over photos. Verdicts on spliced and on authentic "
    "photos are compared by the area under the ROC curve, once over all pairs and once over "
    "pairs of the same size. Photos that can't be used are named at the end, and the exit "
    "status is 1."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add = parser.add_argument
    dataset = "a folder: Columbia, CASIA or Nimble as published, or images/ (or photos/) and masks/"
    add("dataset", type=Path, metavar="DATASET", help=dataset)
    add("--model", metavar="M", help=MODEL_HELP)
    kind = "the layout of the folder (default: recognise it)"
    add("--kind", choices=_KINDS, default="auto", help=kind)
    collection = "of Nimble these probes only, such as Nimble-WEB"
    add("--collection", metavar="NAME", help=collection)
    add("--json", action="store_true", help="print one JSON object, and nothing else")
    output = """write scores.json, scores.csv, and a picture of each photo with the true seam, all
    edges and the model's map; index.html shows them, the best first"""
    add("-o", "--output", type=Path, metavar="DIR", help=output)
    add("--force", action="store_true", help="replace the results in DIR")
    limit = "use N spliced and N authentic photos, spread over the data set"
    add("--limit", type=int, metavar="N", help=limit)
    jobs = "photos at the same time (default: %(default)s)"
    add("--jobs", type=int, default=2, metavar="J", help=jobs)
    add("--no-controls", action="store_true", help="score the model alone")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("splicing", "cv2", "PIL", "simplejpeg", "safetensors", "jinja2")
    from cpcapp.splicing.datasets import open_photos
    from cpcapp.splicing.output.batch import read_model
    from cpcapp.splicing.score.report import INDEX, check_album_folder, evaluate_localizer

    check_at_least(arguments, limit=1, jobs=1)
    folder: Path | None = arguments.output
    if folder is None and arguments.force:
        raise UserError("--force replaces results in a folder; give it with -o DIR")
    kind, options = _kind(arguments)
    advice = "choose another folder, or --force to replace the results in it"
    with user_errors(in_use=advice), ProgressLine() as line:
        if folder is not None:
            # Now, since opening a data set may take minutes.
            check_album_folder(folder, replace=arguments.force)
        model = read_model(arguments.model)
        samples = open_photos(arguments.dataset, kind, progress=line.stage("opening"), **options)
        report = evaluate_localizer(
            samples.limit(arguments.limit),
            model,
            controls=not arguments.no_controls,
            jobs=arguments.jobs,
            folder=folder,
            replace=arguments.force,
            progress=line.stage("scoring"),
            judging_progress=line.stage("judging authentic photos"),
        )
    if arguments.json:
        print(json.dumps(report.to_dict(), indent=1, allow_nan=False))
    else:
        print("\n".join(printable(line) for line in report.to_lines()))
        if folder is not None:
            print(f"\n{printable(folder / INDEX)} shows the photos, the best first")
    return print_left_out("evaluate", report.problems)


def _kind(arguments: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """Return the layout of the data set, and options for opening it."""
    if arguments.collection is None:
        return arguments.kind, {}
    if arguments.kind not in ("auto", "nimble"):
        raise UserError(
            f"--collection is for Nimble, not for --kind {arguments.kind}; leave it out"
        )
    return "nimble", {"collection": arguments.collection}
