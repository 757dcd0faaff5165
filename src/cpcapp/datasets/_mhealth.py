"""Wearable sensors on people who exercise."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cpcapp.datasets._contrast_data import ContrastData, check_classes, standardize_columns
from cpcapp.datasets._fetch import MHEALTH, DataNotFoundError, PathLike, fetch, find
from cpcapp.moments.rows import FloatArray

ACTIVITIES = (
    *("nothing", "standing still", "sitting and relaxing", "lying down", "walking"),
    *("climbing stairs", "waist bends forward", "frontal elevation of arms", "knees bending"),
    *("cycling", "jogging", "running", "jump front and back"),
)

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

# Signals, and the activity and the subject of each row.
Rows = tuple[FloatArray, NDArray[np.intp], NDArray[np.intp]]


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
        The official archive, a folder with ``mHealth_subject*.log``, or a file of windows (below).
        Otherwise ``mhealth`` in ``data_home`` is looked into, and then
        ``mhealth_windows/mhealth_windows.npz``; the archive is fetched if need be.
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
        not independent. ``source`` says if rows are windows: means of 32 rows of a log (0.64 s),
        from an ``.npz`` file with the arrays ``X``, ``y`` (activity) and ``subject``.

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
    classes = check_classes("activities", activities, len(ACTIVITIES) - 1)
    if background not in range(len(ACTIVITIES)) or background in classes:
        raise ValueError(
            f"background={background} must be a number from 0 to 12 that is not among "
            f"activities={tuple(activities)}"
        )
    place = Path(path) if path is not None else _place(data_home)
    in_windows = place.suffix == ".npz"
    signals, activity, subject = (_read_windows if in_windows else _read_logs)(place, subjects)
    chosen, still = np.isin(activity, classes), activity == background
    if not (chosen.any() and still.any()):
        raise ValueError(
            f"subjects {_join(set(subject))} of {place} have {chosen.sum()} rows of activities "
            f"{_join(classes)} and {still.sum()} of activity {background}; both are needed"
        )
    sets = [signals[chosen], signals[still]]
    target, lying = map(standardize_columns, sets) if standardize else sets
    return ContrastData(
        target,
        lying,
        labels=np.argmax(activity[chosen, None] == np.asarray(classes), axis=1),
        feature_names=list(SIGNALS),
        label_names=[ACTIVITIES[number] for number in classes],
        groups=subject[chosen],
        source="Banos et al. 2014: MHEALTH"
        + (", in windows: rows are means of 0.64 seconds" if in_windows else ""),
    )


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))


def _place(data_home: PathLike | None) -> Path:
    if logs := find(data_home, "mhealth/**/mHealth_subject*.log"):
        return logs[0].parent
    files = find(data_home, "mhealth/mhealth+dataset.zip", MHEALTH.name)
    files = files or find(data_home, "mhealth_windows/mhealth_windows.npz")
    return files[0] if files else fetch(MHEALTH, data_home)


def _choose_subjects(
    subjects: Sequence[int] | None, available: Collection[int], path: Path
) -> list[int]:
    numbers = sorted(available) if subjects is None else [int(number) for number in subjects]
    if not numbers or not set(numbers) <= set(available):
        raise ValueError(f"subjects={subjects} must be of those in {path}: {_join(available)}")
    return numbers


def _read_windows(path: Path, subjects: Sequence[int] | None) -> Rows:
    try:
        with np.load(path, allow_pickle=False) as file:
            signals, activity, subject = (file[name] for name in ("X", "y", "subject"))
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} has no windows of mHealth: {error}") from error
    if signals.shape != (len(activity), len(SIGNALS)) or subject.shape != activity.shape:
        raise ValueError(f"{path} has no windows of mHealth: X has shape {signals.shape}")
    numbers = _choose_subjects(subjects, np.unique(subject).tolist(), path)
    rows = np.concatenate([np.flatnonzero(subject == number) for number in numbers])
    whole = (activity[rows].astype(np.intp), subject[rows].astype(np.intp))
    return signals[rows].astype(np.float64), *whole


def _read_logs(path: Path, subjects: Sequence[int] | None) -> Rows:
    """Return what logs hold, from a folder, or from the archive, which is not unpacked."""
    if not path.exists():
        raise DataNotFoundError(f"{path} does not exist; get mHealth from {MHEALTH.url}")
    if path.is_dir():
        return _parse_logs(path, path.rglob("*.log"), subjects)
    try:
        with zipfile.ZipFile(path) as archive:
            files = (zipfile.Path(archive, name) for name in archive.namelist())
            return _parse_logs(path, files, subjects)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is neither a folder nor a zip archive ({error})") from error


def _parse_logs(
    path: Path, files: Iterable[Path | zipfile.Path], subjects: Sequence[int] | None
) -> Rows:
    logs = {int(match[1]): file for file in files if (match := _LOG.fullmatch(file.name))}
    if not logs:
        raise ValueError(f"{path} has no mHealth_subject*.log")
    numbers = _choose_subjects(subjects, logs, path)
    tables = [_parse_log(logs[number]) for number in numbers]
    table = np.concatenate(tables)
    subject = np.repeat(numbers, [len(rows) for rows in tables])
    return table[:, :-1].copy(), table[:, -1].astype(np.intp), subject


def _parse_log(log: Path | zipfile.Path) -> FloatArray:
    """Return signals, and the activity of each row in the last column."""
    try:
        with log.open("rb") as file:
            table = np.loadtxt(file, dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{log} is not a log of mHealth: {error}") from error
    if table.shape[1] != len(SIGNALS) + 1:
        raise ValueError(
            f"{log} has {table.shape[1]} columns; logs of mHealth have {len(SIGNALS) + 1}"
        )
    if not np.isin(table[:, -1], range(len(ACTIVITIES))).all():
        raise ValueError(f"the last column of {log} must have activities from 0 to 12")
    return table
