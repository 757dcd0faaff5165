"""What moments of NumPy and on a device share: weights, mean, merging, and spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cpcapp.moments.rows import FloatArray

# Deviations below this fraction of the mean are rounding, not variation.
_CONSTANT = 1e3 * np.finfo(np.float64).eps
# Between these a variance, and a covariance of 1e-16 of it, is neither infinite nor 0. They leave
# room for deviations of 1e-150 to 1e150, the range that messages give.
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-304, 1e304


class Additive:
    """Weights and mean of samples; the scatter, and how it is kept, is the subclass's.

    The mean is kept to twice the digits, as ``_mean + _low``: of a mean of 1e12 float64 keeps only
    the fourth decimal, which is too coarse to merge two blocks by.
    """

    def _clear(self) -> None:
        """Set what moments of no samples are; called by the constructor of the subclass."""
        self.total_weight = 0.0
        self._squared_weight = 0.0
        self._mean: Any = None
        self._low: Any = None
        self._scatter: Any = None

    @property
    def n_samples(self) -> int:
        """Number of samples; with weights Kish's effective number, rounded."""
        if self.total_weight == 0.0:
            return 0
        # (Σw)²/Σw², in an order that is exact without weights.
        return max(1, round(self.total_weight / self._squared_weight * self.total_weight))

    @property
    def n_features(self) -> int | None:
        """Number of features, or None before the first chunk."""
        return None if self._mean is None else int(self._mean.shape[0])

    def __add__(self, other: Any) -> Self:
        return self.copy().__iadd__(other) if isinstance(other, type(self)) else NotImplemented

    def __radd__(self, other: object) -> Self:
        return self if other == 0 else NotImplemented  # so that sum() works

    def copy(self) -> Self:
        """Return an independent copy."""
        raise NotImplementedError

    def __iadd__(self, other: Any) -> Self:
        raise NotImplementedError

    def _add_outer(self, weight: float, vector: Any) -> None:
        """Add ``weight · vector vectorᵀ`` to the scatter."""
        raise NotImplementedError

    def _require_width(self, n_features: int | None) -> None:
        if self._mean is not None and n_features != self.n_features:
            raise ValueError(
                f"can't add {n_features} features to moments of {self.n_features} features"
            )

    def _require_samples(self) -> None:
        if self.total_weight == 0.0:
            raise ValueError("the moments hold no samples yet; call update first")

    def _mean_step(self, mean: Any, low: Any = 0.0) -> Any:
        return (mean - self._mean) + (low - self._low)

    def _merge(self, weight: float, squared: float, mean: Any, low: Any) -> None:
        """Count samples of mean ``mean + low`` whose scatter about it has been added already."""
        if self.total_weight == 0.0:
            self.total_weight, self._squared_weight = weight, squared
            self._set_mean(mean, low)
            return
        total = self.total_weight + weight
        step = self._mean_step(mean, low)
        # S_ab = S_a + S_b + (n_a n_b / n_ab) δδᵀ
        self._add_outer(self.total_weight * weight / total, step)
        self._set_mean(self._mean, self._low + step * (weight / total))
        self.total_weight = total
        self._squared_weight += squared

    def _fill(self, scatter: Any, weights: tuple[float, float], mean: Any, low: Any = 0.0) -> Self:
        """Become moments of this scatter, these Σw and Σw², and the mean ``mean + low``."""
        self.total_weight, self._squared_weight = weights
        self._set_mean(mean, low)
        self._scatter = scatter
        return self

    def _set_mean(self, mean: Any, low: Any) -> None:
        """Set the mean to ``mean + low``, and ``_low`` to the digits that do not fit."""
        self._mean = mean + low
        part = self._mean - mean
        self._low = (mean - (self._mean - part)) + (low - part)


@dataclass(frozen=True)
class Spread:
    """How much each feature varies, as `Moments.spread` computes it."""

    variance: FloatArray  # with ddof=0
    constant: NDArray[np.bool_]  # which features do not vary beyond rounding
    # Which are too large or too small to be squared, so that it is not known how much they vary.
    out_of_range: NDArray[np.bool_]


def find_spread(variance: FloatArray, mean: FloatArray) -> Spread:
    """Return what variances say beside the means of their features."""
    size = np.abs(mean)
    constant = np.sqrt(np.maximum(variance, 0.0)) <= _CONSTANT * size
    # Squares of small deviations are 0, as if the feature were constant: then its mean tells.
    lost = (variance < _LEAST_VARIANCE) & np.where(constant, (size > 0) & (size < 1e-150), True)
    return Spread(variance, constant, lost | ~(variance <= _MOST_VARIANCE))
