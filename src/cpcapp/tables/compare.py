"""PCA, cPCA and cPCA++ of the same rows, side by side: scores and features of each."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp import __version__
from cpcapp._files import atomic_write, make_folder
from cpcapp._top_features import rank_features
from cpcapp.contrast import InsufficientRankError
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.moments import Moments
from cpcapp.tables.cleaning import MISSING_RULES, describe_incomplete, describe_skipped
from cpcapp.tables.columns import Columns, Selection, as_names, choose_columns, match_columns
from cpcapp.tables.describe import describe_tables as describe_tables
from cpcapp.tables.messages import TableError, check_choice, require_package
from cpcapp.tables.model import FloatArray, TableModel, compute_scores
from cpcapp.tables.reading.numbers import MISSING, guess_number
from cpcapp.tables.reading.table import Chunk, ProgressReport, Table, report_nothing
from cpcapp.tables.reduce import (
    AnyTable,
    Reduction,
    choose_mean,
    fit_model,
    open_rereadable,
)
from cpcapp.tables.results.scores import name_score_columns, open_scores, write_rows
from cpcapp.tables.results.summary import Summary
from cpcapp.tables.sample_sets import STANDARDIZATIONS, SampleSet, read_set, standardize_sets
from cpcapp.tables.significance import find_significance

TOP = 10
_SEED = 0
_N_COMPONENTS = 2
# Forty eigenproblems of this size take minutes on one core.
_MAX_FEATURES = 3000
# Of standard deviations, chosen by eye: units that differ as metres and millimetres do.
_MAX_SCALE_RATIO = 1000.0
# Classes that are told apart by name; those beyond are "other". Names of rows are copied as long.
_MAX_CLASSES = 200
_MAX_IDS, _MAX_TEXT = 3, 80
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
    n_alphas: int = 41,
    max_points: int = 50_000,
    folder: str | os.PathLike[str],
    progress: ProgressReport | None = None,
) -> dict[str, Any]:
    """Compute two components of a table by PCA, by cPCA at many α, and by cPCA++.

    All three see the same rows and columns. Rows that can't be read are left out and counted.

    The planes of cPCA at neighbouring α are drawn with axes that turn as little as possible, so
    that points do not jump when α changes: the components at the automatic α are as `CPCA` gives
    them, and those at other α are turned within their plane.

    Parameters
    ----------
    target, background : str, path-like or Table
        Files, as for :func:`open_table`.
    columns : str or sequence of str, optional
        The features. By default all numeric columns that both tables have.
    label : str, optional
        Column of the target that gives the colours; it is no feature then.
    standardize : {"none", "each", "background"}, default="none"
        As for :func:`reduce_tables`.
    missing : {"drop", "mean", "zero", "error"}, default="drop"
        As for :func:`reduce_tables`.
    n_alphas : int, default=41
        Contrast parameters of cPCA: 0, and the rest from 0.1 to 1000, evenly spaced in logarithm.
    max_points : int, default=50,000
        Rows of each set whose points are written; of more rows, a random sample. Components are
        always those of all rows.
    folder : path-like
        For the files that are written.
    progress : callable of a title, optional
        As for :func:`reduce_tables`.

    Returns
    -------
    dict
        In types that JSON knows. ``methods`` has ``"pca"``, ``"cpca"`` and ``"cpca++"``, each with
        its eigenvalues and top features, for cPCA at every α. ``points`` names the files of
        scores: float32, little-endian, of shape (rows, 2), for cPCA (α, rows, 2).
        ``files`` are ``scores.csv`` (all rows) and ``features.csv``. ``target`` and ``background``
        count rows, and say which were left out and why. ``notes`` are what was
        recognised in the files, and doubts about features.

    Raises
    ------
    TableError
        If a table or an option can't be used.

    See Also
    --------
    describe_tables : which columns there are.
    reduce_tables : one method, any number of components, and a model for new rows.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from cpcapp.tables import compare_methods
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rng = np.random.default_rng(0)
    >>> np.save(folder / "treated.npy", rng.normal(size=(200, 4)) * [9, 1, 3, 1])
    >>> np.save(folder / "control.npy", rng.normal(size=(200, 4)) * [9, 1, 1, 1])
    >>> paths = folder / "treated.npy", folder / "control.npy"
    >>> found = compare_methods(*paths, n_alphas=5, folder=folder / "out")
    >>> methods = found["methods"]
    >>> methods["pca"]["top_features"][0][0]["feature"]
    'x0'
    >>> methods["cpca++"]["top_features"][0][0]["feature"]
    'x2'
    >>> methods["cpca"]["alphas"]
    [0.0, 0.1, 2.15443, 46.4159, 1000.0]
    """
    require_package("pyarrow", "tables")
    _check_options(standardize, missing, n_alphas, max_points)
    report = report_nothing if progress is None else progress
    own, other = open_rereadable(target, "auto"), open_rereadable(background, None)
    roles, left_out = _choose_roles(own, other, columns, label)
    rules: Any = {"missing": missing, "skip_bad_rows": True}
    sets = [
        read_set(Selection(table, role), roles.features, report, **rules)
        for table, role in ((own, "target"), (other, "background"))
    ]
    own_set, other_set = standardize_sets(sets, standardize)
    with report("finding components") as share:
        views = _fit_views(own_set, other_set, n_alphas, standardize)
        share(1.0)
    significance = find_significance(own_set, other_set, method="cpca++")
    reduction = Reduction(views.plus, roles, own_set, other_set, significance)
    folder = make_folder(folder)
    points = [_Points(one, views, roles, max_points) for one in (own_set, other_set)]
    _write_scores(folder / "scores.csv", points, roles, report)
    _write_features(folder / "features.csv", views, own_set)
    for part in points:
        part.write(folder)
    counted = [part.describe() for part in points]
    notes = [
        f"{one.selection.table.name}: {', '.join(recognised)}"
        for one in (own_set, other_set)
        if (recognised := one.selection.table.reading_notes())
    ]
    notes += [note.problem for note in Summary(reduction).notes()]
    notes += _scale_notes(own_set, standardize)
    reasons = {reason for counts in counted for reason in counts["reasons"]}
    return {
        "cpcapp": __version__,
        "n_features": len(roles.features),
        "left_out": left_out,
        "standardize": standardize,
        "missing": missing,
        "n_alphas": n_alphas,
        "methods": _describe_methods(views, own_set),
        "n_significant": significance.n_components,
        "significance_test": significance.describe(),
        "label": points[0].describe_label(label),
        "target": counted[0],
        "background": counted[1],
        "points": {role: part.files for role, part in zip(_ROLES, points, strict=True)},
        "rows": {role: f"{role}-rows.json" for role in _ROLES},
        "values": views.shown_features,
        "files": {"scores": "scores.csv", "features": "features.csv"},
        "seed": _SEED,
        "notes": [note for note in notes if note not in reasons],
    }


_ROLES = ("target", "background")


def _scale_notes(target: SampleSet, standardize: str) -> list[str]:
    """Return a warning if a few columns are so large that PCA and cPCA see no others."""
    deviation = target.deviation
    # Less than that is a constant with errors of rounding.
    deviation = deviation[deviation > 1e-8 * deviation.max()]
    ratio = float(deviation.max() / deviation.min()) if len(deviation) else 1.0
    if standardize != "none" or ratio < _MAX_SCALE_RATIO:
        return []
    return [
        f"the columns differ in scale up to {float(f'{ratio:.1g}'):,.0f} times: PCA and cPCA "
        "follow the largest; scale the tables to let all columns count"
    ]


def _check_options(standardize: str, missing: str, n_alphas: int, max_points: int) -> None:
    check_choice("standardize", standardize, STANDARDIZATIONS)
    check_choice("missing", missing, MISSING_RULES)
    if n_alphas < 2:
        raise TableError(f"{n_alphas} contrast parameters are too few", "{n_alphas} is at least 2")
    if max_points < 1:
        raise TableError(f"{max_points} points can't be drawn", "{max_points} must be at least 1")


def _choose_roles(
    target: Table, background: Table, columns: Iterable[str] | str | None, label: str | None
) -> tuple[Columns, list[dict[str, str]]]:
    """Return the roles of the columns, and the columns that have none, with the reason."""
    if label is not None and target.find_absent([label]):
        raise TableError(f"{target.name} has no column {label!r}", "choose another {label}")
    text = dict.fromkeys(target.text_columns(target.columns))
    left_out = []
    if columns is None:
        features = []
        shared = [name for name in target.columns if name in background.column_index]
        their_text = set(background.text_columns(shared))
        for name in target.default_features:
            reason = ""
            if name in (label, target.row_names):
                continue
            if name in text:
                reason = "text"
            elif name not in background.column_index:
                reason = "not in the background"
            elif name in their_text:
                reason = "text in the background"
            if reason:
                left_out.append({"name": name, "reason": reason})
            else:
                features.append(name)
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
    ids = [name for name in text if name not in others]
    if target.row_names is not None:
        ids.insert(0, target.row_names)
    labels = [] if label is None else [label]
    roles = choose_columns(target, columns=features, ids=ids[:_MAX_IDS], labels=labels)
    match_columns(background, roles.features, target)
    return roles, left_out


# -- components ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Views:
    """The components of the three methods.

    Attributes
    ----------
    pca, cpca, plus : TableModel
        That of cPCA is at the automatic α.
    alphas : ndarray of shape (n_alphas,)
    sweep : ndarray of shape (n_alphas, 2, n_features)
        Aligned filters of cPCA.
    eigenvalues : ndarray of shape (n_alphas, 2)
        Of cPCA.
    automatic : int
        Index of the automatic α.
    offered : list of int
        Indices of the α that differ most.
    shown_features : list of str
        Top features whose values are written for each point.
    """

    pca: TableModel
    cpca: TableModel
    plus: TableModel
    alphas: FloatArray
    sweep: FloatArray
    eigenvalues: FloatArray
    automatic: int
    offered: list[int]
    shown_features: list[str]

    @property
    def filters(self) -> FloatArray:
        """PCA, cPCA at the automatic α, and cPCA++, in rows."""
        return np.concatenate([m.components for m in (self.pca, self.cpca, self.plus)])


def _fit_views(target: SampleSet, background: SampleSet, n_alphas: int, standardize: str) -> _Views:
    alphas = np.concatenate([[0.0], np.logspace(-1, 3, n_alphas - 1)])
    cpca = CPCA(_N_COMPONENTS, alpha="clustering", alphas=alphas)
    try:
        models = {
            method: fit_model(
                estimator,
                target,
                None if method == "pca" else background,
                method=method,
                standardize=standardize,
            )
            for method, estimator in (
                ("pca", CPCAPlusPlus(_N_COMPONENTS)),
                ("cpca", cpca),
                ("cpca++", CPCAPlusPlus(_N_COMPONENTS)),
            )
        }
    except InsufficientRankError as error:
        raise TableError(
            f"{target.selection.table.name}: the chosen columns have only {error.rank} direction "
            "that varies; 2 are needed",
            "choose other {columns}",
        ) from error
    automatic = int(np.flatnonzero(cpca.alphas_ == cpca.alpha_)[0])
    offered = np.flatnonzero(np.isin(cpca.alphas_, cpca.selected_alphas_))
    shown = [
        name
        for model in (models["cpca++"], models["pca"], models["cpca"])
        for top in rank_features(model.components * target.deviation, model.features, 3)
        for name, _ in top
    ]
    return _Views(
        models["pca"],
        models["cpca"],
        models["cpca++"],
        cpca.alphas_,
        align_subspaces(cpca.subspaces_, automatic, target.standardized_moments()),
        cpca.subspace_eigenvalues_,
        automatic,
        offered.tolist(),
        list(dict.fromkeys(shown)),
    )


def align_subspaces(subspaces: NDArray[np.float64], start: int, target: Moments) -> FloatArray:
    """Turn each basis within its subspace so that points move little from one to the next.

    Parameters
    ----------
    subspaces : ndarray of shape (n, k, n_features)
        Orthonormal rows.
    start : int
        This one stays as it is, and the others follow from it in both directions.
    target : Moments
        Of the points.

    Returns
    -------
    ndarray of shape (n, k, n_features)
        Other bases of the same subspaces.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import Moments
    >>> turned = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])
    >>> align_subspaces(turned, 0, Moments.from_covariance(np.diag([3.0, 2.0, 1.0]), 50))[1]
    array([[1., 0., 0.],
           [0., 1., 0.]])
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


