"""What ``cpcapp reduce`` and ``cpcapp apply`` share: lists of names, errors and notes."""

from __future__ import annotations

import argparse
import csv
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpcapp.cli._errors import UserError
from cpcapp.cli._results import printable

if TYPE_CHECKING:
    from cpcapp.tables.messages import Message

# Parameters whose option has another name.
_OPTIONS = {
    "background": "BACKGROUND",
    "background_values": "--background",
    "folder": "-o",
    "ids": "--id",
    "labels": "--label",
    "n_components": "-k",
    "output": "-o",
    "overwrite": "--force",
    "scores_format": "--format",
    "target_values": "--target",
}
MISSING_RULES = ("error", "zero", "mean", "drop")


def spell_as_option(name: str, value: Any) -> str:
    """Return a parameter of the library as an option of the command.

    Examples
    --------
    >>> spell_as_option("skip_bad_rows", True), spell_as_option("labels", ["my group"])
    ('--skip-bad-rows', "--label 'my group'")
    """
    option = _OPTIONS.get(name, "--" + name.replace("_", "-"))
    if value is None or value is True:
        return option
    names = [value] if not isinstance(value, list) else value
    text = ",".join(f'"{part}"' if "," in str(part) else str(part) for part in names)
    return f"{option} {shlex.quote(text)}"


def split_names(text: str) -> list[str]:
    """Return the names in an option, which are separated by commas.

    Examples
    --------
    >>> split_names('a, b,"c,d"')
    ['a', 'b', 'c,d']
    """
    try:
        records = list(csv.reader([text], skipinitialspace=True))
    except csv.Error as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    return [name.strip() for names in records for name in names if name.strip()]


def read_columns(names: list[str] | None, path: Path | None) -> list[str] | None:
    """Return the features named by ``--columns`` and ``--columns-from``; None for no names."""
    found = list(names or ())
    if path is not None:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        found += [line.strip() for line in lines if line.strip()]
        if not found:
            raise UserError(f"--columns-from {path} names no column")
    return found or None


def add_cleaning_options(parser: Any, missing: str | None, missing_help: str) -> None:
    """Add the options for missing values and bad rows."""
    parser.add_argument("--missing", choices=MISSING_RULES, default=missing, help=missing_help)
    parser.add_argument(
        "--skip-bad-rows",
        action="store_true",
        help="leave out rows with the wrong number of fields, text in place of a number, or "
        "infinity; without it they are an error",
    )


def parse_n_components(text: str) -> int | str:
    """Return the number of components that ``-k`` asks for."""
    if text == "auto":
        return text
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number above 0, or 'auto'")
    return count


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors of the library and of files into one line with options."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise UserError(f"{error.strerror or error}{where}") from error
    except (ValueError, ImportError) as error:
        raise UserError(_spell_error(error)) from error


def _spell_error(error: Exception) -> str:
    message = getattr(error, "message", None)
    text = str(error) if message is None else message.text(spell_as_option)
    return " ".join(text.split())


def print_notes(notes: Iterable[Message]) -> None:
    """Print problems that did not stop the command, on standard error."""
    for note in notes:
        print(f"note: {printable(note.text(spell_as_option))}", file=sys.stderr)
