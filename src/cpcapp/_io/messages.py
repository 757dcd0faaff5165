"""Errors and notes in parts: a problem, and advice that names parameters.

A Python user reads ``missing='drop'`` where a user of the command reads ``--missing drop``. So the
advice is kept apart from the way in which its parameters are spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

Spelling = Callable[[str, Any], str]


def spell_as_keyword(name: str, value: Any) -> str:
    """Return a parameter as Python spells it."""
    return name if value is None else f"{name}={value!r}"


@dataclass(frozen=True)
class Message:
    """A problem, and advice in which parameters stand in braces; ``values`` has their values.

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
        """Return the whole message in one line."""
        if not self.advice:
            return self.problem
        names = [name for _, name, _, _ in Formatter().parse(self.advice) if name]
        fields = {name: spell(name, self.values.get(name)) for name in names}
        return f"{self.problem}; {self.advice.format(**fields)}"


class MessageError(ValueError):
    """A user's mistake; ``message`` has its text in parts, for programs that spell otherwise."""

    def __init__(self, problem: str, advice: str = "", **values: Any) -> None:
        self.message = Message(problem, advice, values)
        super().__init__(self.message.text())
