"""Contrast two tables: from files to filters."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from cpcapp import __version__
from cpcapp.contrast.difference import solve_cpca
from cpcapp.contrast.solution import Contrast, InsufficientRankError, rank_features
from cpcapp.contrast.solve import solve_contrast
from cpcapp.inference.held_out import HeldOutContrasts, held_out
from cpcapp.inference.noise import count_components
from cpcapp.inference.notes import Note, notes_on, shared_components
from cpcapp.inference.permutation import PermutationTest, count_components_of
from cpcapp.inference.power import calibrate
from cpcapp.moments.rows import FloatArray
from cpcapp.tables.cleaning import MISSING_RULES
from cpcapp.tables.columns import Columns, choose_columns, choose_sets, match_columns
from cpcapp.tables.messages import Message, TableError, check_choice
from cpcapp.tables.model import TableModel, bare_contrast, divide_features
from cpcapp.tables.read import open_table
from cpcapp.tables.read.table import Chunk, Progress, ProgressReport, Table, report_nothing
from cpcapp.tables.sample_sets import STANDARDIZATIONS, SampleSet, read_set, standardize_sets

METHODS = ("cpca++", "cpca", "pca")
# Features of a solution that is repeated for twenty folds: with more, each takes seconds.
_MAX_HELD_OUT = 500

AnyTable = Table | str | os.PathLike[str]


@dataclass(frozen=True)
class Significance:
    """How many components are significant, by which test; or None and the reason.

    ``is_sample`` says whether the rows that were shuffled are a random sample of more.
    """

    n_components: int | None
    test: str = ""
    reason: Message | None = None
    permutations: PermutationTest | None = None
    is_sample: bool = False

    def describe(self) -> str:
        """Return the name of the test, and which rows it is of if not of all."""
        if not self.is_sample or self.permutations is None:
            return self.test
        n_target, n_background = self.permutations.n_rows
        return f"{self.test} of {n_target:,} + {n_background:,} rows drawn at random"


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
    held_out : HeldOutContrasts or None
        Variance of each component over the background's, in rows that were held out; for cPCA++
        of up to 500 features.
    doubts : list of Note
        Components that one row carries, and directions that are counted but not shown.
    """

    model: TableModel
    columns: Columns
    target: SampleSet
    background: SampleSet | None
    significance: Significance
    held_out: HeldOutContrasts | None = None
    doubts: Sequence[Note] = ()

    @property
    def sets(self) -> list[SampleSet]:
        """The target, and the background if there is one."""
        return [one for one in (self.target, self.background) if one is not None]

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
        constant = np.logical_and.reduce([one.moments.constant_features() for one in self.sets])
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
        contrast = contrast_about(self.model, sample_set)
        for chunk in sample_set.clean_rows(kept, progress):
            yield chunk, contrast.transform(divide_features(chunk.values, sample_set.scale))


def contrast_about(model: TableModel, sample_set: SampleSet) -> Contrast:
    """Return the contrast with what is subtracted from the rows of a set, divided by its scale."""
    # With a scale of its own each set also has its own mean.
    mean = sample_set.mean if model.standardize == "each" else model.contrast.mean * model.scale
    return replace(model.contrast, mean=mean / sample_set.scale)


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
    selections = choose_sets(table, other, split, target_values, background_values)
    if method == "pca":
        selections, other = (selections[0], None), None
    elif selections[1] is None:
        raise TableError(
            f"{method} needs a background",
            "give {background}, or {split} and {background_values} to find it in the target, or "
            "use {method}",
            method="pca",
        )
    roles = choose_columns(table, columns=columns, drop=drop, ids=ids, labels=labels, split=split)
    if other is not None:
        match_columns(other, roles.features, table)
    report = report_nothing if progress is None else progress
    sets = [
        read_set(rows, roles.features, report, missing=missing, skip_bad_rows=skip_bad_rows)
        for rows in selections
        if rows is not None
    ]
    sets = standardize_sets(sets, standardize)
    target_set, background_set = sets[0], sets[1] if len(sets) > 1 else None
    significance = find_significance(
        target_set, background_set, method=method, permutation_test=permutation_test
    )
    k = n_components if not isinstance(n_components, str) else _count_significant(significance)
    most = min(len(roles.features), target_set.moments.n_samples - 1)
    try:
        if k > most:
            raise InsufficientRankError(most, "n_components")
        model = fit_model(
            target_set, background_set, k, method=method, alpha=alpha, standardize=standardize
        )
    except InsufficientRankError as error:
        raise TableError(
            f"{table.name}: there can't be {k} components of {len(roles.features)} features and "
            f"{target_set.moments.n_samples} rows",
            f"{{n_components}} must be at most {error.rank}",
        ) from error
    return ask_rows(Reduction(model, roles, target_set, background_set, significance))


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