def _describe_methods(views: _Views, target: SampleSet) -> dict[str, Any]:
    total = float((target.deviation**2).sum())

    def tops(filters: FloatArray) -> list[list[dict[str, Any]]]:
        ranked = rank_features(filters * target.deviation, target.features, TOP)
        return [[{"feature": n, "weight": _digits(w)} for n, w in top] for top in ranked]

    return {
        "pca": {
            "title": "PCA",
            "eigenvalues": _digits(views.pca.eigenvalues),
            "variance_shares": _digits(views.pca.eigenvalues / total if total else [0.0, 0.0]),
            "top_features": tops(views.pca.components),
        },
        "cpca": {
            "title": "cPCA",
            "alphas": _digits(views.alphas),
            "automatic": views.automatic,
            "offered": views.offered,
            "eigenvalues": _digits(views.eigenvalues),
            "top_features": [tops(filters) for filters in views.sweep],
        },
        "cpca++": {
            "title": "cPCA++",
            "eigenvalues": _digits(views.plus.eigenvalues),
            "top_features": tops(views.plus.components),
        },
    }


def _digits(values: Any) -> Any:
    """Return numbers with six digits, in types that JSON knows."""
    if np.ndim(values):
        return [_digits(value) for value in values]
    return float(f"{float(values):.6g}")


