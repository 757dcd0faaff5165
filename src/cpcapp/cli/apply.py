"""``cpcapp apply``: the components of new rows."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpcapp.cli._errors import UserError
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli._results import printable
from cpcapp.cli._tables import names_in, open_tables, user_errors

if TYPE_CHECKING:
    from cpcapp.tables import Table, TableModel


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "apply",
        help="components of new rows, by a model of cpcapp reduce",
        description="Compute the components of the rows of TABLE with a model that cpcapp reduce "
        "made. Columns are found by their names; missing values and scales are treated as they "
        "were then. TABLE may be - for a CSV on standard input.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="model.safetensors")
    parser.add_argument("table", metavar="TABLE", help="as for cpcapp reduce, or -")
    parser.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        help=".csv or .parquet; - for a CSV on standard output (default)",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE")
    several: Any = {"action": "append", "default": [], "metavar": "COL"}
    parser.add_argument("--id", **several, help="names of rows, kept beside the scores")
    parser.add_argument("--label", **several, help="further columns to keep")
    parser.add_argument(
        "--skip-bad-rows", action="store_true", help="leave out rows that can't be read"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    with user_errors():
        output = _output(arguments)
        (table,) = open_tables(arguments.table)
        from cpcapp.tables import load_model
        from cpcapp.tables.choosing import choose_columns
        from cpcapp.tables.cleaning import Cleaner
        from cpcapp.tables.writing import score_columns, scores_to

        model = load_model(arguments.model)
        _require_features(table, model, arguments.model)
        kept = choose_columns(
            table,
            columns=model.features,
            ids=names_in(arguments.id),
            labels=names_in(arguments.label),
        ).kept
        cleaner = Cleaner(model.missing, model.fill, skip_bad_rows=arguments.skip_bad_rows)
        names = score_columns(kept, model.n_components)
        with scores_to(output, names) as writer, ProgressLine("applying") as progress:
            chunks = table.chunks(model.features, kept, progress)
            for chunk in cleaner.clean(chunks, model.features):
                if cleaner.may_go_on:
                    writer.write(chunk, model.transform(chunk.values))
            # Before the file takes its place.
            cleaner.check(table.name, table.place)
    tally = cleaner.tally
    left_out = tally.n_rows - tally.n_used
    where = "" if isinstance(output, Path) is False else f" -> {printable(output)}"
    if where or left_out:
        remark = f", {left_out:,} left out" if left_out else ""
        print(f"{tally.n_used:,} rows{remark}{where}", file=sys.stdout if where else sys.stderr)
    return 0


def _output(arguments: argparse.Namespace) -> Any:
    if arguments.output == "-":
        return sys.stdout.buffer
    output = Path(arguments.output)
    if output.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise UserError(f"-o {output} must end in .csv or .parquet, or be -")
    if not output.parent.is_dir():
        raise UserError(f"there is no folder {printable(output.parent)} to write to")
    if output.resolve() in (Path(arguments.table).resolve(), arguments.model.resolve()):
        raise UserError(f"{printable(output)} is a file to read; choose another -o")
    if output.exists() and not arguments.force:
        raise UserError(f"{printable(output)} is there already; --force to replace, or another -o")
    return output


def _require_features(table: Table, model: TableModel, path: Path) -> None:
    from cpcapp.tables._table import listed

    absent = [name for name in model.features if name not in table.columns]
    if absent:
        raise UserError(
            f"{table.name} has no column {listed(absent)}, which {printable(path)} was made with"
        )
