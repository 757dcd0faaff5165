"""Squats and cycling, seen by sensors on the body (Section III-B4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cpcapp.datasets import ContrastData
from cpcapp.datasets import mhealth as load
from cpcapp.experiments._comparison import compare
from cpcapp.experiments._contrast_report import (
    LOOK_AT,
    ari_figure,
    ari_sentence,
    pictures,
    tables,
)
from cpcapp.experiments._data_sets import describe_data, load_data, subsample
from cpcapp.experiments._results import PaperSays, Progress, Result, Settings

TITLE = "MHealth: squats and cycling"
_SEGMENTS = 10


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on two activities, against lying still."""
    data = subsample(load_data(_load), settings)
    comparison = compare(data, settings, progress)
    return Result(
        name="mhealth",
        title=TITLE,
        shows="People wore sensors for movement and heartbeat while they did squats, cycled or lay "
        "still. The target are squats and cycling, the background is lying still. The question is "
        "which method tells the two activities apart.",
        look_at=LOOK_AT,
        data=describe_data(data),
        findings=(
            ari_sentence(comparison),
            "Measurements that follow each other are alike, so for the accuracy each activity is "
            f"cut into {_SEGMENTS} stretches of time, and no stretch is both learnt from and "
            "tested on.",
        ),
        paper=(
            PaperSays(
                "PCA and t-SNE “are incapable of separating the two activities”; cPCA (at its best "
                "α) and cPCA++ “are capable of clustering the activities”. No numbers are given.",
                "Section III-B4",
            ),
            PaperSays("N_f = 6451, N_b = 3072, M = 23", "Table I"),
        ),
        pictures=pictures("mhealth", "MHealth", comparison),
        tables=tables(comparison),
        numbers=comparison.numbers(),
        found_figure=ari_figure(comparison),
    )


def _load() -> ContrastData:
    data = load()
    return replace(data, groups=time_segments(data.labels, _SEGMENTS))


def time_segments(labels: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """Number n stretches of rows within each class, in the order of the rows.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,)
    n : int

    Returns
    -------
    ndarray of shape (n_samples,)

    Examples
    --------
    >>> import numpy as np
    >>> time_segments(np.array([0, 0, 0, 0, 1, 1]), 2).tolist()
    [0, 0, 1, 1, 2, 3]
    """
    groups = np.empty(len(labels), dtype=np.intp)
    for i, label in enumerate(np.unique(labels)):
        rows = np.flatnonzero(labels == label)
        groups[rows] = i * n + np.arange(len(rows)) * n // len(rows)
    return groups
