"""``cpcapp apply``: the components of new rows."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from cpcapp._io.text import printable
from cpcapp.cli._errors import user_errors
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli._tables import add_cleaning_options, print_notes, split_names

HELP = "components of new rows, by a model of cpcapp reduce"
DESCRIPTION = (
    "Compute the components of the rows of TABLE with a model of cpcapp reduce. "
    "Columns are found by their names. Rows are prepared as they were for the model. A model "
    "of cpca++ gives two more columns: power, how far a row lies from the background, and p, "
    "how likely background is to lie as far."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add: Any = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="model.safetensors")
    table = "as for cpcapp reduce, or - for a CSV on standard input"
    add("table", metavar="TABLE", help=table)
    output = ".csv or .parquet; - for a CSV on standard output (default)"
    add("-o", "--output", default="-", metavar="FILE", help=output)
    add("--force", action="store_true", help="replace FILE")
    names: Any = {"action": "extend", "type": split_names, "default": [], "metavar": "COL"}
    add("--id", **names, help="columns with names of rows, copied to FILE")
    add("--label", **names, help="further columns to copy")
    missing = "what to do with missing values (default: as the model was made)"
    add_cleaning_options(parser, None, missing)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    with user_errors():
        from cpcapp.tables import apply_model

        to_stdout = arguments.output == "-"
        applied = apply_model(
            arguments.model,
            arguments.table,
            sys.stdout.buffer if to_stdout else arguments.output,
            ids=arguments.id,
            labels=arguments.label,
            missing=arguments.missing,
            skip_bad_rows=arguments.skip_bad_rows,
            overwrite=arguments.force,
            progress=ProgressLine,
        )
    if not to_stdout:
        print(f"{applied.counts.n_used:,} rows -> {printable(arguments.output)}")
    print_notes(applied.notes())
    return 0
