"""Wearable sensors on people who exercise."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cpcapp.datasets._contrast_data import ContrastData
from cpcapp.datasets._errors import DataNotFoundError
from cpcapp.datasets._fetch import PathLike, fetch, find
from cpcapp.datasets._registry import MHEALTH
from cpcapp.datasets._standardize import standardize_columns
from cpcapp.moments.moments import FloatArray

ACTIVITIES = {
    0: "nothing",
    1: "standing still",
    2: "sitting and relaxing",
    3: "lying down",
    4: "walking",
    5: "climbing stairs",
    6: "waist bends forward",
    7: "frontal elevation of arms",
    8: "knees bending",
    9: "cycling",
    10: "jogging",
    11: "running",
    12: "jump front and back",
}

# The order of the columns in the logs, by the README of the data set.
SIGNALS = [
    *(f"chest_acceleration_{axis}" for axis in "xyz"),
    *("ecg_lead_1", "ecg_lead_2"),
    *(
        f"{place}_{kind}_{axis}"
        for place in ("left_ankle", "right_lower_arm")
        for kind in ("acceleration", "gyro", "magnetometer")
        for axis in "xyz"
    ),
]
_LOG = re.compile(r"mHealth_subject(\d+)\.log")


def mhealth(
    path: PathLike | None = None,
    *,
    activities: Sequence[int] = (8, 9),
    background: int = 3,
    subjects: Sequence[int] | None = (1,),
    standardize: bool = True,
    data_home: PathLike | None = None,
) -> ContrastData:
    r"""Load mHealth: people who exercise against people who lie still.

    Ten people wore sensors on chest, left ankle and right lower arm that measured 23 signals 50
    times a second. The defaults are the choice of the authors of cPCA: of subject 1, knees bending
    (squats) and cycling are the target, and lying down is the background. The paper, which names
    the same activities, counts 6451 and 3072 rows.

    Parameters
    ----------
    path : path, optional
        The official archive, or a folder with ``mHealth_subject*.log``. Otherwise ``mhealth`` in
        ``data_home`` is looked into, and the archive is fetched if need be.
    activities : sequence of int, default=(8, 9)
        Which activities are the classes of the target: 1 standing still, 2 sitting and relaxing,
        3 lying down, 4 walking, 5 climbing stairs, 6 waist bends forward, 7 frontal elevation of
        arms, 8 knees bending, 9 cycling, 10 jogging, 11 running, 12 jump front and back; 0 is
        what lies between them.
    background : int, default=3
        The activity of the background.
    subjects : sequence of int or None, default=(1,)
        Whose recordings; None for all.
    standardize : bool, default=True
        Centre each signal and divide it by its standard deviation, in each set by its own. The
        signals have different units (m/s², mV, deg/s).
    data_home : path, optional
        See :doc:`/datasets`.

    Returns
    -------
    ContrastData
        With 23 features, ``labels`` that count through ``activities``, and ``groups`` with the
        number of the subject. Rows are in the order of time, subject by subject; neighbours are
        not independent.

    Raises
    ------
    DataNotFoundError
        If the data are not here and can't be fetched.

    Examples
    --------
    Four rows in the published format, of lying (3), knees bending (8) and cycling (9):

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rows = ["\t".join([f"{0.1 * i:.6f}"] * 23 + [str(a)]) for i, a in enumerate((3, 3, 8, 9))]
    >>> _ = (folder / "mHealth_subject1.log").write_text("\n".join(rows))
    >>> data = mhealth(folder, standardize=False)
    >>> data.target[:, :3]
    array([[0.2, 0.2, 0.2],
           [0.3, 0.3, 0.3]])
    >>> [data.label_names[label] for label in data.labels], data.feature_names[3]
    (['knees bending', 'cycling'], 'ecg_lead_1')
    """
    classes = _check_activities(activities, background)
    logs = _Logs(Path(path) if path is not None else _place(data_home))
    numbers = logs.numbers if subjects is None else [int(number) for number in subjects]
    absent = sorted(set(numbers) - set(logs.numbers))
    if absent or not numbers:
        raise ValueError(
            f"subjects={subjects} must be of those in {logs.path}: {_join_numbers(logs.numbers)}"
        )
    targets, labels, groups, backgrounds = [], [], [], []
    for number in numbers:
        signals, activity = logs.read(number)
        chosen = np.isin(activity, classes)
        targets.append(signals[chosen])
        labels.append(np.argmax(activity[chosen, None] == np.asarray(classes), axis=1))
        groups.append(np.full(int(chosen.sum()), number, dtype=np.intp))
        backgrounds.append(signals[activity == background])
    target, still = np.concatenate(targets), np.concatenate(backgrounds)
    if not (len(target) and len(still)):
        raise ValueError(
            f"subjects {_join_numbers(numbers)} of {logs.path} have {len(target)} rows of "
            f"activities {_join_numbers(classes)} and {len(still)} of activity {background}; both "
            "are needed"
        )
    return ContrastData(
        standardize_columns(target) if standardize else target,
        standardize_columns(still) if standardize else still,
        np.concatenate(labels),
        list(SIGNALS),
        label_names=[ACTIVITIES[activity] for activity in classes],
        groups=np.concatenate(groups),
        source="Banos et al. 2014: MHEALTH",
    )


def _check_activities(activities: Sequence[int], background: int) -> list[int]:
    classes = [int(activity) for activity in activities]
    if not classes or len(set(classes)) < len(classes) or not set(classes) <= set(ACTIVITIES):
        raise ValueError(f"activities={tuple(activities)} must be different numbers from 0 to 12")
    if background not in ACTIVITIES or background in classes:
        raise ValueError(
            f"background={background} must be a number from 0 to 12 that is not among "
            f"activities={tuple(activities)}"
        )
    return classes


def _join_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _place(data_home: PathLike | None) -> Path:
    def look(home: Path) -> Path | None:
        folder = home / "mhealth"
        if any(_LOG.fullmatch(path.name) for path in folder.rglob("*.log")):
            return folder
        as_uci_names_it = folder / "mhealth+dataset.zip"
        return as_uci_names_it if as_uci_names_it.is_file() else None

    return find(look, data_home) or fetch(MHEALTH, data_home)


class _Logs:
    """The logs in a folder or in the archive, which is read without being unpacked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            names = [str(found.relative_to(path)) for found in sorted(path.rglob("*.log"))]
        elif path.is_file():
            try:
                with zipfile.ZipFile(path) as archive:
                    names = archive.namelist()
            except zipfile.BadZipFile as error:
                raise ValueError(
                    f"{path} is neither a folder nor a zip archive ({error})"
                ) from error
        else:
            raise DataNotFoundError(f"{path} does not exist; get mHealth from {MHEALTH.url}")
        found = (
            (_LOG.fullmatch(name.rpartition(os.sep)[2].rpartition("/")[2]), name) for name in names
        )
        self._names = {int(match[1]): name for match, name in found if match}
        if not self._names:
            raise ValueError(f"{path} has no mHealth_subject*.log")

    @property
    def numbers(self) -> list[int]:
        return sorted(self._names)

    def read(self, number: int) -> tuple[FloatArray, NDArray[np.intp]]:
        """Return the signals of a subject and the activity of each row."""
        name = self._names[number]
        try:
            with self._open(name) as file:
                table = np.loadtxt(file, dtype=np.float64, ndmin=2)
        except (ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{name} of {self.path} is not a log of mHealth: {error}") from error
        if table.shape[1] != len(SIGNALS) + 1:
            raise ValueError(
                f"{name} of {self.path} has {table.shape[1]} columns; logs of mHealth have "
                f"{len(SIGNALS) + 1}"
            )
        activity = table[:, -1].astype(np.intp)
        if not np.array_equal(activity, table[:, -1]) or not set(activity) <= set(ACTIVITIES):
            raise ValueError(f"the last column of {name} must have activities from 0 to 12")
        return np.ascontiguousarray(table[:, :-1]), activity

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        if self.path.is_dir():
            with (self.path / name).open("rb") as file:
                yield file
        else:
            with zipfile.ZipFile(self.path) as archive, archive.open(name) as file:
                yield file
