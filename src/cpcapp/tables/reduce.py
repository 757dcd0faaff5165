"""Contrast two tables: from files to filters."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from cpcapp import __version__
from cpcapp.contrast.solution import rank_features
from cpcapp.contrast.solve import solve_contrast
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.inference.power import cross_fit
from cpcapp.moments.moments import Moments
from cpcapp.tables.cleaning import MISSING_RULES
from cpcapp.tables.columns import Columns, as_names, choose_columns, choose_sets, match_columns
from cpcapp.tables.messages import TableError, check_choice
from cpcapp.tables.model import FloatArray, TableModel, compute_scores
from cpcapp.tables.reading.opening import open_table
from cpcapp.tables.reading.table import Chunk, Progress, ProgressReport, Table, report_nothing
from cpcapp.tables.sample_sets import STANDARDIZATIONS, SampleSet, read_set, standardize_sets
from cpcapp.tables.significance import Significance, choose_n_components, find_significance

# Features of a solution that is repeated for five folds of background; at 2000 that takes seconds.
_MAX_CALIBRATED = 2000

METHODS = ("cpca++", "cpca", "pca")

AnyTable = Table | str | os.PathLike[str]


@dataclass(frozen=True)
class Reduction:
    """What :func:`reduce_tables` found.

    Attributes
    ----------
    model : TableModel
        Filters, atoms and eigenvalues; computes the components of new rows.
    columns : Columns
        Names of features, ids and labels.
    target, background : SampleSet
        The two sets of rows; the background is None for PCA.
    significance : Significance
        How many components are significant, and by which test.
    """

    model: TableModel
    columns: Columns
    target: SampleSet
    background: SampleSet | None
    significance: Significance

    @property
    def n_significant(self) -> int | None:
        """Number of significant components; None if it was not tested."""
        return self.significance.n_components

    @property
    def weights(self) -> FloatArray:
        """Filters times the standard deviation of each feature in the target.

        The change of a score when a feature changes by one standard deviation, whatever its
        unit. Features are ranked by it. Shape (n_components, n_features).
        """
        return self.model.components * self.target.deviation

    def top_features(self, count: int) -> list[list[tuple[str, float]]]:
        """Return for each component the features of largest weight, with their weights.

        Parameters
        ----------
        count : int
            Features of each component.
        """
        return rank_features(self.weights, self.model.features, count)

    @property
    def constant_in_background(self) -> list[str]:
        """Features that vary in the target and are constant in the background.

        Often such a feature is a label and no measurement.
        """
        if self.background is None:
            return []
        constant = self.background.moments.constant_features()
        varying = ~self.target.moments.constant_features()
        return [self.model.features[i] for i in np.flatnonzero(constant & varying)]

    @property
    def constant_features(self) -> list[str]:
        """Features that vary in neither set; they have no influence."""
        sets = [one for one in (self.target, self.background) if one is not None]
        constant = np.logical_and.reduce([one.moments.constant_features() for one in sets])
        return [self.model.features[i] for i in np.flatnonzero(constant)]

    def scores(
        self, sample_set: SampleSet, kept: Sequence[str], progress: Progress | None = None
    ) -> Iterator[tuple[Chunk, FloatArray]]:
        """Read the rows of a set once more, and yield them with their components.

        Parameters
        ----------
        sample_set : SampleSet
            `target` or `background`.
        kept : sequence of str
            Columns that each chunk keeps.
        progress : callable of a float, optional
        """
        model, mean = self.model, choose_mean(self.model, sample_set)
        for chunk in sample_set.clean_rows(kept, progress):
            yield chunk, compute_scores(chunk.values, model.components, mean, sample_set.scale)


def choose_mean(model: TableModel, sample_set: SampleSet) -> FloatArray:
    """Return what is subtracted from the rows of a set before they become scores."""
    # With a scale of its own each set also has its own mean.
    return sample_set.mean if model.standardize == "each" else model.mean


def reduce_tables(
    target: AnyTable,
    background: AnyTable | None = None,
    n_components: int | str = 2,
    *,
    method: str = "cpca++",
    alpha: str | float = "auto",
    standardize: str = "none",
    missing: str = "error",
    skip_bad_rows: bool = False,
    permutation_test: bool = True,
    columns: Iterable[str] | str | None = None,
    drop: Iterable[str] | str = (),
    ids: Iterable[str] | str = (),
    labels: Iterable[str] | str = (),
    split: str | None = None,
    target_values: Iterable[Any] | str | None = None,
    background_values: Iterable[Any] | str | None = None,
    mask_var: str | None = "auto",
    progress: ProgressReport | None = None,
) -> Reduction:
    r"""Find the directions along which a table varies most, relative to a background.

    Tables are read in chunks and may be larger than the memory. Columns of the two tables are
    matched by name.

    Parameters
    ----------
    target, background : str, path-like or Table
        Files, as for :func:`open_table`. Both sets can be in one table: see ``split``.
    n_components : int or "auto", default=2
        ``"auto"`` keeps the significant components.
    method : {"cpca++", "cpca", "pca"}, default="cpca++"
        ``"pca"`` needs no background.
    alpha : "auto" or float, default="auto"
        Contrast parameter of ``method="cpca"``.
    standardize : {"none", "each", "background"}, default="none"
        Divide features by their standard deviation: in each set by its own, or in both by the
        background's.
    missing : {"error", "zero", "mean", "drop"}, default="error"
        Missing values are an error, become 0 or the mean of their column in their set, or
        their row is left out.
    skip_bad_rows : bool, default=False
        Leave out rows that can't be read; otherwise they are an error.
    permutation_test : bool, default=True
        Find the number of significant components by shuffling rows
        (:func:`cpcapp.permutation_test`): all of them, or up to 5000 of each table, drawn at
        random while it is read. Otherwise by the Tracy-Widom test
        (:func:`cpcapp.count_components`), which is for Gaussian rows and more background rows than
        features.
    columns : str or sequence of str, optional
        The features. By default all columns without another role; for ``.h5ad`` see
        ``mask_var``.
    drop, ids, labels : str or sequence of str
        Columns that are not used, and columns that are copied to the scores. The first label
        gives the colours of a plot.
    split : str, optional
        Column of ``target`` that says to which set a row belongs.
    target_values, background_values : str or sequence, optional
        Values of that column. Without ``target_values`` all rows that are not background are
        the target.
    mask_var : str or None, default="auto"
        Genes of ``.h5ad`` files, as for :func:`open_table`.
    progress : callable of a title, optional
        Returns a context manager that gives a function, which is called with the share read.

    Returns
    -------
    Reduction

    Raises
    ------
    TableError
        If a table or an option can't be used.

    See Also
    --------
    write_results : writes scores, top features and the model to files.
    cpcapp.CPCAPlusPlus : the same for arrays and data frames in memory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rng = np.random.default_rng(0)
    >>> treated, control = rng.normal(size=(200, 4)), rng.normal(size=(200, 4))
    >>> treated[:, 2] *= 3
    >>> np.save(folder / "treated.npy", treated)
    >>> np.save(folder / "control.npy", control)
    >>> found = reduce_tables(folder / "treated.npy", folder / "control.npy", 1)
    >>> found.top_features(1)[0][0][0], found.n_significant
    ('x2', 1)
    """
    _check_options(n_components, method, alpha, standardize, missing)
    table = open_rereadable(target, mask_var)
    # Its features are found by the names of the target's, whatever genes it marks itself.
    other = None if background is None else open_rereadable(background, None)
    own_rows, other_rows = choose_sets(
        table,
        other,
        split=split,
        target_values=target_values,
        background_values=background_values,
    )
    if other_rows is None and method != "pca":
        raise TableError(
            f"{method} needs a background",
            "give {background}, or {split} and {background_values} to find it in the target, or "
            "use {method}",
            method="pca",
        )
    roles = choose_columns(
        table,
        columns=None if columns is None else as_names(columns),
        drop=as_names(drop),
        ids=as_names(ids),
        labels=as_names(labels),
        split=split,
    )
    if other is not None and method != "pca":
        match_columns(other, roles.features, table)
    report = report_nothing if progress is None else progress
    selections = [own_rows] if method == "pca" or other_rows is None else [own_rows, other_rows]
    sets = [
        read_set(rows, roles.features, report, missing=missing, skip_bad_rows=skip_bad_rows)
        for rows in selections
    ]
    sets = standardize_sets(sets, standardize)
    own, rest = sets[0], sets[1] if len(sets) > 1 else None
    significance = find_significance(own, rest, method=method, permutation_test=permutation_test)
    k = choose_n_components(n_components, significance)
    estimator: Any = CPCA(k, alpha=alpha) if method == "cpca" else CPCAPlusPlus(k)
    model = fit_model(estimator, own, rest, method=method, standardize=standardize)
    return Reduction(model, roles, own, rest, significance)


def open_rereadable(table: AnyTable, mask_var: str | None) -> Table:
    """Open a table, if it is not open; raise `TableError` if it can be read once only."""
    found = table if isinstance(table, Table) else open_table(table, mask_var=mask_var)
    if not found.rereadable:
        raise TableError(f"{found.name} is a pipe, but tables are read twice; give a file")
    return found


def _check_options(
    n_components: Any, method: str, alpha: str | float, standardize: str, missing: str
) -> None:
    check_choice("method", method, METHODS)
    check_choice("standardize", standardize, STANDARDIZATIONS)
    check_choice("missing", missing, MISSING_RULES)
    whole = isinstance(n_components, Integral) and not isinstance(n_components, bool)
    if n_components != "auto" and not (whole and n_components >= 1):
        raise TableError(
            f"{n_components!r} is not a number of components",
            "{n_components} must be a whole number above 0, or 'auto'",
        )
    if alpha != "auto" and method != "cpca":
        raise TableError("there is no contrast parameter", "{alpha} is for the method 'cpca' only")
    if alpha != "auto" and not (isinstance(alpha, Real) and 0.0 <= alpha < math.inf):
        raise TableError(
            f"{alpha!r} is not a contrast parameter", "{alpha} must be 'auto' or at least 0"
        )
    if standardize == "background" and method == "pca":
        raise TableError("PCA has no background", "choose another {standardize}")


def fit_model(
    estimator: Any,
    target: SampleSet,
    background: SampleSet | None,
    *,
    method: str,
    standardize: str,
) -> TableModel:
    """Fit an estimator to the moments of two sets, and return what new rows need of it.

    Parameters
    ----------
    estimator : CPCAPlusPlus or CPCA
        With ``n_components`` a number. It is fitted.
    target, background : SampleSet
        The background is None for PCA.
    method, standardize : str
        For the model.
    """
    k, most = estimator.n_components, min(len(target.features), target.moments.n_samples - 1)
    if k > most:
        raise TableError(
            f"{target.selection.table.name}: there can't be {k} components of "
            f"{len(target.features)} features and {target.moments.n_samples} rows",
            f"{{n_components}} must be at most {most}",
        )
    own = target.standardized_moments()
    estimator.fit_moments(own, None if background is None else background.standardized_moments())
    info: dict[str, Any] = {
        "cpcapp": __version__,
        "rows": target.moments.n_samples,
        "background_rows": 0 if background is None else background.moments.n_samples,
    }
    against: dict[str, Any] = {}
    if method == "cpca":
        info["alpha"] = estimator.alpha_
    elif background is not None:
        against = {
            "background_mean": background.mean,
            "background_scale": background.scale,
            "output_covariance": estimator._get_contrast().output_covariance,
            "calibration": _calibrate(estimator, own, background),
        }
    return TableModel(
        features=target.features,
        components=np.asarray(estimator.components_),
        atoms=np.asarray(estimator.atoms_),
        eigenvalues=np.asarray(estimator.eigenvalues_),
        mean=target.mean,
        scale=target.scale,
        fill=target.fill,
        method=method,
        standardize=standardize,
        missing=target.missing,
        info=info,
        **against,
    )


def _calibrate(estimator: CPCAPlusPlus, target: Moments, background: SampleSet) -> Any:
    """Return relative powers of background rows that were held out, or None."""
    if min(len(background.features), background.moments.n_samples) > _MAX_CALIBRATED:
        return None
    found = cross_fit(
        background.sampled_rows(),
        None,
        target,
        background.standardized_moments(),
        estimator._get_contrast(),
        solve=lambda left: solve_contrast(target, left, len(estimator.eigenvalues_)),
    )
    return None if found is None else found.powers
