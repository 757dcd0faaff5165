"""PCA, cPCA and cPCA++ of the same rows, side by side: scores and features of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cpcapp import __version__
from cpcapp._io.files import make_folder
from cpcapp.tables.columns import Columns, Selection, as_names, choose_columns, match_columns
from cpcapp.tables.messages import TableError
from cpcapp.tables.read.table import ProgressReport, Table, report_nothing
from cpcapp.tables.reduce import (
    AnyTable,
    Reduction,
    ask_rows,
    find_significance,
    open_rereadable,
)
from cpcapp.tables.results import Summary, describe_held_out
from cpcapp.tables.sample_sets import SampleSet, read_set, standardize_sets
from cpcapp.tables.scores import name_score_columns, open_scores, write_rows
from cpcapp.web.drawn_points import SEED, DrawnPoints
from cpcapp.web.method_planes import N_COMPONENTS, MethodPlanes, describe_planes, fit_planes
from cpcapp.web.table_description import find_unusable

# Forty eigenproblems of this size take minutes on one core.
_MAX_FEATURES = 3000
# Contrast parameters of cPCA: 0, and the others from 0.1 to 1000, evenly spaced in logarithm.
_N_ALPHAS = 41
# Rows of each set whose points are written; of more rows, a random sample.
_MAX_POINTS = 50_000
# Of standard deviations, chosen by eye: units that differ as metres and millimetres do.
_MAX_SCALE_RATIO = 1000.0
_MAX_IDS = 3
_ROLES = ("target", "background")


def compare_methods(
    target: AnyTable,
    background: AnyTable,
    *,
    columns: Iterable[str] | str | None = None,
    label: str | None = None,
    standardize: str = "none",
    missing: str = "drop",
    folder: str | os.PathLike[str],
    report: ProgressReport = report_nothing,
) -> dict[str, Any]:
    """Compute two components of the same rows and columns by PCA, by cPCA at many α, and by cPCA++.

    By default the features are all numeric columns that both tables have. Rows that can't be read
    are left out and counted. The result is of types that JSON knows; its ``points`` names the files
    of scores: float32, little-endian, of shape (rows, 2), for cPCA (α, rows, 2).
    """
    own, other = open_rereadable(target, "auto"), open_rereadable(background, None)
    roles, left_out = _choose_roles(own, other, columns, label)
    rules: Any = {"missing": missing, "skip_bad_rows": True}
    sets = [
        read_set(Selection(table, role), roles.features, report, **rules)
        for table, role in ((own, "target"), (other, "background"))
    ]
    own_set, other_set = standardize_sets(sets, standardize)
    with report("finding components") as share:
        planes = fit_planes(own_set, other_set, _N_ALPHAS, standardize)
        share(1.0)
    significance = find_significance(own_set, other_set, method="cpca++")
    reduction = ask_rows(Reduction(planes.plus, roles, own_set, other_set, significance))
    folder = make_folder(folder)
    points = [DrawnPoints(one, planes, roles, _MAX_POINTS) for one in (own_set, other_set)]
    _write_scores(folder / "scores.csv", points, roles, report)
    _write_features(folder / "features.csv", planes, own_set)
    for part in points:
        part.write(folder)
    counted = [part.describe() for part in points]
    notes = [note for table in (own, other) if (note := table.describe_reading())]
    notes += [note.problem for note in Summary(reduction).notes()]
    notes += _scale_notes(own_set, standardize)
    reasons = {reason for counts in counted for reason in counts["reasons"]}
    return {
        "cpcapp": __version__,
        "n_features": len(roles.features),
        "left_out": left_out,
        "standardize": standardize,
        "missing": missing,
        "n_alphas": _N_ALPHAS,
        "methods": describe_planes(planes, own_set),
        "held_out": describe_held_out(reduction.held_out),
        "n_significant": significance.n_components,
        "significance_test": significance.describe(),
        "label": points[0].label,
        "target": counted[0],
        "background": counted[1],
        "points": {role: part.files for role, part in zip(_ROLES, points, strict=True)},
        "rows": {role: f"{role}-rows.json" for role in _ROLES},
        "values": planes.shown_features,
        "files": {"scores": "scores.csv", "features": "features.csv"},
        "seed": SEED,
        "notes": [note for note in notes if note not in reasons],
    }


def _scale_notes(target: SampleSet, standardize: str) -> list[str]:
    """Return a warning if a few columns are so large that PCA and cPCA see no others."""
    deviation = target.deviation
    # Less than that is a constant with errors of rounding.
    deviation = deviation[deviation > 1e-8 * deviation.max()]
    ratio = float(deviation.max() / deviation.min()) if len(deviation) else 1.0
    if standardize != "none" or ratio < _MAX_SCALE_RATIO:
        return []
    return [
        f"the columns differ in scale up to {float(f'{ratio:.1g}'):,.0f} times: PCA follows "
        "the largest; scale the tables to let all columns count"
    ]


def _choose_roles(
    target: Table, background: Table, columns: Iterable[str] | str | None, label: str | None
) -> tuple[Columns, list[dict[str, str]]]:
    """Return the roles of the columns, and the columns that have none, with the reason."""
    left_out = []
    if columns is None:
        reasons = find_unusable(target, background)
        possible = [
            name for name in target.default_features if name not in (label, target.row_names)
        ]
        features = [name for name in possible if name not in reasons]
        left_out = [{"name": n, "reason": reasons[n]} for n in possible if n in reasons]
        if not features:
            raise TableError(
                f"{target.name} and {background.name} have no numeric column of the same name"
            )
    else:
        features = as_names(columns)
    if len(features) < N_COMPONENTS:
        raise TableError("a comparison needs at least 2 features", "choose more {columns}")
    if len(features) > _MAX_FEATURES:
        raise TableError(
            f"{len(features):,} features are more than {_MAX_FEATURES:,}, and would take long",
            "choose fewer {columns}, or use reduce_tables, which computes one method",
        )
    # What a row is called, to show it.
    others = {label, target.row_names, *features}
    ids = [name for name in target.text_columns(target.columns) if name not in others]
    if target.row_names is not None:
        ids.insert(0, target.row_names)
    labels = [] if label is None else [label]
    roles = choose_columns(target, columns=features, ids=ids[:_MAX_IDS], labels=labels)
    match_columns(background, roles.features, target)
    return roles, left_out


def _write_scores(
    path: Path, points: Sequence[DrawnPoints], roles: Columns, report: ProgressReport
) -> None:
    alpha = points[0].planes.cpca.info["alpha"]
    methods = ("pca", f"cpca_alpha_{alpha:.4g}", "cpca++")
    names = [f"{method}_{i + 1}" for method in methods for i in range(N_COMPONENTS)]
    with open_scores(path, name_score_columns(roles.kept, names, with_set=True)) as write:
        for part in points:
            for chunk, scores in part.read(report):
                write(chunk, scores, part.role)


def _write_features(path: Path, planes: MethodPlanes, target: SampleSet) -> None:
    """Write the weight of every feature, for all methods and α."""
    named = [("pca", "", planes.pca.components)]
    named += [
        ("cpca", f"{alpha:.6g}", filters)
        for alpha, filters in zip(planes.alphas, planes.sweep, strict=True)
    ]
    named.append(("cpca++", "", planes.plus.components))
    rows = (
        (method, alpha, component + 1, feature, weight, filters[component, i])
        for method, alpha, filters in named
        for component, weights in enumerate((filters * target.deviation).tolist())
        for i, (feature, weight) in enumerate(zip(target.features, weights, strict=True))
    )
    write_rows(path, ["method", "alpha", "component", "feature", "weight", "filter"], rows)
