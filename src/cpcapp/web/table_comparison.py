"""PCA, cPCA at many α and cPCA++ of the same rows, side by side: scores and features of each.

Roles of columns → both sets read into moments → filters of all methods → rows read once more, as
points in the planes of these filters.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp import __version__
from cpcapp._io.files import atomic_write, make_folder
from cpcapp._io.text import number
from cpcapp.contrast.difference import solve_difference
from cpcapp.contrast.solution import InsufficientRankError, rank_features
from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.cleaning import describe_incomplete, describe_skipped
from cpcapp.tables.columns import Columns, Selection, as_names, choose_columns, match_columns
from cpcapp.tables.messages import TableError
from cpcapp.tables.model import TableModel
from cpcapp.tables.read.numbers import MISSING, guess_number
from cpcapp.tables.read.table import ProgressReport, Table, report_nothing
from cpcapp.tables.reduce import (
    AnyTable,
    Reduction,
    ask_rows,
    contrast_about,
    find_significance,
    fit_model,
    open_rereadable,
)
from cpcapp.tables.results import Summary, describe_held_out
from cpcapp.tables.sample_sets import SampleSet, read_set, standardize_sets
from cpcapp.tables.scores import name_score_columns, open_scores, write_rows
from cpcapp.web.table_description import find_unusable

METHODS = ("pca", "cpca", "cpca++")
ROLES = ("target", "background")
_N_COMPONENTS = 2
# Forty eigenproblems of this size take minutes on one core.
_MAX_FEATURES = 3000
# Contrast parameters of cPCA: 0, so many from 0.1 to 1000, evenly spaced in logarithm, and those
# that `cpcapp.CPCA` chooses from.
_N_SPACED = 40
_BOUNDS = (3.0, 12.0, 48.0)
# Rows of each set whose points are written; of more rows, a random sample.
_MAX_POINTS = 50_000
_SEED = 0
# Set by hand: features in a list, and those of which values are shown; names of rows.
_TOP, _SHOWN, _MAX_IDS = 10, 3, 3
# Of standard deviations, chosen by eye: units that differ as metres and millimetres do.
_MAX_SCALE_RATIO = 1000.0
# Classes that are told apart by name; those beyond are "other". Names of rows are copied as long.
_MAX_CLASSES, _MAX_TEXT = 200, 80
# More different numbers than this are a range of colours, fewer are classes.
_MAX_NUMBER_CLASSES = 8


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
    tables = open_rereadable(target, "auto"), open_rereadable(background, None)
    roles, left_out = _choose_roles(*tables, columns, label)
    sets = [
        read_set(
            Selection(table, role), roles.features, report, missing=missing, skip_bad_rows=True
        )
        for table, role in zip(tables, ROLES, strict=True)
    ]
    target_set, background_set = sets = standardize_sets(sets, standardize)
    with report("finding components") as share:
        planes = _fit_planes(target_set, background_set, standardize)
        share(1.0)
    significance = find_significance(target_set, background_set, method="cpca++")
    reduction = ask_rows(Reduction(planes.plus, roles, target_set, background_set, significance))
    folder = make_folder(folder)
    shown = planes.shown_features(target_set)
    methods = ("pca", f"cpca_alpha_{planes.alphas[planes.automatic]:.4g}", "cpca++")
    names = [f"{method}_{i + 1}" for method in methods for i in range(_N_COMPONENTS)]
    drawn = []
    with open_scores(
        folder / "scores.csv", name_score_columns(roles.kept, names, with_set=True)
    ) as write:
        for one in sets:
            with report(f"drawing {one.selection.role}") as share:
                drawn.append(_draw(one, planes, shown, roles, write, share))
    _write_features(folder / "features.csv", planes, target_set)
    label_facts = None
    if label is not None:
        label_facts, drawn[0].arrays["label"] = encode_label(label, drawn[0].texts.pop(label))
    files = [_write_points(folder, part) for part in drawn]
    counted = [_describe_rows(part) for part in drawn]
    notes = [note for table in tables if (note := table.describe_reading())]
    notes += [note.problem for note in Summary(reduction).notes()]
    notes += _scale_notes(target_set, standardize)
    reasons = {reason for counts in counted for reason in counts["reasons"]}
    return {
        "cpcapp": __version__,
        "n_features": len(roles.features),
        "left_out": left_out,
        "standardize": standardize,
        "missing": missing,
        "n_alphas": len(planes.alphas),
        "methods": _describe_planes(planes, target_set),
        "held_out": describe_held_out(reduction.held_out),
        "n_significant": significance.n_components,
        "significance_test": significance.describe(),
        "label": label_facts,
        **dict(zip(ROLES, counted, strict=True)),
        "points": dict(zip(ROLES, files, strict=True)),
        "rows": {role: f"{role}-rows.json" for role in ROLES},
        "values": shown,
        "files": {"scores": "scores.csv", "features": "features.csv"},
        "seed": _SEED,
        "notes": [note for note in notes if note not in reasons],
    }


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
    if len(features) < _N_COMPONENTS:
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


@dataclass(frozen=True)
class _Planes:
    """``filters`` of PCA, cPCA at each α and cPCA++, in this order: (n_alphas + 2, 2, n_features).

    ``eigenvalues`` (n_alphas, 2) are of cPCA, ``automatic`` is the index of one α.
    """

    pca: TableModel
    plus: TableModel
    alphas: FloatArray
    eigenvalues: FloatArray
    automatic: int
    filters: FloatArray

    @property
    def fixed(self) -> FloatArray:
        """Filters of the three methods, of cPCA at the automatic α."""
        return self.filters[[0, 1 + self.automatic, -1]]

    def shown_features(self, target: SampleSet) -> list[str]:
        """Return the features whose values are drawn: the first few of each method."""
        weights = self.fixed[[2, 0, 1]].reshape(-1, len(target.features)) * target.deviation
        tops = rank_features(weights, target.features, _SHOWN)
        return list(dict.fromkeys(name for top in tops for name, _ in top))


def _fit_planes(target: SampleSet, background: SampleSet, standardize: str) -> _Planes:
    """Fit the three methods to the same rows and columns."""
    try:
        pca, cpca, plus = (
            fit_model(
                target,
                None if method == "pca" else background,
                _N_COMPONENTS,
                method=method,
                standardize=standardize,
            )
            for method in METHODS
        )
    except InsufficientRankError as error:
        raise TableError(
            f"{target.selection.table.name}: the chosen columns have only {error.rank} direction "
            "that varies; 2 are needed",
            "choose other {columns}",
        ) from error
    # cPCA as `cpcapp.CPCA` chooses α for it: in units of the mean variance of both sets.
    moments = target.scaled_moments(), background.scaled_moments()
    units = np.sqrt((moments[0].variance() + moments[1].variance()) / 2.0)
    units[units == 0.0] = 1.0
    moments = moments[0].rescaled(units), moments[1].rescaled(units)
    alphas = np.unique([0.0, *np.logspace(-1, 3, _N_SPACED), *_BOUNDS])
    values, filters = solve_difference(*moments, _N_COMPONENTS, alphas)
    automatic = int(np.abs(alphas - cpca.info["alpha"]).argmin())
    subspaces = filters.transpose(0, 2, 1)
    subspaces[automatic] = cpca.components * units
    sweep = align_subspaces(subspaces, automatic, moments[0]) / units
    sweep[automatic] = cpca.components  # without errors of rounding
    stack = np.concatenate([pca.components[None], sweep, plus.components[None]])
    return _Planes(pca, plus, alphas, values, automatic, stack)


def align_subspaces(subspaces: NDArray[np.float64], start: int, target: Moments) -> FloatArray:
    """Turn each basis within its subspace so that points move little from one to the next.

    The basis at ``start`` stays as it is, and the others follow from it in both directions.
    """
    aligned = np.array(subspaces, dtype=np.float64)
    if target.is_thin:
        rows = target.centred_rows()
        products = (aligned @ rows.T) @ rows / len(rows)
    else:
        products = aligned @ target.covariance()
    forward, backward = range(start + 1, len(aligned)), range(start - 1, -1, -1)
    for order, step in ((forward, -1), (backward, 1)):
        for i in order:
            # min Σ‖R U_i x - A x‖² over points x, and rotations and reflections R (Procrustes):
            # R = PQᵀ with A R_f U_iᵀ = P S Qᵀ
            p, _, q = np.linalg.svd(aligned[i + step] @ products[i].T)
            aligned[i] = (p @ q) @ aligned[i] + 0.0  # without negative zeros
    return aligned


def _describe_planes(planes: _Planes, target: SampleSet) -> dict[str, Any]:
    """Return eigenvalues and top features of each method, in types that JSON knows."""
    total = float((target.deviation**2).sum())
    pca_tops, *cpca_tops, plus_tops = (
        [
            [{"feature": name, "weight": _digits(weight)} for name, weight in top]
            for top in rank_features(filters * target.deviation, target.features, _TOP)
        ]
        for filters in planes.filters
    )
    return {
        "pca": {
            "title": "PCA",
            "eigenvalues": _digits(planes.pca.eigenvalues),
            "variance_shares": _digits(planes.pca.eigenvalues / total if total else [0.0, 0.0]),
            "top_features": pca_tops,
        },
        "cpca": {
            "title": "cPCA",
            "alphas": _digits(planes.alphas),
            "automatic": planes.automatic,
            "offered": np.flatnonzero(np.isin(planes.alphas, _BOUNDS)).tolist(),
            "eigenvalues": _digits(planes.eigenvalues),
            "top_features": cpca_tops,
        },
        "cpca++": {
            "title": "cPCA++",
            "contrasts": [number(value) for value in planes.plus.contrast.contrast],
            "top_features": plus_tops,
        },
    }


def _digits(values: Any) -> Any:
    """Return numbers with six digits, in types that JSON knows."""
    if np.ndim(values):
        return [_digits(value) for value in values]
    return float(f"{float(values):.6g}")


def _write_features(path: Path, planes: _Planes, target: SampleSet) -> None:
    """Write the weight of every feature, for all methods and α."""
    cpca = [("cpca", f"{alpha:.6g}") for alpha in planes.alphas]
    named = [("pca", ""), *cpca, ("cpca++", "")]
    rows = (
        (method, alpha, component + 1, feature, weight, filters[component, i])
        for (method, alpha), filters in zip(named, planes.filters, strict=True)
        for component, weights in enumerate((filters * target.deviation).tolist())
        for i, (feature, weight) in enumerate(zip(target.features, weights, strict=True))
    )
    write_rows(path, ["method", "alpha", "component", "feature", "weight", "filter"], rows)


@dataclass(frozen=True)
class _DrawnRows:
    """The rows of a set that are drawn: a sample if there are many, the same in every run.

    ``arrays`` are the points by each method and the values of features; ``texts`` are names.
    """

    sample_set: SampleSet
    positions: list[int]
    arrays: dict[str, NDArray[Any]]
    texts: dict[str, list[Any]]


def _draw(
    sample_set: SampleSet,
    planes: _Planes,
    shown: list[str],
    roles: Columns,
    write: Callable[..., None],
    progress: Callable[[float], None],
) -> _DrawnRows:
    """Read the rows of a set once more: write the scores of all, and keep those to draw."""
    n_rows, n_alphas = sample_set.moments.n_samples, len(planes.alphas)
    is_drawn = np.ones(n_rows, dtype=bool)
    if n_rows > _MAX_POINTS:
        is_drawn[:] = False
        rng = np.random.default_rng(_SEED)
        is_drawn[rng.choice(n_rows, _MAX_POINTS, replace=False)] = True
    about = contrast_about(planes.plus, sample_set)
    fixed, sweep = (
        replace(about, filters=filters.reshape(-1, filters.shape[-1]).T)
        for filters in (planes.fixed, planes.filters[1:-1])
    )
    columns = [sample_set.features.index(name) for name in shown]
    parts: list[tuple[NDArray[Any], ...]] = []
    texts: dict[str, list[Any]] = {name: [] for name in roles.kept}
    done = 0
    for chunk in sample_set.clean_rows(roles.kept, progress):
        values = chunk.values if isinstance(chunk.values, np.ndarray) else chunk.values.toarray()
        scores = fixed.transform(values / sample_set.scale)
        write(chunk, scores, sample_set.selection.role)
        drawn = np.flatnonzero(is_drawn[done : done + len(values)])
        done += len(values)
        moving = sweep.transform(values[drawn] / sample_set.scale).astype("<f4")
        parts.append((chunk.positions[drawn], scores[drawn], moving, values[drawn][:, columns]))
        for name, column in chunk.kept.items():
            texts[name] += column.take(drawn).to_pylist()
    positions, points, moving, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    arrays = {
        "pca": points[:, :2],
        "cpca": moving.reshape(-1, n_alphas, _N_COMPONENTS).transpose(1, 0, 2),
        "cpca++": points[:, 4:],
        "values": values,
    }
    return _DrawnRows(sample_set, positions.tolist(), arrays, texts)


def _write_points(folder: Path, drawn: _DrawnRows) -> dict[str, str]:
    """Write the rows that are drawn; return the names of the files."""
    selection = drawn.sample_set.selection
    rows = {
        "unit": selection.table.unit,
        "positions": drawn.positions,
        "ids": {
            name: ["" if value is None else str(value)[:_MAX_TEXT] for value in texts]
            for name, texts in drawn.texts.items()
            if any(value is not None for value in texts)
        },
    }
    with atomic_write(folder / f"{selection.role}-rows.json") as file:
        file.write(json.dumps(rows).encode())
    files = {name: f"{selection.role}-{name.replace('+', 'p')}.f32" for name in drawn.arrays}
    for name, array in drawn.arrays.items():
        with atomic_write(folder / files[name]) as file:
            file.write(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return files


def _describe_rows(drawn: _DrawnRows) -> dict[str, Any]:
    """Return the counts of the rows, and why some were left out."""
    counts, table = drawn.sample_set.counts, drawn.sample_set.selection.table
    reasons = [describe_skipped(counts, table), describe_incomplete(counts, table)]
    return {
        "table": table.name,
        **counts.to_dict(),
        "rows_left_out": counts.n_rows - counts.n_used,
        "reasons": [reason for reason in reasons if reason],
        "drawn": len(drawn.positions),
        "sampled": len(drawn.positions) < counts.n_used,
    }


def encode_label(name: str, values: Sequence[Any]) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Return what a label is, and a number for each row: itself, or the index of its class.

    NaN is missing.
    """
    texts = ["" if value is None else str(value).strip() for value in values]
    texts = ["" if text in MISSING else text for text in texts]
    counts = Counter(text for text in texts if text)
    numbers = {text: guess_number(text, ".") for text in counts}
    is_number = bool(counts) and all(
        number is not None and np.isfinite(number) for number in numbers.values()
    )
    facts = {"name": name, "missing": texts.count("")}
    if is_number and len({*numbers.values()}) > _MAX_NUMBER_CLASSES:
        codes = np.array([numbers[text] if text else np.nan for text in texts], dtype=np.float64)
        low, high = float(np.nanmin(codes)), float(np.nanmax(codes))
        return {**facts, "kind": "number", "low": low, "high": high}, codes
    common = [text for text, _ in counts.most_common(_MAX_CLASSES)]
    common.sort(key=lambda text: (numbers[text], text) if is_number else (0.0, text))
    classes = [{"name": text[:_MAX_TEXT], "count": counts[text]} for text in common]
    if n_others := counts.total() - sum(counts[text] for text in common):
        classes.append({"name": "other", "count": n_others})
    index = {text: i for i, text in enumerate(common)}
    codes = np.array([index.get(text, len(common)) if text else np.nan for text in texts], float)
    return {**facts, "kind": "class", "classes": classes}, codes
