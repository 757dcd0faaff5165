"""What ``cpcapp reduce`` and ``cpcapp apply`` share: lists of names, and notes."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpcapp._io.text import printable
from cpcapp.cli._errors import UserError, spell_as_option

if TYPE_CHECKING:
    from cpcapp._io.messages import Message

MISSING_RULES = ("error", "zero", "mean", "drop")


def split_names(text: str) -> list[str]:
    """Return the names in an option, which are separated by commas.

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


def print_notes(notes: Iterable[Message]) -> None:
    """Print problems that did not stop the command, on standard error."""
    for note in notes:
        print(f"note: {printable(note.text(spell_as_option))}", file=sys.stderr)
