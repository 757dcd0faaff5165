"""Make the gallery: a page for each experiment, with its pictures and numbers.

    python docs/make_gallery.py [--quick] [-o FOLDER]

The data sets are looked for in CPCAPP_DATA. Pictures that show pieces of the data themselves are
left out: ``cpcapp reproduce`` draws them for whoever has the data.
"""

from __future__ import annotations

import argparse
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

Each page shows one experiment of the paper: the pictures, the numbers, and what the paper says.
The last one is the example of another paper. They were written by `make gallery`, with the code
of `cpcapp reproduce`, which makes one report of all of them on your machine:

```
cpcapp reproduce all -o report             # all of them: some minutes
cpcapp reproduce all -o report --quick     # smaller samples: under a minute
cpcapp reproduce mice_protein -o report    # one of them
```

It needs `pip install 'cpcapp[reproduce]'`, and [the data](../datasets.md): from the folder that
`CPCAPP_DATA` names, or fetched. Where data are missing the report says so, and the rest is made.
The same seed (`--seed`) gives the same numbers, times aside.
"""


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
    files = {folder / f"{o.name}.md": page(o, settings, made).encode() for o in outcomes}
    for outcome in outcomes:
        for picture in outcome.pictures if isinstance(outcome, Result) else ():
            if picture.shareable:
                files[folder / f"{picture.name}.png"] = picture.png
    files[folder / "index.md"] = index_page(outcomes).encode()
    files[folder / "numbers.json"] = json_text(outcomes, settings, made).encode()
    write_files(files)


def index_page(outcomes: Sequence[Result | Missing]) -> str:
    """Return the list of all pages; a picture of each is a link to it."""
    lines = ["| | |", "| --- | --- |"]
    for outcome in outcomes:
        title, thumbnail = plain(outcome.title), ""
        if isinstance(outcome, Missing):
            about = "No data here."
        else:
            about = plain(outcome.shows)
            first = next((p for p in outcome.pictures if p.shareable), None)
            if first is not None:
                thumbnail = f"[![{title}]({first.name}.png)]({outcome.name}.md)"
        lines.append(f"| {thumbnail} | **[{title}]({outcome.name}.md)** {about} |")
    tree = ["```{toctree}", ":hidden:", "", *(o.name for o in outcomes), "```"]
    return "\n".join([INTRODUCTION, *lines, "", *tree]) + "\n"


def page(outcome: Result | Missing, settings: Settings, made: str) -> str:
    command = f"cpcapp reproduce {outcome.name} -o report"
    if isinstance(outcome, Missing):
        blocks = [
            f"# {outcome.title}",
            f"Not made here: {outcome.reason}. With the data in "
            "the folder that `CPCAPP_DATA` names, this makes it:",
            f"```\n{command}\n```",
        ]
        return "\n\n".join(blocks) + "\n"
    shown = [picture for picture in outcome.pictures if picture.shareable]
    # What is folded is long: a picture shows it, and numbers.json has it.
    outcome = replace(outcome, tables=tuple(t for t in outcome.tables if not t.folded))
    left_out = len(outcome.pictures) - len(shown)
    blocks = [f"# {outcome.title}", *markdown_section(outcome, shown, "", level=2)]
    quick = ", as a quick run" if settings.quick else ""
    blocks.append(
        f"Made with cpcapp {__version__} on {made}, seed {settings.seed}{quick}. To make it again"
        + (
            ", with pictures of the data themselves, which are not ours to show:"
            if left_out
            else ":"
        )
    )
    return "\n\n".join([*blocks, f"```\n{command}\n```"]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
