"""What an experiment is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cpcapp.datasets import ContrastData

Progress = Callable[[float], None]
Cell = str | int | float | None


class DataProblem(Exception):
    """A data set is not here, or its files are not what they should be."""


def load_data(load: Callable[..., ContrastData], **options: Any) -> ContrastData:
    """Return a data set; raise `DataProblem`, with the loader's message, if it can't be had."""
    try:
        return load(**options)
    except (OSError, ValueError, ImportError) as error:
        raise DataProblem(str(error)) from error


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


class Picture(NamedTuple):
    """A picture, as PNG; it is not shareable where it shows pieces of data that are not ours."""

    name: str
    png: bytes
    alt: str
    caption: str
    shareable: bool = True


class Table(NamedTuple):
    """A table; a row whose name ends in * used the labels. A folded one is shown on demand."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    folded: bool = False


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
    paper : dict
        What the paper reports, in its own words or figures, by the place.
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
    paper: dict[str, str] = field(default_factory=dict)
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


@cache
def _all_words() -> Any:
    import tomllib  # here, as every command imports this module

    return tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


def title_of(name: str) -> str:
    """Return the title of an experiment."""
    return str(_all_words()[name]["title"])


def result_of(name: str, findings: Iterable[str], **parts: Any) -> Result:
    """Return a result, with the words that its page has whatever came out."""
    words = {"look_at": _all_words()["comparison"]["look_at"], **_all_words()[name]}
    notes = words.pop("notes", ())
    return Result(name=name, findings=(*findings, *notes), **words, **parts)
