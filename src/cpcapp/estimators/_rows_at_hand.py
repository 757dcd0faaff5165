"""What needs rows and not only moments: counting by permutation, and calibrated p-values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.contrast.solve import Contrast, solve_contrast
from cpcapp.inference.permutation import (
    PermutationTest,
    RowSubset,
    as_matrix,
    check_groups,
    count_loaded,
    kept_rows,
    permutation_test,
)
from cpcapp.inference.power import Calibration, cross_fit, is_cheap
from cpcapp.moments.moments import Moments


@dataclass(frozen=True)
class RowsAtHand:
    """Rows of target and background, as far as they were given as rows, and their groups."""

    target: Any
    background: Any
    groups: NDArray[np.intp] | None = None
    background_groups: NDArray[np.intp] | None = None

    @classmethod
    def of(
        cls, X: Any, background: Any, is_background: Any, groups: Any, background_groups: Any
    ) -> RowsAtHand:
        """Return what `fit` was given, already checked but for the groups."""
        if is_background is not None:
            if background_groups is not None:
                raise ValueError(
                    "with is_background the groups of all rows of X are given in groups, and "
                    "background_groups must be None"
                )
            mask = np.asarray(is_background, dtype=bool)
            index = np.flatnonzero(~mask), np.flatnonzero(mask)
            labels: tuple[Any, Any] = (None, None)
            if groups is not None:
                given = np.asarray(groups)
                if given.shape != mask.shape:
                    raise ValueError(
                        f"groups has shape {given.shape}; it must be {mask.shape}, one per row"
                    )
                labels = given[index[0]], given[index[1]]
            target: Any = RowSubset(X, index[0])
            other: Any = RowSubset(X, index[1])
            checked = check_groups(*labels, len(index[0]), len(index[1]))
        else:
            target = as_matrix(X)
            no_rows = background is None or isinstance(background, Moments)
            if no_rows and not (groups is None and background_groups is None):
                raise ValueError("groups need the rows of a background, not None or Moments")
            other = None if no_rows else as_matrix(background)
            n_background = 0 if other is None else other.shape[0]
            checked = check_groups(groups, background_groups, target.shape[0], n_background)
        return cls(target, other, *(checked or (None, None)))

    @classmethod
    def kept_by(cls, target: Moments, background: Moments | None) -> RowsAtHand | None:
        """Return the rows that moments of few samples still hold, or None."""
        kept = kept_rows(target), None if background is None else kept_rows(background)
        return None if kept[0] is None or kept[1] is None else cls(*kept)


def count_by_permutation(
    estimator: Any, target: Moments, background: Moments, rows: RowsAtHand
) -> tuple[int, PermutationTest]:
    """Return how many components to keep, and the test that says so."""
    test = permutation_test(
        rows.target,
        rows.background,
        groups=rows.groups,
        background_groups=rows.background_groups,
        false_alarm_rate=estimator.false_alarm_rate,
        loading=estimator.loading,
        random_state=estimator.random_state,
    )
    return count_loaded(test, target, background, loading=estimator.loading), test


def wants_calibration(
    estimator: Any,
    target: Moments,
    background: Moments | None,
    rows: RowsAtHand | None,
) -> bool:
    """Return whether p-values are to be calibrated, and can be."""
    wanted = estimator.calibrate
    if wanted not in (True, False, "auto"):
        raise ValueError(f"calibrate={wanted!r} must be True, False or 'auto'")
    if background is None or rows is None or rows.background is None:
        return False
    return is_cheap(target, background) if wanted == "auto" else bool(wanted)


def calibrate(
    estimator: Any, target: Moments, background: Moments, contrast: Contrast, rows: RowsAtHand
) -> Calibration | None:
    """Return the powers of background rows that were held out, or None if there are too few."""
    k = len(contrast.eigenvalues)
    if k == 0:
        return None
    return cross_fit(
        rows.background,
        rows.background_groups,
        target,
        background,
        contrast,
        solve=lambda left: solve_contrast(
            target,
            left,
            k,
            loading=estimator.loading,
            solver=estimator.solver,
            scaling=estimator.scaling,
        ),
        loading=estimator.loading,
        scaling=estimator.scaling,
        random_state=estimator.random_state,
    )