# -- points ----------------------------------------------------------------------------------


class _Points:
    """The rows of a set that are drawn: a sample if there are many, the same in every run."""

    def __init__(
        self, sample_set: SampleSet, views: _Views, roles: Columns, max_points: int
    ) -> None:
        self.sample_set, self.views, self.roles = sample_set, views, roles
        self.role = sample_set.selection.role
        n_rows = sample_set.moments.n_samples
        self.chosen = np.arange(n_rows)
        if n_rows > max_points:
            rng = np.random.default_rng(_SEED)
            self.chosen = np.sort(rng.choice(n_rows, max_points, replace=False))
        self.files = {
            method: f"{self.role}-{method.replace('+', 'p')}.f32"
            for method in ("pca", "cpca", "cpca++")
        }
        self.files["values"] = f"{self.role}-values.f32"
        self._parts: dict[str, list[NDArray[Any]]] = {
            name: [] for name in ("positions", "fixed", "sweep", "values")
        }
        self.texts: dict[str, list[Any]] = {name: [] for name in roles.kept}
        self._label: tuple[dict[str, Any], NDArray[np.float64]] | None = None

    def read(self, report: ProgressReport) -> Iterator[tuple[Chunk, FloatArray]]:
        """Read the rows once more; yield all with their scores, and keep those to draw."""
        import pyarrow as pa

        views, selection = self.views, self.sample_set.selection
        present = [name for name in self.roles.kept if name in selection.table.column_index]
        mean, scale = choose_mean(views.plus, self.sample_set), self.sample_set.scale
        n_features = len(self.sample_set.features)
        sweep = views.sweep.reshape(-1, n_features)
        shown = [self.sample_set.features.index(name) for name in views.shown_features]
        done = 0
        with report(f"drawing {self.role}") as share:
            for chunk in self.sample_set.clean_rows(present, share):
                values = (
                    chunk.values if isinstance(chunk.values, np.ndarray) else chunk.values.toarray()
                )
                fixed = compute_scores(values, views.filters, mean, scale)
                n_rows = len(chunk.rows)
                low, high = np.searchsorted(self.chosen, (done, done + n_rows))
                drawn = self.chosen[low:high] - done
                done += n_rows
                self._parts["positions"].append(chunk.positions[drawn])
                self._parts["fixed"].append(fixed[drawn].astype("<f4"))
                part = compute_scores(values[drawn], sweep, mean, scale)
                self._parts["sweep"].append(part.astype("<f4"))
                self._parts["values"].append(values[drawn][:, shown].astype("<f4"))
                empty = pa.nulls(n_rows, pa.string())
                kept = {name: chunk.kept.get(name, empty) for name in self.roles.kept}
                for name, column in kept.items():
                    self.texts[name] += column.take(pa.array(drawn)).to_pylist()
                yield Chunk(chunk.rows, chunk.positions, None, kept), fixed

    def write(self, folder: Path) -> None:
        """Write what `read` has kept."""
        found = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        n_alphas = len(self.views.alphas)
        sweep = found["sweep"].reshape(-1, n_alphas, _N_COMPONENTS).transpose(1, 0, 2)
        arrays = {
            self.files["pca"]: found["fixed"][:, :2],
            self.files["cpca"]: sweep,
            self.files["cpca++"]: found["fixed"][:, 4:],
            self.files["values"]: found["values"],
        }
        if self.role == "target" and self.roles.labels:
            label = self.roles.labels[0]
            described, codes = _encode_label(label, self.texts.pop(label))
            self.files["label"] = "target-label.f32"
            self._label = described, codes
            arrays[self.files["label"]] = codes
        for name, array in arrays.items():
            with atomic_write(folder / name) as file:
                file.write(np.ascontiguousarray(array, dtype="<f4").tobytes())
        rows = {
            "unit": self.sample_set.selection.table.unit,
            "positions": found["positions"].tolist(),
            "ids": {
                name: ["" if value is None else str(value)[:_MAX_TEXT] for value in texts]
                for name, texts in self.texts.items()
                if any(value is not None for value in texts)
            },
        }
        with atomic_write(folder / f"{self.role}-rows.json") as file:
            file.write(json.dumps(rows).encode())

    def describe(self) -> dict[str, Any]:
        """Return the counts of the rows, and why some were left out."""
        counts, table = self.sample_set.counts, self.sample_set.selection.table
        reasons = [describe_skipped(counts, table), describe_incomplete(counts, table)]
        return {
            "table": table.name,
            **counts.to_dict(),
            "rows_left_out": counts.n_rows - counts.n_used,
            "reasons": [reason for reason in reasons if reason],
            "drawn": len(self.chosen),
            "sampled": len(self.chosen) < counts.n_used,
        }

    def describe_label(self, label: str | None) -> dict[str, Any] | None:
        """Return the classes or the range of the label."""
        return None if label is None or self._label is None else self._label[0]


