"""Squats and cycling, seen by sensors on the body (Section III-B4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cpcapp.datasets import ContrastData
from cpcapp.datasets import mhealth as load
from cpcapp.datasets._contrast_data import standardize_columns
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.experiments.comparison import compare, describe_data, subsample
from cpcapp.experiments.figures import add_legend, png_of
from cpcapp.experiments.measures import cluster_agreement
from cpcapp.experiments.results import (
    Picture,
    Progress,
    Result,
    Settings,
    Table,
    load_data,
    result_of,
)
from cpcapp.moments.rows import FloatArray
from cpcapp.plotting import scatter

_SEGMENTS = 10  # words.toml says it
_METHODS = ("PCA", "cPCA", "cPCA++")
_SCALED = "PCA, standardized"
_TOGETHER = "all together"


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on two activities, against lying still, in the sensors' own units."""

    def recorded(subjects: tuple[int, ...] | None) -> ContrastData:
        return subsample(load_data(load, subjects=subjects, standardize=False), settings)

    everybody = recorded(None)
    numbers = sorted(set(map(int, everybody.groups if everybody.groups is not None else ())))
    people = {f"subject {number}": recorded((number,)) for number in numbers}
    progress(0.1)
    sets = people | {_TOGETHER: everybody}
    scores = {name: _scores(data) for name, data in sets.items()}
    aris = {
        name: {
            method: cluster_agreement(shown, sets[name].labels, seed=settings.seed)
            for method, shown in views.items()
        }
        for name, views in scores.items()
    }
    progress(0.3)
    name, first = next(iter(people.items()))
    first = replace(first, groups=time_segments(first.labels, _SEGMENTS))
    comparison = compare(first, settings, lambda share: progress(0.3 + 0.7 * share))
    alone = {m: [aris[person][m] for person in people] for m in (*_METHODS, _SCALED)}
    ranges = {m: f"{min(each):z.2f} to {max(each):z.2f}" for m, each in alone.items()}
    said = [f"{m} {ranges[m]}, and {aris[_TOGETHER][m]:z.2f}" for m in reversed(_METHODS)]
    return result_of(
        "mhealth",
        data=f"{describe_data(everybody)} The signals keep their units (m/s², mV, deg/s).",
        findings=(
            f"ARI of methods with nothing chosen, for one of {len(people)} subjects at a time, and "
            f"for all together: {'; '.join(said)}. People differ too: where all of them are one "
            "target, no method tells the activities as well.",
            "PCA, and cPCA at every α of the sweep, see what has the largest numbers: the units of "
            "the sensors decide. With each signal divided by its standard deviation PCA itself has "
            f"{ranges[_SCALED]}. cPCA++ does not depend on units.",
            f"Of {name}. {comparison.sentence()}",
        ),
        pictures=(
            _people_picture(people, scores, aris),
            *comparison.pictures("mhealth", f"MHealth, {name}"),
        ),
        tables=(
            Table(
                "ARI of one subject at a time, with nothing chosen",
                ("data", *_METHODS, _SCALED),
                [(each, *(f"{aris[each][m]:z.3f}" for m in (*_METHODS, _SCALED))) for each in sets],
            ),
            *comparison.tables(f", {name}"),
        ),
        numbers={**comparison.numbers(), "ARI by subject": aris},
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


def _people_picture(
    people: dict[str, ContrastData],
    scores: dict[str, dict[str, FloatArray]],
    aris: dict[str, dict[str, float]],
) -> Picture:
    """Draw a column for each person, with PCA above and cPCA++ below."""
    figure = Figure(figsize=(1.55 * len(people), 4.3), layout="constrained")
    grid = figure.subplots(2, len(people), squeeze=False)
    for axes, (name, data) in zip(grid.T, people.items(), strict=True):
        rows = np.arange(0, len(data.target), max(1, len(data.target) // 300))
        for ax, method in zip(axes, ("PCA", "cPCA++"), strict=True):
            scatter(ax, scores[name][method][rows], data.labels[rows])
            ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
            ax.set_title(f"{method} {aris[name][method]:z.2f}", fontsize=8)
        axes[1].set_xlabel(name, fontsize=8)
    names = next(iter(people.values())).label_names
    add_legend(figure, names)
    return Picture(
        "mhealth-subjects",
        png_of(figure),
        alt=f"Scatter plots of {len(people)} subjects, {' and '.join(names)} by colour. By PCA, "
        "above, the colours are mixed; by cPCA++, below, they lie apart.",
        caption="Each subject alone, with the ARI: PCA above, cPCA++ below.",
    )