def find_significance(
    target: SampleSet,
    background: SampleSet | None,
    *,
    method: str,
    permutation_test: bool = True,
) -> Significance:
    """Count the components that are more than chance.

    By shuffling the rows at hand, or by the Tracy-Widom test, which needs the moments only, but is
    for Gaussian rows and a background of full rank.
    """
    if method != "cpca++" or background is None:
        return Significance(None, reason=Message("the test is for cpca++ only"))
    try:
        if permutation_test:
            test = count_components_of(target.sample, background.sample)
            is_sample = test.n_rows != (target.rows.n_seen, background.rows.n_seen)
            return Significance(test.n_components, "permutation test", None, test, is_sample)
        count = count_components(target.scaled_moments(), background.scaled_moments())
        return Significance(count, "Tracy-Widom test")
    except ValueError as error:  # too few rows, or a singular covariance
        reason = Message(str(error))
        if not permutation_test:
            reason = Message(
                "the Tracy-Widom test needs a background of full rank with more than "
                f"{len(target.features) + 1} rows",
                "{permutation_test} needs no such background",
                {"permutation_test": True},
            )
        return Significance(None, reason=reason)


def _count_significant(significance: Significance) -> int:
    """Return how many components there are, or raise `TableError` if none or not known."""
    reason = significance.reason
    if reason is not None:
        raise TableError(
            f"the number of components can't be chosen: {reason.problem}",
            "give {n_components} as a number" + (f"; {reason.advice}" if reason.advice else ""),
            **reason.values,
        )
    if not significance.n_components:
        raise TableError(
            f"no component is significant ({significance.describe()})",
            "give {n_components} to compute components anyway",
            n_components=2,
        )
    return significance.n_components


def fit_model(
    target: SampleSet,
    background: SampleSet | None,
    k: int,
    *,
    method: str,
    standardize: str,
    alpha: str | float = "auto",
) -> TableModel:
    """Solve for the components of two sets, and return what new rows need of them."""
    info: dict[str, Any] = {
        "cpcapp": __version__,
        "rows": target.moments.n_samples,
        "background_rows": 0 if background is None else background.moments.n_samples,
    }
    if method == "cpca" and background is not None:
        contrast, info["alpha"] = _solve_cpca(target, background, k, alpha)
    else:
        contrast = solve_contrast(
            target.scaled_moments(),
            None if background is None else background.scaled_moments(),
            k,
            rows=None if background is None else target.scaled_rows(),
        )
    compared = background if method == "cpca++" else None
    calibration = None
    if compared is not None:
        with suppress(ValueError):  # too few rows
            calibration = calibrate(target.sample, compared.sample, contrast)
    return TableModel(
        target.features,
        contrast if compared is not None else replace(contrast, background_mean=None),
        target.scale,
        target.fill,
        None if compared is None else compared.scale,
        calibration,
        method=method,
        standardize=standardize,
        missing=target.missing,
        info=info,
    )


def _solve_cpca(
    target: SampleSet, background: SampleSet, k: int, alpha: str | float
) -> tuple[Contrast, float]:
    """Solve as `cpcapp.CPCA` does: a number is α in the features' own units."""
    moments = target.scaled_moments(), background.scaled_moments()
    if isinstance(alpha, str):
        found = solve_cpca(*moments, k, rows=target.scaled_rows())
    else:
        found = solve_cpca(*moments, k, alpha, standardize=False)
    mean = target.mean / target.scale
    return bare_contrast(found.filters, found.atoms, found.eigenvalues, mean), float(
        found.bound or 0.0
    )


def ask_rows(reduction: Reduction) -> Reduction:
    """Add what the rows at hand tell: contrasts of rows that were held out, and doubts."""
    model, target, background = reduction.model, reduction.target, reduction.background
    if model.method != "cpca++" or background is None:
        return reduction
    samples = target.sample, background.sample
    test = reduction.significance.permutations
    doubts = shared_components(model.contrast, *map(len, samples))
    doubts += notes_on(model.contrast, *samples, test, model.features)
    on_others = None
    if len(model.features) <= _MAX_HELD_OUT:
        with suppress(ValueError):  # a handful of rows
            on_others = held_out(*samples, model.contrast)
    return replace(reduction, held_out=on_others, doubts=doubts)