def _encode_label(name: str, values: Sequence[Any]) -> tuple[dict[str, Any], NDArray[np.float64]]:
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
    n_missing = texts.count("")
    if is_number and len({*numbers.values()}) > _MAX_NUMBER_CLASSES:
        codes = np.array([numbers[text] if text else np.nan for text in texts], dtype=np.float64)
        low, high = float(np.nanmin(codes)), float(np.nanmax(codes))
        described = {"kind": "number", "low": low, "high": high}
        return {"name": name, **described, "missing": n_missing}, codes
    common = [text for text, _ in counts.most_common(_MAX_CLASSES)]
    common.sort(key=lambda text: (numbers[text], text) if is_number else (0.0, text))
    rest = counts.total() - sum(counts[text] for text in common)
    classes = [{"name": text[:_MAX_TEXT], "count": counts[text]} for text in common]
    index = {text: i for i, text in enumerate(common)}
    if rest:
        classes.append({"name": "other", "count": rest})
    codes = np.array([index.get(text, len(common)) if text else np.nan for text in texts], float)
    return {"name": name, "kind": "class", "classes": classes, "missing": n_missing}, codes


# -- files -----------------------------------------------------------------------------------


def _write_scores(
    path: Path, points: Sequence[_Points], roles: Columns, report: ProgressReport
) -> None:
    alpha = points[0].views.cpca.info["alpha"]
    methods = ("pca", f"cpca_alpha_{alpha:.4g}", "cpca++")
    names = [f"{method}_{i + 1}" for method in methods for i in range(_N_COMPONENTS)]
    with open_scores(path, name_score_columns(roles.kept, names, with_set=True)) as writer:
        for part in points:
            for chunk, scores in part.read(report):
                writer.write(chunk, scores, part.role)


def _write_features(path: Path, views: _Views, target: SampleSet) -> None:
    """Write the weight of every feature, for all methods and α."""
    named = [("pca", "", views.pca.components)]
    named += [
        ("cpca", f"{alpha:.6g}", filters)
        for alpha, filters in zip(views.alphas, views.sweep, strict=True)
    ]
    named.append(("cpca++", "", views.plus.components))
    rows = (
        (method, alpha, component + 1, feature, weight, filters[component, i])
        for method, alpha, filters in named
        for component, weights in enumerate((filters * target.deviation).tolist())
        for i, (feature, weight) in enumerate(zip(target.features, weights, strict=True))
    )
    write_rows(path, ["method", "alpha", "component", "feature", "weight", "filter"], rows)
