"""``cpcapp demo``: the main job on examples that need no download."""

from __future__ import annotations

import argparse
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cpcapp._io.files import make_folder
from cpcapp._io.text import printable
from cpcapp.cli._errors import UserError, check_at_least, require, user_errors
from cpcapp.cli._progress import ProgressLine

if TYPE_CHECKING:
    from cpcapp.splicing.output.demo import ExampleResult

# Pixels: half the width of the band that counts as the seam when a model is scored.
_NEAR_SEAM = 4.0

_FILES = """\
  demo.png             photo, what was pasted, edges, likely seam and likely part
  NAME.overlay.png     one photo with the likely seam; the lighter, the likelier
  NAME.boundary.png    the boundary map as it is, whatever the verdict
  NAME.region.png      white: the part that may come from elsewhere; black without signs
  NAME.report.html     a report on one photo; NAME.report.pdf the same as PDF
In demo.png compare the last two pictures of each row with the second: a good result follows the
outline of the pink part. Not every edge is a seam, and not every seam is found."""


HELP = "find the seams in shipped example photos and draw the result"
DESCRIPTION = (
    "Look for the seams in four photos that come with the package, three of them "
    "spliced, and write demo.png (photo, truth, edges and result side by side) and the "
    "results of cpcapp localize --report for each. With --contrast instead: contrast the "
    "paper's synthetic example and one shaped like the mice protein experiment with PCA, cPCA "
    "and cPCA++, print how well the hidden classes are separated and write contrast.png. "
    "Nothing is downloaded."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add = parser.add_argument
    output = "folder for the results, which replace those of an earlier demo (default: %(default)s)"
    add("-o", "--output", type=Path, default=Path("cpcapp-demo"), metavar="DIR", help=output)
    add("--contrast", action="store_true", help="contrast two generated data sets instead")
    seed = "seed of the data of --contrast (default: %(default)s)"
    add("--seed", type=int, default=0, help=seed)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.contrast:
        require("plot", "matplotlib")
    else:
        require("splicing", "cv2", "PIL", "simplejpeg", "safetensors", "jinja2")
    check_at_least(arguments, seed=0)
    with user_errors():
        make_folder(arguments.output)
    if arguments.contrast:
        _contrast(arguments.output, arguments.seed)
    else:
        _localize(arguments.output)
    return 0


def _localize(folder: Path) -> None:
    from cpcapp.reports.pdf import has_reportlab
    from cpcapp.splicing.decide.words import FADING, format_verdict
    from cpcapp.splicing.output.demo import localize_examples
    from cpcapp.splicing.output.folder import INDEX_NAME

    start = time.monotonic()
    with user_errors(), ProgressLine("localizing") as progress:
        try:
            results = localize_examples(folder, progress=progress)
        except OSError as error:
            raise UserError(f"can't write to {folder}: {error.strerror}") from error
    n_spliced = sum(not result.photo.authentic for result in results)
    print(
        f"Looked for seams in {len(results)} photos, {n_spliced} of them spliced, in "
        f"{time.monotonic() - start:.1f} s. Where a seam is likeliest:"
    )
    for result in results:
        verdict = format_verdict(result.found.verdict, result.found.p_value)
        print(f"  {result.photo.name:20} {_describe_seam(result)}; {verdict}")
    print(f"pictures in {printable(folder)}:")
    print(_FILES, *textwrap.wrap(FADING, 96), sep="\n")
    if not has_reportlab():
        print("There is no PDF without reportlab: pip install 'cpcapp[report]'")
    print(
        f"Open {printable(folder / INDEX_NAME)} in a browser: all four photos, and a report on "
        "each.\nFor photos of your own, cpcapp serve opens a page on this machine (it comes with "
        "pip install\n'cpcapp[web]'), and cpcapp localize PHOTO --report writes the same."
    )


def _describe_seam(result: ExampleResult) -> str:
    """Say how far the strongest seam is from the true one."""
    if result.seam is None:
        return "nothing is marked"
    where = f"row {result.seam['row']}, column {result.seam['column']}"
    if result.distance is None:
        found = result.found
        if found.calibrated and found.verdict_code not in ("signs", "weak"):
            return "nothing is marked, rightly, as nothing was pasted"
        marked = result.seam["strength"] >= found.threshold
        reached = "marked, though" if marked else "below the threshold, rightly, as"
        return f"{where}: {reached} nothing was pasted"
    if result.distance <= _NEAR_SEAM:
        return f"{where}: on the seam"
    return f"{where}: {result.distance:.0f} pixels from the seam"


def _contrast(folder: Path, seed: int) -> None:
    from cpcapp.experiments.demo import compare_methods, count_significant, make_demo_data
    from cpcapp.plotting import scatter_grid

    rows = []
    for name, data in make_demo_data(seed).items():
        n_target, n_features = data.target.shape
        print(f"{name} ({n_target} + {len(data.background)} samples, {n_features} features)")
        views = compare_methods(data)
        for view in views:
            print(
                f"  {view.method:7} adjusted Rand index {view.ari:z5.2f}   "
                f"{1e3 * view.seconds:7.1f} ms"
            )
        print(f"  components above sampling noise: {count_significant(data)}")
        shown = []
        for view in views:
            alpha = "" if view.alpha is None else f" (α = {view.alpha:.3g})"
            shown.append((f"{view.method}{alpha}   ARI {view.ari:z.2f}", view.scores))
        rows.append((name, data.labels, shown))
    picture = folder / "contrast.png"
    try:
        scatter_grid(rows).savefig(picture, dpi=110)
    except OSError as error:
        raise UserError(f"can't write {picture}: {error.strerror}") from error
    print(f"picture: {printable(picture)}")
