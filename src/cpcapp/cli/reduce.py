"""``cpcapp reduce``: what is special about one table against another."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cpcapp.cli import _tables as shared
from cpcapp.cli._errors import UserError
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli._results import shown

_DESCRIPTION = """Find the directions along which the rows of TARGET vary most, relative to those of
BACKGROUND. Tables are .csv, .tsv (.gz too), .parquet, .npy, .npz (FILE::ARRAY) or .h5ad
(FILE::LAYER), of any size: they are read in chunks. Columns are matched by name. OUT gets scores
(the rows with their components), loadings.csv (every feature), top_features.csv, model.safetensors
(for cpcapp apply) and summary.json."""


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "reduce", help="what is special about one table against another", description=_DESCRIPTION
    )
    yes, several = {"action": "store_true"}, {"action": "append", "default": [], "metavar": "COL"}
    add: Any = parser.add_argument
    add("table", metavar="TARGET", help="the rows of interest")
    add("other", nargs="?", metavar="BACKGROUND", help="rows to compare with; none with --split")
    add(
        "-k",
        dest="n_components",
        type=shared.parse_n_components,
        default=2,
        metavar="K",
        help="number of components; auto keeps the significant ones (default: %(default)s)",
    )
    add("-o", "--output", type=Path, required=True, metavar="OUT", help="folder for the results")
    add("--force", **yes, help="replace the results in OUT")
    add("--plot", type=Path, metavar="P", help="also write a plot: .png, .svg or .pdf")
    add(
        "--method",
        choices=("cpca++", "cpca", "pca"),
        default="cpca++",
        help="(default: %(default)s)",
    )
    add("--alpha", type=float, metavar="A", help="contrast of --method cpca (default: automatic)")
    add("--permutation-test", **yes, help="count significant components by permutation (slow)")
    add("--format", choices=("csv", "parquet"), help="of the scores (default: as TARGET)")
    add("--include-background", **yes, help="write scores of the background too; see column 'set'")
    add = parser.add_argument_group(
        "columns", "names separated by commas; options can be repeated"
    ).add_argument
    add("--columns", **several, help="the features (default: all that are left)")
    add("--columns-from", type=Path, metavar="FILE", help="names of the features, one per line")
    add("--drop", **several, help="columns that are not used")
    add("--id", **several, help="names of rows, copied to the scores")
    add("--label", **several, help="also copied to the scores; the first gives the colours")
    add(
        "--mask-var",
        default="auto",
        metavar="COL",
        help="genes of .h5ad: a column of var, or all (default: highly_variable if there is one)",
    )
    add = parser.add_argument_group("one table with both sets").add_argument
    values = {**several, "metavar": "VALUE"}
    add("--split", metavar="COL", help="column that says to which set a row belongs")
    add("--target", **values, help="values of the target (default: all but the background's)")
    add("--background", **values, help="values of the background")
    group = parser.add_argument_group("values")
    group.add_argument(
        "--standardize",
        choices=("none", "each", "background"),
        default="none",
        help="divide features by their standard deviation, each set by its own or both by the "
        "background's (default: %(default)s)",
    )
    shared.add_cleaning_options(
        group,
        "error",
        "missing values are an error, become 0 or the mean "
        "of their column in their set, or their row is dropped (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.include_background and arguments.method == "pca":
        raise UserError("--method pca has no background to include")
    with shared.user_errors():
        from cpcapp.tables import reduce_tables, write_results
        from cpcapp.tables.results.writing import plan_files

        output = {"scores_format": arguments.format, "plot": arguments.plot}
        inputs = [path for path in (arguments.table, arguments.other) if path is not None]
        # Before the tables are read, which may take long.
        files = plan_files(arguments.output, arguments.table, **output)
        files.check(inputs, overwrite=arguments.force)
        found = reduce_tables(
            arguments.table,
            arguments.other,
            arguments.n_components,
            method=arguments.method,
            alpha="auto" if arguments.alpha is None else arguments.alpha,
            standardize=arguments.standardize,
            missing=arguments.missing,
            skip_bad_rows=arguments.skip_bad_rows,
            permutation_test=arguments.permutation_test,
            columns=shared.read_columns(arguments.columns, arguments.columns_from),
            drop=shared.split_names(arguments.drop),
            ids=shared.split_names(arguments.id),
            labels=shared.split_names(arguments.label),
            split=arguments.split,
            target_values=shared.split_names(arguments.target),
            background_values=shared.split_names(arguments.background),
            mask_var=None if arguments.mask_var == "all" else arguments.mask_var,
            progress=ProgressLine,
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
        print(shown(line))
    print(f"-> {', '.join(shown(path) for path in results.files.all)}")
    shared.print_notes(results.summary.notes())
    return 0
