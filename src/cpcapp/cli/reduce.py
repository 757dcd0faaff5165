"""``cpcapp reduce``: what is special about one table against another."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cpcapp._io.text import printable
from cpcapp.cli import _tables as shared
from cpcapp.cli._errors import UserError, user_errors
from cpcapp.cli._progress import ProgressLine

HELP = "what is special about one table against another"
DESCRIPTION = """Find the directions along which the rows of TARGET vary most, relative to those of
BACKGROUND. Tables are .csv, .tsv (.gz too), .parquet, .xlsx, .xlsm, .xlsb, .xls, .ods
(FILE::SHEET), .npy, .npz (FILE::ARRAY) or .h5ad (FILE::LAYER), or folders of .parquet files, of any
size: they are read in chunks. Columns are matched by name. OUT gets scores (the rows with their
components), loadings.csv (every feature), top_features.csv, model.safetensors (for cpcapp apply)
and summary.json."""
# Options that are parameters of reduce_tables by the same name.
_PARAMETERS = (
    *("method", "alpha", "permutation_test", "drop", "ids", "labels", "split"),
    *("target_values", "background_values", "standardize", "missing", "skip_bad_rows"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add: Any = parser.add_argument
    add("table", metavar="TARGET", help="the rows of interest")
    add("other", nargs="?", metavar="BACKGROUND", help="rows to compare with; none with --split")
    k: Any = {"dest": "n_components", "metavar": "K", "type": shared.parse_n_components}
    add("-k", **k, default=2, help="components; auto keeps the significant ones (default: 2)")
    add("-o", "--output", type=Path, required=True, metavar="OUT", help="folder for the results")
    add("--force", action="store_true", help="replace the results in OUT")
    add("--plot", type=Path, metavar="P", help="also write a plot: .png, .svg or .pdf")
    methods: Any = {"choices": ("cpca++", "cpca", "pca"), "default": "cpca++"}
    add("--method", **methods, help="pca needs no BACKGROUND (default: cpca++)")
    add("--alpha", type=float, metavar="A", help="contrast of --method cpca (default: automatic)")
    shuffle: Any = {"action": argparse.BooleanOptionalAction, "default": True}
    by = "count significant components by shuffling rows, or by a law for Gaussian rows"
    add("--permutation-test", **shuffle, help=f"{by} (default: by shuffling)")
    add("--format", choices=("csv", "parquet"), help="of the scores (default: as TARGET)")
    both = "write scores of the background too, with a column 'set'"
    add("--include-background", action="store_true", help=both)
    _add_columns(parser)
    group = parser.add_argument_group("values")
    scales: Any = {"choices": ("none", "each", "background"), "default": "none"}
    scales_help = "divide features by their standard deviation, each set by its own or both by the "
    group.add_argument("--standardize", **scales, help=scales_help + "background's (default: none)")
    missing_help = "missing values are an error, become 0 or the mean of their column in their set,"
    missing_help += " or their row is dropped (default: error)"
    shared.add_cleaning_options(group, "error", missing_help)


def _add_columns(parser: argparse.ArgumentParser) -> None:
    text = "names separated by commas; options can be repeated"
    add: Any = parser.add_argument_group("columns", text).add_argument
    names: Any = {"action": "extend", "type": shared.split_names, "metavar": "COL"}
    add("--columns", **names, help="the features (default: all that are left)")
    add("--columns-from", type=Path, metavar="FILE", help="names of the features, one per line")
    add("--drop", **names, help="columns that are not used")
    add("--id", dest="ids", **names, help="names of rows, copied to the scores")
    labels_help = "also copied to the scores; the first gives the colours"
    add("--label", dest="labels", **names, help=labels_help)
    genes = "genes of .h5ad: a column of var, or all (default: highly_variable if there is one)"
    add("--mask-var", default="auto", metavar="COL", help=genes)
    add = parser.add_argument_group("one table with both sets").add_argument
    names["metavar"] = "VALUE"
    add("--split", metavar="COL", help="column that says to which set a row belongs")
    rest = "values of the target (default: all but the background's)"
    add("--target", dest="target_values", **names, help=rest)
    add("--background", dest="background_values", **names, help="values of the background")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.include_background and arguments.method == "pca":
        raise UserError("--method pca has no background to include")
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    with user_errors():
        from cpcapp.tables import reduce_tables, write_results
        from cpcapp.tables.results import ResultFiles

        output = {"scores_format": arguments.format, "plot": arguments.plot}
        inputs = [path for path in (arguments.table, arguments.other) if path is not None]
        # Before the tables are read, which may take long.
        files = ResultFiles(arguments.output, arguments.table, **output)
        files.check(inputs, overwrite=arguments.force)
        found = reduce_tables(
            arguments.table,
            arguments.other,
            arguments.n_components,
            columns=shared.read_columns(arguments.columns, arguments.columns_from),
            mask_var=None if arguments.mask_var == "all" else arguments.mask_var,
            progress=ProgressLine,
            **{name: given[name] for name in _PARAMETERS if name in given},
        )
        results = write_results(
            found,
            arguments.output,
            include_background=arguments.include_background,
            overwrite=arguments.force,
            progress=ProgressLine,
            **output,
        )
    for line in results.summary.lines():
        print(printable(line))
    print(f"-> {', '.join(printable(path) for path in results.files.all)}")
    shared.print_notes(results.summary.notes())
    return 0
