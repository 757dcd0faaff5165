"""Errors and notes about tables; `cpcapp._io.messages` says how they are spelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpcapp._io.messages import Message as Message
from cpcapp._io.messages import MessageError


class TableError(MessageError):
    """A table, a model of tables or an option for them can't be used.

    The text says in one line where the problem is and what to do. ``message`` has the same in
    parts, for programs that spell parameters in another way.
    """


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Raise `TableError` unless a parameter has one of the allowed values."""
    if value not in allowed:
        choices = ", ".join(map(repr, allowed))
        raise TableError(f"{value!r} is not known", f"{{{name}}} must be one of {choices}")


def one_line(error: Exception) -> str:
    """Return what another library says of an error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def quote_names(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: 1,200 rows."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
