"""``cpcapp reduce``: what is special about one table against another."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpcapp.cli._errors import UserError, require
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli._tables import names_in, open_tables, user_errors

if TYPE_CHECKING:
    from cpcapp.tables import Table
    from cpcapp.tables.choosing import Columns, Selection
    from cpcapp.tables.reducing import Options

_PICTURES = (".png", ".svg", ".pdf")


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "reduce",
        help="what is special about one table against another",
        description="Find the directions along which the rows of TARGET vary most relative to "
        "those of BACKGROUND. Tables are .csv, .tsv (.gz too), .parquet, .npy, .npz (FILE::ARRAY) "
        "or .h5ad (FILE::LAYER), of any size: they are read in chunks. Columns are matched by "
        "name. OUT gets scores (the rows with their components), loadings.csv (every feature), "
        "top_features.csv, model.safetensors (for cpcapp apply) and summary.json.",
    )
    parser.add_argument("table", metavar="TARGET", help="the rows of interest")
    parser.add_argument(
        "other", nargs="?", metavar="BACKGROUND", help="rows to compare with; none with --split"
    )
    parser.add_argument(
        "-k",
        dest="n_components",
        type=_count,
        default=2,
        metavar="K",
        help="components, or 'auto' for those that stand out from noise (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="folder")
    parser.add_argument("--force", action="store_true", help="replace the results in OUT")
    parser.add_argument("--plot", type=Path, metavar="P", help="picture: .png, .svg or .pdf")
    parser.add_argument("--method", choices=("cpca++", "cpca", "pca"), default="cpca++")
    parser.add_argument(
        "--alpha", type=float, metavar="A", help="contrast of --method cpca (default: it chooses)"
    )
    parser.add_argument(
        "--format", choices=("csv", "parquet"), help="of the scores (default: as TARGET)"
    )
    parser.add_argument(
        "--include-background",
        action="store_true",
        help="scores of the background too; a column 'set' tells them apart",
    )
    _add_columns(parser)
    _add_cleaning(parser)
    parser.set_defaults(run=run)


def _add_columns(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("columns", "names with commas, or the option again")
    several: Any = {"action": "append", "default": [], "metavar": "COL"}
    group.add_argument("--columns", **several, help="the features (default: all that are left)")
    group.add_argument("--columns-from", type=Path, metavar="FILE", help="the same, one a line")
    group.add_argument("--drop", **several, help="left out")
    group.add_argument("--id", **several, help="names of rows, kept beside the scores")
    group.add_argument("--label", **several, help="kept beside the scores; the first gives colours")
    group = parser.add_argument_group("one table with both sets")
    group.add_argument("--split", metavar="COL", help="column that tells the sets apart")
    group.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="VALUE",
        help="of the target (default: all but those of the background)",
    )
    group.add_argument("--background", action="append", default=[], metavar="VALUE")


def _add_cleaning(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("values")
    group.add_argument(
        "--standardize",
        choices=("none", "each", "background"),
        default="none",
        help="divide features by their standard deviation: each set by its own, as for the "
        "mice of the paper, or both by the background's (default: %(default)s)",
    )
    group.add_argument(
        "--missing",
        choices=("error", "zero", "mean", "drop"),
        default="error",
        help="missing values become 0 or the mean of their column in their set, or their row is "
        "left out (default: %(default)s)",
    )
    group.add_argument(
        "--skip-bad-rows",
        action="store_true",
        help="leave out rows that can't be read (wrong number of fields, text, infinity)",
    )


def _count(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number above 0, or 'auto'")
    return count


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.plot is not None:
        if arguments.plot.suffix.lower() not in _PICTURES:
            raise UserError(f"--plot {arguments.plot} must end in {', '.join(_PICTURES)}")
        require("matplotlib", "plot")
    _check_combinations(arguments)
    with user_errors():
        paths = [path for path in (arguments.table, arguments.other) if path is not None]
        tables = open_tables(*paths)
        from cpcapp.cli._reduction import Outputs
        from cpcapp.tables.reducing import reduce_tables

        outputs = Outputs.of(arguments)
        outputs.check(paths, force=arguments.force)
        for table in tables:
            if not table.again:
                raise UserError(f"{table.name} is a pipe; tables are read twice: give a file")
        columns, target, background = _choose(tables, arguments)
        found = reduce_tables(
            target, background, columns.features, _options(arguments), progress=ProgressLine
        )
        outputs.write(found, columns, include_background=arguments.include_background)
    return 0


def _check_combinations(arguments: argparse.Namespace) -> None:
    split = arguments.split is not None
    if not split and (arguments.target or arguments.background):
        raise UserError("--target and --background are values of the column named by --split")
    if split and arguments.other is not None:
        raise UserError("give either BACKGROUND or --split, not both")
    if arguments.method != "pca" and not split and arguments.other is None:
        raise UserError(
            "needs a BACKGROUND table, or --split COL --background VALUE to find it in TARGET; "
            "--method pca goes without"
        )
    if split and not (arguments.target or arguments.background):
        raise UserError("--split needs --background VALUE, --target VALUE or both")
    if split and arguments.method != "pca" and not arguments.background:
        raise UserError("--split needs --background VALUE")
    if arguments.alpha is not None and arguments.method != "cpca":
        raise UserError("--alpha is for --method cpca only")
    if arguments.include_background and arguments.method == "pca":
        raise UserError("--method pca has no background to include")


def _choose(
    tables: list[Table], arguments: argparse.Namespace
) -> tuple[Columns, Selection, Selection | None]:
    from cpcapp.tables.choosing import Selection, choose_columns, match_columns

    split = arguments.split
    columns = choose_columns(
        tables[0],
        columns=_wanted(arguments),
        drop=names_in(arguments.drop),
        ids=names_in(arguments.id),
        labels=names_in(arguments.label),
        # The split is kept where it is a label, too.
        others=[] if split is None or split in names_in(arguments.label) else [split],
    )
    if split is None:
        if len(tables) == 1:
            return columns, Selection(tables[0]), None
        match_columns(tables[1], columns.features, tables[0])
        return columns, Selection(tables[0]), Selection(tables[1], "background")
    inside = frozenset(names_in(arguments.target)) or None
    outside = frozenset(names_in(arguments.background))
    if inside is not None and inside & outside:
        both = sorted(inside & outside)
        raise UserError(f"{both[0]!r} can't be target and background at once")
    target = Selection(tables[0], "target", split, inside, outside)
    background = Selection(tables[0], "background", split, outside) if outside else None
    return columns, target, background


def _wanted(arguments: argparse.Namespace) -> list[str] | None:
    names = names_in(arguments.columns)
    if arguments.columns_from is not None:
        lines = arguments.columns_from.read_text(encoding="utf-8-sig").splitlines()
        names += [line.strip() for line in lines if line.strip()]
        if not names:
            raise UserError(f"--columns-from {arguments.columns_from} names no column")
    return names or None


def _options(arguments: argparse.Namespace) -> Options:
    from cpcapp.tables.reducing import Options

    return Options(
        n_components=arguments.n_components,
        method=arguments.method,
        alpha="auto" if arguments.alpha is None else arguments.alpha,
        standardize=arguments.standardize,
        missing=arguments.missing,
        skip_bad_rows=arguments.skip_bad_rows,
    )
