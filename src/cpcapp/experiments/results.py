"""What an experiment is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Progress = Callable[[float], None]
Cell = str | int | float | None


class DataProblem(Exception):
    """A data set is not here, or its files are not what they should be."""


@dataclass(frozen=True)
class Settings:
    """How to run an experiment.

    Attributes
    ----------
    seed : int
        Everything that is drawn depends on it, and on nothing else.
    quick : bool
        Smaller samples, t-SNE on a few hundred rows: a look in under a minute.
    """

    seed: int = 0
    quick: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture, as PNG; ``alt`` says what it shows to those who do not see it.

    It is not ``shareable`` where it shows pieces of the data, which are not ours to publish.
    """

    name: str
    png: bytes
    alt: str
    caption: str
    shareable: bool = True


@dataclass(frozen=True)
class Table:
    """A table; a row whose name ends in * used the labels that are to be found.

    A folded one is shown to those who ask for it.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class PaperSays:
    """What the paper reports, in its own words or figures, and where."""

    text: str
    source: str


@dataclass(frozen=True)
class Result:
    """What an experiment found.

    Attributes
    ----------
    name, title : str
    shows, look_at : str
        For a reader who is no statistician: what is shown, and what to look at.
    data : str
        Where the data come from, and how many they are.
    findings : tuple of str
        What came out; the first also stands in a table of all experiments.
    paper : tuple of PaperSays
    pictures : tuple of Picture
    tables : tuple of Table
    numbers : dict
        All figures, for programs. The same for the same seed.
    timings : dict
        Seconds and what follows from them: never twice the same.
    """

    name: str
    title: str
    shows: str
    look_at: str
    data: str
    findings: tuple[str, ...]
    paper: tuple[PaperSays, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Missing:
    """An experiment that could not be made, because its data are not here."""

    name: str
    title: str
    reason: str
