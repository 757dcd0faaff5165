"""What takes the data of a fit once more: the count, held-out contrasts, and stability."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from cpcapp.estimators.cpca_plus_plus import CPCAPlusPlus
from cpcapp.estimators.inputs import FitArguments, Sides, read_sides
from cpcapp.inference.bootstrap import ComponentStability, resample
from cpcapp.inference.held_out import HeldOutContrasts, held_out
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


def held_out_contrasts(
    estimator: CPCAPlusPlus,
    X: Any,
    background: Any = None,
    *,
    is_background: Any = None,
    folds: int = 20,
    level: float = 0.95,
    random_state: int | None = 0,
    **fit_arguments: Any,
) -> HeldOutContrasts:
    """Return the contrast of each component on rows that its filters have not seen.

    What the fit itself says (``contrast_``) is too high, and far too high where rows are few: the
    filters were chosen for it.

    Parameters
    ----------
    estimator : CPCAPlusPlus
        Fitted to the same data.
    X, background, is_background
        As they were given to ``fit``, as rows.
    folds : int, default=20
        Parts that are left out in turn, at the loading of the fit.
    level : float, default=0.95
        Of the intervals, by drawing rows (or groups of rows) again.
    random_state : int or None, default=0
    **fit_arguments
        What else was given to ``fit``: groups, weights, covariates, a mixture of backgrounds.

    Returns
    -------
    HeldOutContrasts
        ``contrasts`` of shape (n_components,) and ``intervals`` of shape (n_components, 2).

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import CPCAPlusPlus, held_out_contrasts
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(60, 40)) * np.r_[3**0.5, np.ones(39)], rng.normal(size=(60, 40))
    >>> est = CPCAPlusPlus(n_components=1, loading=0.1).fit(X, background=B)
    >>> bool(est.contrast_[0] > 2 * held_out_contrasts(est, X, B).contrasts[0])
    True
    """
    sides, contrast = _read_again(estimator, X, background, is_background, fit_arguments)
    return held_out(
        sides.target_sample,
        sides.background_sample,
        contrast,
        folds=folds,
        level=level,
        random_state=random_state,
    )


def bootstrap(
    estimator: CPCAPlusPlus,
    X: Any,
    background: Any = None,
    *,
    is_background: Any = None,
    n: int = 200,
    confidence: float = 0.95,
    n_top: int = 10,
    random_state: int | None = 0,
    **fit_arguments: Any,
) -> ComponentStability:
    """Draw the rows of both sets again, solve again each time, and return how directions change.

    Parameters
    ----------
    estimator : CPCAPlusPlus
        Fitted to the same data.
    X, background, is_background
        As they were given to ``fit``, as rows.
    n : int, default=200
        Replicates.
    confidence : float, default=0.95
        Of the intervals of the atoms.
    n_top : int, default=10
        For ``top_frequency``; weights are those of ``estimator.top_features``.
    random_state : int or None, default=0
    **fit_arguments
        What else was given to ``fit``: groups (drawn whole), weights, covariates, a mixture.

    Returns
    -------
    ComponentStability

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp import CPCAPlusPlus, bootstrap
    >>> rng = np.random.default_rng(0)
    >>> X, B = rng.normal(size=(300, 5)) * [1, 1, 3, 1, 1], rng.normal(size=(300, 5))
    >>> est = CPCAPlusPlus(n_components=1).fit(X, background=B)
    >>> bootstrap(est, X, B, n=50, n_top=1).top_frequency[0]
    array([0., 0., 1., 0., 0.])
    """
    sides, contrast = _read_again(estimator, X, background, is_background, fit_arguments)
    return resample(
        sides.target_sample,
        sides.background_sample,
        contrast,
        n=n,
        confidence=confidence,
        n_top=n_top,
        random_state=random_state,
    )


def _read_again(
    estimator: Any, X: Any, background: Any, is_background: Any, fit_arguments: dict[str, Any]
) -> tuple[Sides, Any]:
    """Return the two sets as ``fit`` read them, and what it found."""
    if not isinstance(estimator, CPCAPlusPlus):
        raise TypeError(f"estimator must be a CPCAPlusPlus, not {type(estimator).__name__}")
    contrast = estimator._fitted()
    if len(contrast.eigenvalues) == 0:
        raise ValueError("the estimator has no components; fit it with n_components as a number")
    known = [field.name for field in fields(FitArguments) if field.name != "missing"]
    unknown = [repr(name) for name in fit_arguments if name not in known]
    if unknown:
        raise TypeError(f"{', '.join(unknown)} can't be given; fit takes {', '.join(known)}")
    given = FitArguments(missing=estimator.missing, **fit_arguments)
    sides = read_sides(clone(estimator), X, None, background, is_background, given)
    if sides.background is None:
        raise ValueError("there is no background; give the one of the fit")
    if sides.target.n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {sides.target.n_features} features, but the estimator was fitted to "
            f"{estimator.n_features_in_}"
        )
    return sides, contrast
