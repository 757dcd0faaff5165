"""Squats and cycling, seen by sensors on the body (Section III-B4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.datasets import ContrastData
from cpcapp.datasets import mhealth as load
from cpcapp.datasets._contrast_data import standardize_columns
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.experiments.comparison import (
    LOOK_AT,
    ari_sentence,
    compare,
    describe_data,
    load_data,
    pictures,
    subsample,
    tables,
)
from cpcapp.experiments.measures import cluster_agreement
from cpcapp.experiments.results import Cell, PaperSays, Picture, Progress, Result, Settings, Table
from cpcapp.moments.rows import FloatArray

TITLE = "MHealth: squats and cycling"
_SEGMENTS = 10
_METHODS = ("PCA", "cPCA", "cPCA++")
_SCALED = "PCA, standardized"
_TOGETHER = "all together"


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on two activities, against lying still, in the sensors' own units."""

    def recorded(subjects: tuple[int, ...] | None) -> ContrastData:
        data = load_data(lambda: load(subjects=subjects, standardize=False))
        return subsample(data, settings)

    everybody = recorded(None)
    assert everybody.groups is not None  # mHealth has subjects
    numbers = np.unique(everybody.groups).tolist()
    people = {f"subject {number}": recorded((number,)) for number in numbers}
    progress(0.1)
    scores = {name: _scores(data) for name, data in people.items()}
    found = {name: _agreements(scores[name], people[name], settings) for name in people}
    found[_TOGETHER] = _agreements(_scores(everybody), everybody, settings)
    progress(0.3)
    name, first = next(iter(people.items()))
    first = replace(first, groups=time_segments(first.labels, _SEGMENTS))
    comparison = compare(first, settings, lambda share: progress(0.3 + 0.7 * share))
    return Result(
        name="mhealth",
        title=TITLE,
        shows="People wore sensors for movement and heartbeat while they did squats, cycled or lay "
        "still. The target are squats and cycling, the background is lying still. The question is "
        "which method tells the two activities apart.",
        look_at=f"{LOOK_AT} These are of {name}; the first picture has everybody.",
        data=f"{describe_data(everybody)} The signals keep their units (m/s², mV, deg/s).",
        findings=(
            _people_sentence(found),
            _units_sentence(found),
            f"Of {name}. {ari_sentence(comparison)}",
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
            PaperSays("N_f = 6451, N_b = 3072, M = 23, of one subject", "Table I"),
        ),
        pictures=(
            _people_picture(people, scores, found),
            *pictures("mhealth", f"MHealth, {name}", comparison),
        ),
        tables=(_people_table(found), *tables(comparison, f", {name}")),
        numbers={**comparison.numbers(), "ARI by subject": found},
    )


def time_segments(labels: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """Number n stretches of rows within each class, in the order of the rows."""
    groups = np.empty(len(labels), dtype=np.intp)
    for i, label in enumerate(np.unique(labels)):
        rows = np.flatnonzero(labels == label)
        groups[rows] = i * n + np.arange(len(rows)) * n // len(rows)
    return groups


def _scores(data: ContrastData) -> dict[str, FloatArray]:
    X, B = data.target, data.background
    Z = standardize_columns(X)
    return {
        "PCA": CPCAPlusPlus().fit(X).transform(X),
        _SCALED: CPCAPlusPlus().fit(Z).transform(Z),
        "cPCA": CPCA().fit(X, background=B).transform(X),
        "cPCA++": CPCAPlusPlus().fit(X, background=B).transform(X),
    }


def _agreements(
    scores: dict[str, FloatArray], data: ContrastData, settings: Settings
) -> dict[str, float]:
    return {
        name: cluster_agreement(found, data.labels, seed=settings.seed)
        for name, found in scores.items()
    }


def _people_sentence(found: dict[str, dict[str, float]]) -> str:
    alone = [ari for name, ari in found.items() if name != _TOGETHER]
    said = []
    for method in _METHODS:
        each = [ari[method] for ari in alone]
        together = found[_TOGETHER][method]
        said.append(f"{method} {min(each):z.2f} to {max(each):z.2f}, and {together:z.2f}")
    return (
        f"ARI of methods with nothing chosen, for one of {len(alone)} subjects at a time, and for "
        f"all together: {'; '.join(said[::-1])}. People differ too: where all of them are one "
        "target, no method tells the activities as well."
    )


def _units_sentence(found: dict[str, dict[str, float]]) -> str:
    each = [ari[_SCALED] for name, ari in found.items() if name != _TOGETHER]
    return (
        "PCA, and cPCA at every α of the sweep, see what has the largest numbers: the units of the "
        "sensors decide. With each signal divided by its standard deviation PCA itself has "
        f"{min(each):z.2f} to {max(each):z.2f}. cPCA++ does not depend on units."
    )


def _people_table(found: dict[str, dict[str, float]]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (name, *(f"{ari[method]:z.3f}" for method in (*_METHODS, _SCALED)))
        for name, ari in found.items()
    ]
    columns = ("data", *_METHODS, _SCALED)
    return Table("ARI of one subject at a time, with nothing chosen", columns, rows)


def _people_picture(
    people: dict[str, ContrastData],
    scores: dict[str, dict[str, FloatArray]],
    found: dict[str, dict[str, float]],
) -> Picture:
    from cpcapp.experiments.figures import people_figure, png_of

    drawn: list[tuple[str, Any, list[tuple[str, Any]]]] = []
    for name, data in people.items():
        rows = np.arange(0, len(data.target), max(1, len(data.target) // 300))
        views = [
            (f"{method} {found[name][method]:z.2f}", scores[name][method][rows])
            for method in ("PCA", "cPCA++")
        ]
        drawn.append((name, data.labels[rows], views))
    names = next(iter(people.values())).label_names
    return Picture(
        "mhealth-subjects",
        png_of(people_figure(drawn, names)),
        alt=f"Scatter plots of {len(people)} subjects, {' and '.join(names)} by colour. By PCA, "
        "above, the colours are mixed; by cPCA++, below, they lie apart.",
        caption="Each subject alone, with the ARI: PCA above, cPCA++ below.",
    )
