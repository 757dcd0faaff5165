"""NIST's Nimble Challenges of 2016 and 2017 and the Media Forensics Challenges after them."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from cpcapp.splicing.datasets.collector import (
    SampleCollector,
    check_folder,
    read_photo,
)
from cpcapp.splicing.photo.pixels import BoolArray
from cpcapp.splicing.photo.samples import SampleSet

Row = dict[str, str]
Colour = tuple[int, int, int]

_TABLE = re.compile(r"(?P<name>[A-Za-z]+(?P<year>\d{4}|\d{2})\w*-(?P<task>\w+))-(ref|index)\.csv")
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
    references = _tables(folder, "ref", year, task)
    if not references:
        others = [path.name for path in _tables(folder, "ref", None, None)]
        raise FileNotFoundError(
            f"{folder} has no reference for year={year}, task={task!r}; "
            + (f"it has {', '.join(others)}" if others else "it needs reference/TASK/*-ref.csv")
        )
    collected = SampleCollector()
    known: dict[str, set[str]] = {}
    wanted = [*_NEEDED, *(["Collection"] if collection is not None else [])]
    for path, name in references.items():
        try:
            rows, columns = _read(path)
            known[name] = {row.get("ProbeFileID", "") for row in rows}
            journal = _Journal(path, operations) if operations else None
            if lacking := [column for column in wanted if column not in columns]:
                raise ValueError(f"{path.name} has no column {', '.join(lacking)}")
        except ValueError as error:
            collected.problem(name, str(error))
            continue
        probes: dict[str, list[Row]] = {}
        for row in rows:
            if collection is None or row["Collection"] == collection:
                probes.setdefault(row["ProbeFileID"], []).append(row)
        for probe, group in probes.items():
            try:
                _add(collected, folder, f"{name}/{probe}", group, journal)
            except ValueError as error:
                collected.problem(f"{name}/{probe}", str(error))
    for path, name in _tables(folder, "index", year, task).items():
        try:
            rows, _ = _read(path)
        except ValueError as error:
            collected.problem(name, str(error))
            continue
        for probe in dict.fromkeys(row.get("ProbeFileID", "") for row in rows):
            if probe not in known.get(name, ()):
                collected.problem(f"{name}/{probe}", "it is in the index but not in the reference")
    return collected.finish("nimble", folder)


def _tables(folder: Path, kind: str, year: int | None, task: str | None) -> dict[Path, str]:
    """Return the references or indexes of a year and a task, and their names: NC2016-splice."""
    tables = {}
    for path in sorted((folder / {"ref": "reference", "index": "indexes"}[kind]).rglob("*.csv")):
        match = _TABLE.fullmatch(path.name)
        if match is None or match[4] != kind:
            continue
        is_year = year is None or int(match["year"]) in (year, year - 2000)
        if is_year and (task is None or match["task"].casefold() == task.casefold()):
            tables[path] = match["name"]
    return tables


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


class _Journal:
    """Which colours of a mask stand for some operations."""

    def __init__(self, reference: Path, operations: Sequence[str]) -> None:
        self.operations = tuple(operations)
        stem = str(reference).removesuffix(".csv")
        join, _ = _read(Path(f"{stem}-probejournaljoin.csv"))
        masks, _ = _read(Path(f"{stem}-journalmask.csv"))
        by_step: dict[tuple[str, ...], list[Colour]] = {}
        for row in masks:
            if row.get("Operation", "").startswith(self.operations):
                by_step.setdefault(_step(row), []).append(_parse_colour(row.get("Color", "")))
        self._colours: dict[tuple[str, str], list[Colour]] = {}
        for row in join:
            key = (row.get("ProbeFileID", ""), row.get("DonorFileID", ""))
            self._colours.setdefault(key, []).extend(by_step.get(_step(row), []))

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
    collected: SampleCollector, folder: Path, name: str, rows: list[Row], journal: _Journal | None
) -> None:
    """Add a probe by its rows; a ValueError says why it can't be used."""
    photo = _resolve(folder, rows[0]["ProbeFileName"])
    targets = [row for row in rows if row["IsTarget"].casefold() in ("y", "yes", "true")]
    if not targets:
        collected.authentic(name, photo)
        return
    # With a journal the colours in a mask that count; else None: all but white do.
    parts: list[tuple[Path, tuple[Colour, ...] | None]] = []
    for row in targets:
        mask, colours = row["ProbeMaskFileName"], None
        if journal is not None:
            colours = journal.colours(row)
        else:
            mask = row.get("BinaryProbeMaskFileName") or mask
        parts.append((_resolve(folder, mask, "mask"), colours))
    if journal is not None and not any(colours for _, colours in parts):
        raise ValueError(f"it was made without {' or '.join(journal.operations)}")
    collected.spliced(name, photo, partial(_read_mask, tuple(parts)), *(path for path, _ in parts))


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
    marked = []
    for path, colours in parts:
        pixels = read_photo(path)
        if colours is None:
            marked.append((pixels < np.iinfo(pixels.dtype).max).any(axis=2))
        else:
            marked += [(pixels == colour).all(axis=2) for colour in colours]
    return np.asarray(np.logical_or.reduce(marked))
