"""How the background covariance is made safe, and sensible, to divide by.

A rule has a name (`_RULES`), units (`loading_units`), and an amount in them, which takes the
solver: ``_plain_loading`` of `cpcapp.contrast.solve`, or ``_bounded`` for ``"auto"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from cpcapp.moments.moments import FloatArray, Spread

__all__ = ["BOUNDS", "USUAL_BOUND", "Loading", "oas_shrinkage"]

#: From near cPCA to near the plain ratio, and the one taken where outputs show no classes:
#: benchmarks/results/loading_rules.md.
BOUNDS, USUAL_BOUND = (3.0, 12.0, 48.0), 12.0

# Rows whose outputs are looked at for classes: their kurtosis has an error of .05 then.
MOST_ROWS = 10_000
# Copies of a feature are singular however many samples there are: far above rounding, and far below
# what any rule asks for on real data.
LEAST_RIDGE = 1e-9
# Where no contrast exceeds the bound, ρ is this share of n_features / n_background, the size of the
# background's own noise: docs/gallery/gcpca_example.md. On labelled pairs it changes nothing.
NOISE_SHARE = 0.1
_RULES = ("auto", "oas", "none")
# Of other versions: what to use in their place.
_FORMER = {
    "likelihood": "loading='auto', or 'oas' for plain shrinkage",
    "diagonal": "loading='none', or a number such as 1e-6 where the background is singular",
}


@dataclass(frozen=True)
class Loading:
    """How the background covariance was made safe to divide by.

    The loaded background is ``weight · R_b + diag(diagonal)``. Given to `solve_contrast` it is
    used as it is.

    Attributes
    ----------
    weight : float
        1 unless the rule shrinks (``"oas"``), then 1 minus the shrinkage.
    diagonal : ndarray of shape (n_features,)
        All above 0, or all 0.
    """

    weight: float
    diagonal: FloatArray


def loading_units(loading: Any, target: Spread, background: Spread | None) -> FloatArray:
    """Return ``D``, the squared units of the features in which the loading is ``ρD``.

    Raises ``ValueError`` unless ``loading`` is a rule, a number of at least 0 or a `Loading`.
    """
    n_features = len(target.variance)
    if isinstance(loading, Loading):
        diagonal = np.asarray(loading.diagonal)
        if diagonal.shape != (n_features,) or not ((diagonal > 0).all() or not diagonal.any()):
            raise ValueError(
                f"loading.diagonal of shape {diagonal.shape} must have {n_features} values, all "
                "above 0 or all 0"
            )
    elif isinstance(loading, Real) and not isinstance(loading, bool | np.bool_):
        if not (np.isfinite(float(loading)) and float(loading) >= 0.0):
            raise ValueError(f"loading={loading} must be a finite number of at least 0")
    elif isinstance(loading, str) and loading in _FORMER:
        raise ValueError(f"loading={loading!r} is no longer a rule; use {_FORMER[loading]}")
    elif not (isinstance(loading, str) and loading in _RULES):
        names = ", ".join(map(repr, _RULES))
        raise ValueError(f"loading={loading!r} must be one of {names}, or a number")
    if background is None:
        return np.ones(n_features)
    if isinstance(loading, Loading) and loading.diagonal.any():
        return loading.diagonal
    if isinstance(loading, Real):
        return np.full(n_features, background.variance.mean())
    if loading == "oas":
        # No unit to be had from a feature that is constant in the background: the target's.
        units = np.where(background.variance > 0.0, background.variance, target.variance)
    else:
        units = (target.variance + background.variance) / 2.0
    return np.where(units > 0.0, units, 1.0)


def bounds_to_try(n_target: int, n_features: int, rows: Any) -> list[float]:
    """Return the bounds to choose from by rows, or the usual one if there are none.

    None is below the contrast that noise alone gives, ``(1 + √(p/n))²`` (Marchenko and Pastur).

    >>> bounds_to_try(1000, 90, "rows"), bounds_to_try(1000, 90, None)
    ([3.0, 12.0, 48.0], [12.0])
    >>> bounds_to_try(100, 2500, "rows"), bounds_to_try(100, 2500, None)
    ([36.0, 48.0], [36.0])
    """
    of_noise = (1.0 + (n_features / n_target) ** 0.5) ** 2
    tried = (USUAL_BOUND,) if rows is None else BOUNDS
    return sorted(set(np.maximum(tried, of_noise).tolist()))


def choose_bound(
    bounds: Sequence[float], filters: Sequence[FloatArray], rows: Any, weights: Any
) -> int:
    """Return which bound's filters show classes best in rows: those of least kurtosis.

    Two equal classes have an excess kurtosis of -2, a Gaussian 0 with a standard error of
    ``√(24/n)``, an outlier a very large one. Without one two standard errors below 0 it is the
    usual bound, or the next.
    """
    if len(bounds) == 1:
        return 0
    rows = rows if sp.issparse(rows) else np.asarray(rows)
    weights = np.ones(rows.shape[0]) if weights is None else np.asarray(weights, dtype=np.float64)
    if rows.shape[0] > MOST_ROWS:
        chosen = np.random.default_rng(0).choice(rows.shape[0], MOST_ROWS, replace=False)
        chosen.sort()
        rows, weights = rows[chosen], weights[chosen]
    # One pass over the rows for all bounds, whose first two components count.
    outputs = np.asarray(rows @ np.hstack([columns[:, :2] for columns in filters]))
    least = excess_kurtosis(outputs, weights).reshape(len(bounds), -1).min(axis=1)
    n_effective = weights.sum() ** 2 / (weights @ weights)
    if least.min() < -2.0 * (24.0 / n_effective) ** 0.5:
        return int(least.argmin())
    return int(np.searchsorted(bounds, USUAL_BOUND))


def excess_kurtosis(outputs: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return ``m₄/m₂² - 3`` of each column; infinite where what varies is rounding.

    >>> excess_kurtosis(np.array([[1.0], [-1.0], [1.0], [-1.0]]))
    array([-2.])
    """
    squares = (outputs - np.average(outputs, axis=0, weights=weights)) ** 2
    second = np.average(squares, axis=0, weights=weights)
    fourth = np.average(squares**2, axis=0, weights=weights)
    known = second > 1e-9 * second.max()
    return np.where(known, fourth / np.where(known, second, 1.0) ** 2 - 3.0, np.inf)


def oas_shrinkage(trace: float, trace_of_square: float, n_samples: int, n_features: int) -> float:
    """Return the oracle approximating shrinkage ρ of ``S`` to ``(1 - ρ) S + ρ (tr S / p) I``.

    Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance
    estimation", IEEE Transactions on Signal Processing 58(10), 2010. As in scikit-learn, its
    terms in ``2 / n_features`` are left out.
    """
    numerator = trace_of_square + trace**2
    denominator = (n_samples + 1.0) * (trace_of_square - trace**2 / n_features)
    return 1.0 if numerator >= denominator else numerator / denominator
