"""What is left when samples are taken away from moments, and how exact that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# A sum of squares is exact to a few rounding units; measured up to 64.
_ROUNDING = 64.0 * float(np.finfo(np.float64).eps)
# Six digits of each variance must be left.
_DIGITS = 1e6
# Weights are sums too: a smaller share of them is nothing.
_NO_WEIGHT = 1e-12
_NAMED = 5


@dataclass(frozen=True)
class LeftOver:
    """How much weight is left: ``Σw`` and ``Σw²``."""

    weight: float
    squared: float
    is_empty: bool
    is_single: bool

    @classmethod
    def of(cls, all_samples: Any, removed: Any) -> Self:
        """Return what is left of moments, or raise ``ValueError`` if that is less than nothing."""
        weight = all_samples.total_weight - removed.total_weight
        squared = all_samples._squared_weight - removed._squared_weight
        nothing = _NO_WEIGHT * all_samples.total_weight
        if weight < -nothing:
            raise ValueError(
                f"can't remove samples of weight {removed.total_weight:g} from a total of "
                f"{all_samples.total_weight:g}; remove only what was added before"
            )
        is_empty = weight <= nothing
        if not is_empty and squared <= 0.0:
            raise ValueError("can't remove samples with weights other than they were added with")
        return cls(weight, squared, is_empty, is_single=weight == squared == 1.0)


def removal_rounding(before: FloatArray | None, squares: FloatArray) -> FloatArray:
    """Return how far sums of squares may be off after one more removal.

    Examples
    --------
    >>> bool(removal_rounding(None, np.array([1e6]))[0] < 1e-7)
    True
    """
    rounding = _ROUNDING * squares
    return rounding if before is None else before + rounding


def require_digits(squares: FloatArray, rounding: FloatArray) -> None:
    """Raise ``ValueError`` if sums of squares that are left are mostly rounding.

    Parameters
    ----------
    squares : ndarray of shape (n_features,)
        What is left.
    rounding : ndarray of shape (n_features,)
        How far off that may be; 0 for features that need not be looked at.
    """
    if (squares < -rounding).any():
        bad = np.flatnonzero(squares < -rounding)
        reason = "would be left with a variance below 0; remove only what was added before"
    else:
        bad = np.flatnonzero(squares < _DIGITS * rounding)
        reason = (
            "varies so much less without these samples that fewer than 6 digits of its variance "
            "would be left; add up the samples that remain in new Moments"
        )
    if len(bad):
        more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        raise ValueError(f"feature {', '.join(map(str, bad[:_NAMED]))}{more} {reason}")


def drop_rows(
    rows: Sequence[Any],
    weights: Sequence[FloatArray | None],
    removed: Sequence[Any],
    removed_weights: Sequence[FloatArray | None],
) -> list[tuple[Any, FloatArray | None]] | None:
    """Return blocks of rows and weights without those removed, or None if one is not there.

    Examples
    --------
    >>> a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0]])
    >>> drop_rows([a], [None], [b], [None])
    [(array([[1., 2.]]), None)]
    >>> drop_rows([a], [None], [b + 1], [None]) is None
    True
    """
    missing: Counter[tuple[bytes, ...]] = Counter()
    for block, its in zip(removed, removed_weights, strict=True):
        missing.update(_keys(block, its))
    left = []
    for block, its in zip(rows, weights, strict=True):
        stays = np.ones(block.shape[0], dtype=bool)
        for i, key in enumerate(_keys(block, its)):
            if missing[key] > 0:
                missing[key] -= 1
                stays[i] = False
        if stays.all():
            left.append((block, its))
        elif stays.any():
            left.append((block[np.flatnonzero(stays)], None if its is None else its[stays]))
    return None if +missing else left


def _keys(block: Any, weights: FloatArray | None) -> Iterator[tuple[bytes, ...]]:
    """Yield something that is equal for equal rows of equal weight, dense or sparse."""
    its = np.ones(block.shape[0]) if weights is None else weights
    for i in range(block.shape[0]):
        row = block[[i]]
        if sp.issparse(row):
            stored = row.data != 0.0
            places, values = row.indices[stored].astype(np.int64), row.data[stored]
        else:
            places = np.flatnonzero(row[0]).astype(np.int64)
            values = np.ascontiguousarray(row[0, places])
        yield places.tobytes(), values.tobytes(), its[i].tobytes()
