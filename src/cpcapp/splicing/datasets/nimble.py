"""NIST's Nimble Challenges of 2016 and 2017 and the Media Forensics Challenges after them."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from cpcapp.splicing.datasets.collector import (
    SampleCollector,
    check_folder,
    read_photo,
    why_mask_unfit,
)
from cpcapp.splicing.photo.pixels import BoolArray, Pixels
from cpcapp.splicing.photo.samples import SampleSet

Row = dict[str, str]
Colour = tuple[int, int, int]

_REFERENCE = re.compile(r"(?P<edition>[A-Za-z]+(?P<year>\d{4}|\d{2})\w*)-(?P<task>\w+)-ref\.csv")
_INDEX = re.compile(r"(?P<edition>[A-Za-z]+(?P<year>\d{4}|\d{2})\w*)-(?P<task>\w+)-index\.csv")
_NEEDED = ("ProbeFileID", "ProbeFileName", "IsTarget", "ProbeMaskFileName")


def nimble(
    folder: str | os.PathLike[str],
    *,
    year: int | None = None,
    task: str | None = None,
    collection: str | None = None,
    operations: Sequence[str] | None = None,
) -> SampleSet:
    r"""Open photos of NIST's Nimble Challenge: probes and the masks of its references.

    ::

        probe/                                            the photos
        indexes/NC2016-splice-index.csv                   which probes a task has
        reference/splice/NC2016-splice-ref.csv            whether and where they are tampered
        reference/splice/NC2016-splice-ref-journalmask.csv, ...-probejournaljoin.csv
        reference/splice/mask/                            the masks
        reference/manipulation/...

    The tables are separated by ``|``. In the masks white is what nobody touched; everything
    else, black or coloured, was manipulated, as NIST's own scorer has it. The journal of 2017
    gives each operation a colour; ``operations`` takes some of them.

    In the task ``splice`` a row is about a probe and one possible donor: ``IsTarget`` is ``N``
    where nothing comes from that donor. A probe is authentic here if no row says ``Y``; if
    several do, its mask is all of theirs.

    ``task``: ``"splice"`` or ``"manipulation"``; all that there are by default. A probe may be in
    both, with different masks.

    ``collection``: only probes whose column ``Collection`` says so; the paper's is
    ``"Nimble-WEB"``. A reference without that column is then a problem.

    ``operations``: only what these operations of the journal made, by the beginnings of their
    names: ``["PasteSplice"]``. By default all that the mask shows, which in the task
    ``manipulation`` can be removals, blur and much else.

    The bit planes in JPEG 2000 that came with 2018 are not read; such masks are problems.
    """
    folder = check_folder(folder)
    if isinstance(operations, str) or (operations is not None and not operations):
        raise ValueError(
            f"operations={operations!r} must be a sequence of names, such as ['PasteSplice']"
        )
    tables = _tables(folder / "reference", _REFERENCE, year, task)
    if not tables:
        there = [t.path.name for t in _tables(folder / "reference", _REFERENCE, None, None)]
        raise FileNotFoundError(
            f"{folder} has no reference for year={year}, task={task!r}; "
            + (f"it has {', '.join(there)}" if there else "it needs reference/TASK/*-ref.csv")
        )
    found = SampleCollector()
    known: dict[str, set[str]] = {}
    for table in tables:
        try:
            rows, columns = _read(table.path)
            known[table.name] = {row.get("ProbeFileID", "") for row in rows}
            journal = _Journal(table, operations) if operations else None
        except ValueError as error:
            found.problem(table.name, str(error))
            continue
        wanted = [*_NEEDED, *(["Collection"] if collection is not None else [])]
        lacking = [column for column in wanted if column not in columns]
        if lacking:
            found.problem(table.name, f"{table.path.name} has no column {', '.join(lacking)}")
            continue
        chosen = [r for r in rows if collection is None or r["Collection"] == collection]
        for probe, group in _group_by_probe(chosen).items():
            _add(found, folder, f"{table.name}/{probe}", group, journal)
    for name, reason in _find_unreferenced(folder, known, year, task):
        found.problem(name, reason)
    return found.finish("nimble", folder)


@dataclass(frozen=True)
class _Table:
    """A reference or index: ``NC2016-splice``."""

    name: str
    path: Path


def _tables(
    folder: Path, pattern: re.Pattern[str], year: int | None, task: str | None
) -> list[_Table]:
    found = []
    for path in sorted(folder.rglob("*.csv")):
        match = pattern.fullmatch(path.name)
        if match is None:
            continue
        is_year = year is None or int(match["year"]) in (year, year - 2000)
        if is_year and (task is None or match["task"].casefold() == task.casefold()):
            found.append(_Table(f"{match['edition']}-{match['task']}", path))
    return found


def _read(path: Path) -> tuple[list[Row], list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="|", restval="")
            rows = [
                {key: (value or "").strip() for key, value in row.items() if key is not None}
                for row in reader
            ]
            return rows, list(reader.fieldnames or [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} can't be read as a table: {error}") from error


def _group_by_probe(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["ProbeFileID"], []).append(row)
    return groups


class _Journal:
    """Which colours of a mask stand for some operations."""

    def __init__(self, table: _Table, operations: Sequence[str]) -> None:
        self.operations = tuple(operations)
        stem = str(table.path).removesuffix(".csv")
        join, _ = _read(Path(f"{stem}-probejournaljoin.csv"))
        masks, _ = _read(Path(f"{stem}-journalmask.csv"))
        colours: dict[tuple[str, ...], list[Colour]] = {}
        for row in masks:
            if row.get("Operation", "").startswith(self.operations):
                colours.setdefault(_step(row), []).append(_parse_colour(row.get("Color", "")))
        self._colours: dict[tuple[str, str], list[Colour]] = {}
        for row in join:
            key = (row.get("ProbeFileID", ""), row.get("DonorFileID", ""))
            self._colours.setdefault(key, []).extend(colours.get(_step(row), []))

    def colours(self, row: Row) -> tuple[Colour, ...]:
        key = (row["ProbeFileID"], row.get("DonorFileID", ""))
        return tuple(dict.fromkeys(self._colours.get(key, [])))


def _step(row: Row) -> tuple[str, ...]:
    return tuple(row.get(column, "") for column in ("JournalName", "StartNodeID", "EndNodeID"))


def _parse_colour(text: str) -> Colour:
    parts = text.split()
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise ValueError(f"the journal has the colour {text!r}; it must be like '255 0 0'")
    red, green, blue = map(int, parts)
    return red, green, blue


def _add(
    found: SampleCollector, folder: Path, name: str, rows: list[Row], journal: _Journal | None
) -> None:
    """Add a probe by its rows, or say why it can't be used."""
    try:
        photo = _resolve(folder, rows[0]["ProbeFileName"])
        targets = [row for row in rows if row["IsTarget"].casefold() in ("y", "yes", "true")]
        if not targets:
            found.authentic(name, photo)
            return
        parts = [_find_mask(folder, row, journal) for row in targets]
    except ValueError as error:
        found.problem(name, str(error))
        return
    if journal is not None and not any(colours for _, colours in parts):
        found.problem(name, f"it was made without {' or '.join(journal.operations)}")
        return
    reason = next(filter(None, (why_mask_unfit(photo, mask) for mask, _ in parts)), "")
    if reason:
        found.problem(name, reason)
    else:
        found.spliced(name, photo, partial(_read_mask, tuple(parts)))


