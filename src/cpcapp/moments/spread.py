"""How much features vary, and which of them do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cpcapp.moments.rows import FloatArray

# Deviations below this fraction of the mean are rounding, not variation.
_CONSTANT = 1e3 * np.finfo(np.float64).eps
# Between these a variance, and a covariance of 1e-16 of it, is neither infinite nor 0. They leave
# room for deviations of 1e-150 to 1e150, the range that messages give.
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-304, 1e304


@dataclass(frozen=True)
class Spread:
    """How much each feature varies, as `Moments.spread` computes it.

    Attributes
    ----------
    variance : ndarray of shape (n_features,)
        With ``ddof=0``.
    constant : ndarray of bool of shape (n_features,)
        Which features do not vary beyond rounding.
    out_of_range : ndarray of bool of shape (n_features,)
        Which features are too large or too small to be squared, so that it is not known how much
        they vary.
    """

    variance: FloatArray
    constant: NDArray[np.bool_]
    out_of_range: NDArray[np.bool_]


def find_spread(variance: FloatArray, mean: FloatArray) -> Spread:
    """Return what variances say beside the means of their features."""
    size = np.abs(mean)
    constant = np.sqrt(np.maximum(variance, 0.0)) <= _CONSTANT * size
    # Squares of small deviations are 0, as if the feature were constant: then its mean tells.
    lost = (variance < _LEAST_VARIANCE) & np.where(constant, (size > 0) & (size < 1e-150), True)
    return Spread(variance, constant, lost | ~(variance <= _MOST_VARIANCE))
