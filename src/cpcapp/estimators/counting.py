"""Counting components without a fit: the public door of `cpcapp.inference.permutation`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cpcapp.estimators.cpca_plus_plus import CPCAPlusPlus
from cpcapp.estimators.inputs import FitArguments, read_sides
from cpcapp.inference.permutation import PermutationTest, count_components_of


def permutation_test(
    X: Any,
    background: Any,
    *,
    groups: ArrayLike | None = None,
    background_groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    background_sample_weight: ArrayLike | None = None,
    covariates: Any = None,
    background_covariates: Any = None,
    missing: str = "error",
    false_alarm_rate: float = 0.05,
    n_permutations: int | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> PermutationTest:
    """Count the directions in which the target varies more than shuffling both sets gives.

    Assumes no distribution, holds for small samples, and works with any number of features.

    Parameters
    ----------
    X, background
        As `CPCAPlusPlus.fit` takes them; ``background`` can be a list. A difference of their means
        beyond chance is taken out first.
    groups, background_groups : array-like of shape (n,), optional
        Rows with the same label move together: all cells of a patient, copies of a row, runs of a
        time series. Give both or neither. A label names one group of X and another one of the
        background.
    sample_weight, background_sample_weight : array-like of shape (n,), optional
    covariates, background_covariates : array-like of shape (n,) or (n, n_covariates), optional
        Numbers or labels whose effect is taken out of each set. Give both or neither.
    missing : {"error", "pairwise"}, default="error"
        What to do about NaN. With ``"pairwise"`` each row also loses what a random row of the other
        set lacks, so that both sets lack as much.
    false_alarm_rate : float, default=0.05
        Probability to count anything when both sets are samples of one population.
    n_permutations : int, optional
        At least ``1/false_alarm_rate - 1``. By default 99, or as many as the rate needs.
    random_state : int, Generator or None, default=0

    Returns
    -------
    PermutationTest

    Notes
    -----
    The statistic is the largest λ of ``R_f v = λ R_b v``, with ``R_b`` shrunk by OAS in units in
    which each feature has variance 1, where nine tenths of a unit are the background's variance
    and one tenth that of both sets (up to twice that of both sets for features that hardly ever
    vary). It is not the eigenvalue of a fit, which has another loading.

    Without missing values or means that differ, and with no covariates but labels, the test is
    exact: rows are shuffled as they are, within each label. Otherwise the effects of covariates are
    estimated first, robustly, and taken out of each shuffled set once more; then the test holds
    closely.

    Rows further out than 99.9 % of Gaussian rows are drawn in to that distance, in both sets
    alike, so a single row far out is not counted, though it may carry a component.

    Of more than 10,000 rows (fewer where there are many features) a random part is used.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import permutation_test
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(60, 100)), rng.normal(size=(60, 100))
    >>> permutation_test(X, B).n_components
    0
    >>> X[:, :2] *= 4
    >>> found = permutation_test(X, B)
    >>> found.n_components, found.p_value
    (2, 0.01)
    """
    given = FitArguments(
        sample_weight=sample_weight,
        background_sample_weight=background_sample_weight,
        covariates=covariates,
        background_covariates=background_covariates,
        groups=groups,
        background_groups=background_groups,
        missing=missing,
    )
    rng = np.random.default_rng(random_state)
    estimator = CPCAPlusPlus(random_state=int(rng.integers(1 << 31)))  # it chooses rows
    sides = read_sides(estimator, X, None, background, None, given)
    if not sides.has_rows:
        raise ValueError("rows are shuffled between both sets; give rows, not moments")
    return count_components_of(
        sides.target_sample,
        sides.background_sample,
        false_alarm_rate=false_alarm_rate,
        n_permutations=n_permutations,
        random_state=rng,
    )