def _find_mask(
    folder: Path, row: Row, journal: _Journal | None
) -> tuple[Path, tuple[Colour, ...] | None]:
    """Return a mask file, and the colours in it that count; None for all but white."""
    if journal is not None:
        return _resolve(folder, row["ProbeMaskFileName"], "mask"), journal.colours(row)
    named = row.get("BinaryProbeMaskFileName") or row["ProbeMaskFileName"]
    return _resolve(folder, named, "mask"), None


def _resolve(folder: Path, name: str, what: str = "probe") -> Path:
    """Return the path of a file that a table names."""
    relative = PurePosixPath(name.replace("\\", "/"))
    if not name:
        raise ValueError(f"the reference names no {what} file")
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(f"{name} lies outside the folder of the data set")
    if relative.suffix.casefold() == ".jp2":
        raise ValueError(f"{name} has bit planes in JPEG 2000, which are not read")
    path = folder / relative
    if not path.is_file():
        raise ValueError(f"{name} is missing")
    return path


def _read_mask(parts: tuple[tuple[Path, tuple[Colour, ...] | None], ...]) -> BoolArray:
    marked = [_mark_colours(read_photo(path), colours) for path, colours in parts]
    return np.asarray(np.logical_or.reduce(marked))


def _mark_colours(pixels: Pixels, colours: tuple[Colour, ...] | None) -> BoolArray:
    if colours is None:
        return np.asarray((pixels < np.iinfo(pixels.dtype).max).any(axis=2))
    mask = np.zeros(pixels.shape[:2], dtype=bool)
    for colour in colours:
        mask |= (pixels == colour).all(axis=2)
    return mask


def _find_unreferenced(
    folder: Path, known: dict[str, set[str]], year: int | None, task: str | None
) -> Iterator[tuple[str, str]]:
    """Yield what is in the indexes but not in the references, and what to say of it."""
    for index in _tables(folder / "indexes", _INDEX, year, task):
        try:
            rows, _ = _read(index.path)
        except ValueError as error:
            yield index.name, str(error)
            continue
        for probe in dict.fromkeys(row.get("ProbeFileID", "") for row in rows):
            if probe not in known.get(index.name, ()):
                yield f"{index.name}/{probe}", "it is in the index but not in the reference"
