"""Errors and notes about tables: a problem, and advice that names parameters.

A Python user reads ``missing='drop'`` where a user of the command reads ``--missing drop``. So the
advice is kept apart from the way in which its parameters are spelled.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

Spelling = Callable[[str, Any], str]


def spell_as_keyword(name: str, value: Any) -> str:
    """Return a parameter as Python spells it.

    Examples
    --------
    >>> spell_as_keyword("missing", "drop"), spell_as_keyword("drop", None)
    ("missing='drop'", 'drop')
    """
    return name if value is None else f"{name}={value!r}"


@dataclass(frozen=True)
class Message:
    """A problem and what to do about it.

    Attributes
    ----------
    problem : str
    advice : str
        Parameters stand in braces.
    values : mapping of str to object
        Values that the advice suggests for its parameters.

    Examples
    --------
    >>> message = Message("3 values are missing", "choose {missing}", {"missing": "drop"})
    >>> message.text()
    "3 values are missing; choose missing='drop'"
    >>> message.text(lambda name, value: f"--{name} {value}")
    '3 values are missing; choose --missing drop'
    """

    problem: str
    advice: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def text(self, spell: Spelling = spell_as_keyword) -> str:
        """Return the whole message in one line.

        Parameters
        ----------
        spell : callable of a name and a value or None
        """
        if not self.advice:
            return self.problem
        names = [name for _, name, _, _ in Formatter().parse(self.advice) if name]
        fields = {name: spell(name, self.values.get(name)) for name in names}
        return f"{self.problem}; {self.advice.format(**fields)}"


class TableError(ValueError):
    """A table, a model of tables or an option for them can't be used.

    The text says in one line where the problem is and what to do. ``message`` has the same in
    parts, for programs that spell parameters in another way.

    Parameters
    ----------
    problem : str
    advice : str, optional
        Parameters stand in braces.
    **values
        Values that the advice suggests for its parameters.

    Examples
    --------
    >>> str(TableError("t.csv: 2 bad rows", "leave them out with {skip_bad_rows}",
    ...                skip_bad_rows=True))
    't.csv: 2 bad rows; leave them out with skip_bad_rows=True'
    """

    def __init__(self, problem: str, advice: str = "", **values: Any) -> None:
        self.message = Message(problem, advice, values)
        super().__init__(self.message.text())


class MissingPackageError(ImportError):
    """An optional package is not installed."""


def require_package(name: str, extra: str) -> None:
    """Raise `MissingPackageError` with the command that installs a package."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"needs {name}; install it with: pip install 'cpcapp[{extra}]'"
        ) from error


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Raise `TableError` unless a parameter has one of the allowed values."""
    if value not in allowed:
        choices = ", ".join(map(repr, allowed))
        raise TableError(f"{value!r} is not known", f"{{{name}}} must be one of {choices}")


def quote_names(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, and how many more there are.

    Examples
    --------
    >>> quote_names(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> count_of(1, "row"), count_of(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
