"""Make the gallery: a page for each experiment, with its pictures and numbers.

    python docs/make_gallery.py [--quick] [-o FOLDER]

The data sets are looked for in CPCAPP_DATA. Pictures that show pieces of the data themselves are
left out: ``cpcapp reproduce`` draws them for whoever has the data.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cpcapp import __version__
from cpcapp.cli._progress import ProgressLine
from cpcapp.experiments import NAMES, Missing, Result, Settings, run_experiments
from cpcapp.experiments.report import json_text, markdown_section, plain, write_files

NO_DATA = "the data were not at hand when this was written"
INTRODUCTION = """# Gallery: the paper's experiments

For readers of the paper: each page shows one of its experiments, and the last one the example of
another paper. `cpcapp reproduce` makes one report of all of them on your machine:

```
cpcapp reproduce all -o report             # all of them: some minutes
cpcapp reproduce all -o report --quick     # smaller samples: under a minute
cpcapp reproduce mice_protein -o report    # one of them
```

It needs `pip install 'cpcapp[reproduce]'`, and [the data](../datasets.md): from the folder that
`CPCAPP_DATA` names, or fetched. Where data are missing the report says so. The same seed
(`--seed`) gives the same numbers, times aside.
"""
READING = """## How to read the pages

In the plots each dot is a sample. Colour and shape tell its class, which no method was shown: look
whether the colours lie apart. cPCA has a setting, α. The upper row shows some choices, and the plot
below it how well clusters agree with the classes for each α. The methods of the lower row have
nothing to choose. λ are eigenvalues: variances for PCA, differences of variances for cPCA, ratios
to the loaded background for cPCA++.

In the tables *ARI* is the agreement of k-means clusters with the classes: 1 is perfect, 0 is
chance. *Silhouette* is 1 if classes lie far apart, 0 if they touch, below 0 if they are mixed.
*Accuracy* says how often the 5 nearest neighbours tell the class, in 5-fold cross-validation, each
individual in one fold only. Components are scaled to variance 1 first. Rows marked \\* used the
labels that are to be found. The default loading uses no labels, but its bounds were picked after
looking at labelled pairs of data sets, MNIST over grass and the mice among them
(`benchmarks/results/loading_rules.md`).

Pictures of the data themselves are not ours to show: `cpcapp reproduce` draws them.
"""
#: What would stand on several pages and is said once, in `READING`; and what stays of it.
REPEATED = (
    (
        r"\*\*What to look at\.\*\* Each dot is a sample;.*",
        "[How to read this page](index.md#how-to-read-the-pages).",
    ),
    (r"\. Above: cPCA at some α\..*\*", ".*"),
    (r"\n\*How well clusters agree with the classes, .*\*\n", ""),
    (r"- The bounds behind “nothing chosen” .*\n", ""),
    (r"\nARI: agreement of k-means clusters .*\n", ""),
    (r"(!\[.*\)\.) ARI: .*\](?=\()", r"\1]"),  # the list of findings has these figures
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the gallery of the documentation.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "gallery")
    parser.add_argument("names", nargs="*", default=NAMES)
    arguments = parser.parse_args(argv)
    settings = Settings(quick=arguments.quick)
    with ProgressLine("") as line:

        def progress(name: str, share: float) -> None:
            line.title = f"{name:16}"
            line(share)

        outcomes = run_experiments(arguments.names, settings, progress)
    write_gallery(outcomes, settings, arguments.output)
    return 0


def write_gallery(outcomes: Sequence[Result | Missing], settings: Settings, folder: Path) -> None:
    # Where files were looked for is nobody's business.
    outcomes = [replace(o, reason=NO_DATA) if isinstance(o, Missing) else o for o in outcomes]
    made = datetime.now(UTC).isoformat(timespec="seconds")
    files = {folder / f"{o.name}.md": page(o).encode() for o in outcomes}
    for outcome in outcomes:
        for picture in outcome.pictures if isinstance(outcome, Result) else ():
            if picture.shareable:
                files[folder / f"{picture.name}.png"] = picture.png
    files[folder / "index.md"] = index_page(outcomes, settings, made).encode()
    files[folder / "numbers.json"] = json_text(outcomes, settings, made).encode()
    write_files(files)


def index_page(outcomes: Sequence[Result | Missing], settings: Settings, made: str) -> str:
    """Return the list of all pages, and what is to be known of all of them."""
    lines = ["| | |", "| --- | --- |"]
    for outcome in outcomes:
        title, thumbnail = plain(outcome.title), ""
        if isinstance(outcome, Missing):
            about = "No data here."
        else:
            about = plain(outcome.shows).partition(". ")[0].rstrip(".") + "."
            first = next((p for p in outcome.pictures if p.shareable), None)
            if first is not None:
                thumbnail = f"[![{title}]({first.name}.png)]({outcome.name}.md)"
        lines.append(f"| {thumbnail} | **[{title}]({outcome.name}.md)** {about} |")
    tree = ["```{toctree}", ":hidden:", "", *(o.name for o in outcomes), "```"]
    quick = ", as a quick run" if settings.quick else ""
    origin = f"Made with cpcapp {__version__} on {made}, seed {settings.seed}{quick}."
    return "\n".join([INTRODUCTION, *lines, "", READING, origin, "", *tree]) + "\n"


def page(outcome: Result | Missing) -> str:
    if isinstance(outcome, Missing):
        blocks = [
            f"# {outcome.title}",
            f"Not made here: {outcome.reason}. With the data in "
            "the folder that `CPCAPP_DATA` names, this makes it:",
            f"```\ncpcapp reproduce {outcome.name} -o report\n```",
        ]
        return "\n\n".join(blocks) + "\n"
    shown = [picture for picture in outcome.pictures if picture.shareable]
    # What is folded is long: a picture shows it, and numbers.json has it.
    outcome = replace(outcome, tables=tuple(t for t in outcome.tables if not t.folded))
    blocks = [f"# {outcome.title}", *markdown_section(outcome, shown, "", level=2)]
    return leave_out_repeats("\n\n".join(blocks) + "\n")


def leave_out_repeats(text: str) -> str:
    """Return a page without what the list of pages says."""
    for pattern, left in REPEATED:
        text = re.sub(pattern, left, text)
    return re.sub(r"\n{3,}", "\n\n", text)


if __name__ == "__main__":
    sys.exit(main())
