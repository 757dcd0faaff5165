"""NIST's Nimble Challenges of 2016 and 2017 and the Media Forensics Challenges after them."""

from __future__ import annotations

import csv
import os
import re
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from cpcapp.splicing.datasets.collector import SampleCollector, check_folder, read_photo
from cpcapp.splicing.photo.pixels import BoolArray
from cpcapp.splicing.photo.samples import SampleSet

Row = dict[str, str]

_TABLE = re.compile(r"(?P<name>[A-Za-z]+(?P<year>\d{4}|\d{2})\w*-(?P<task>\w+))-(ref|index)\.csv")
_NEEDED = ("ProbeFileID", "ProbeFileName", "IsTarget", "ProbeMaskFileName")


def nimble(
    folder: str | os.PathLike[str],
    *,
    year: int | None = None,
    task: str | None = None,
    collection: str | None = None,
) -> SampleSet:
    r"""Open photos of NIST's Nimble Challenge: probes and the masks of its references.

    ::

        probe/                                            the photos
        indexes/NC2016-splice-index.csv                   which probes a task has
        reference/splice/NC2016-splice-ref.csv            whether and where they are tampered
        reference/splice/mask/                            the masks
        reference/manipulation/...

    The tables are separated by ``|``. In the masks white is what nobody touched; everything
    else, black or coloured, was manipulated, as NIST's own scorer has it. In the task
    ``manipulation`` that can be removals, blur and much else.

    In the task ``splice`` a row is about a probe and one possible donor: ``IsTarget`` is ``N``
    where nothing comes from that donor. A probe is authentic here if no row says ``Y``; if
    several do, its mask is all of theirs.

    ``task``: ``"splice"`` or ``"manipulation"``; all that there are by default. A probe may be in
    both, with different masks.

    ``collection``: only probes whose column ``Collection`` says so; the paper's is
    ``"Nimble-WEB"``. A reference without that column is then a problem.

    The bit planes in JPEG 2000 that came with 2018 are not read; such masks are problems.
    """
    folder = check_folder(folder)
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
                _add(collected, folder, f"{name}/{probe}", group)
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


def _add(collected: SampleCollector, folder: Path, name: str, rows: list[Row]) -> None:
    """Add a probe by its rows; a ValueError says why it can't be used."""
    photo = _resolve(folder, rows[0]["ProbeFileName"])
    masks = [
        _resolve(folder, row.get("BinaryProbeMaskFileName") or row["ProbeMaskFileName"], "mask")
        for row in rows
        if row["IsTarget"].casefold() in ("y", "yes", "true")
    ]
    if masks:
        collected.spliced(name, photo, partial(_read_masks, masks), *masks)
    else:
        collected.authentic(name, photo)


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


def _read_masks(paths: list[Path]) -> BoolArray:
    """Return what is not white in one of the masks."""
    photos = map(read_photo, paths)
    marked = [(pixels < np.iinfo(pixels.dtype).max).any(axis=2) for pixels in photos]
    return np.asarray(np.logical_or.reduce(marked))
