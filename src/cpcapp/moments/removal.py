"""Samples taken away from moments: how much is left, and how exact it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from cpcapp.moments.rows import FloatArray, listed

# A sum of squares is exact to a few rounding units; measured up to 64.
ROUNDING = 64.0 * float(np.finfo(np.float64).eps)
# Six digits of each variance must be left.
_DIGITS = 1e6
# Weights are sums too: a smaller share of them is nothing.
_NO_WEIGHT = 1e-12


def weights_left(everything: Any, removed: Any) -> tuple[float, float]:
    """Return Σw and Σw² of what is left, 0 if that is nothing; less than nothing is an error."""
    weight = everything.total_weight - removed.total_weight
    nothing = _NO_WEIGHT * everything.total_weight
    if weight < -nothing:
        raise ValueError(
            f"can't remove samples of weight {removed.total_weight:g} from a total of "
            f"{everything.total_weight:g}; remove only what was added before"
        )
    if weight <= nothing:
        return 0.0, 0.0
    squared = everything._squared_weight - removed._squared_weight
    if squared <= 0.0:
        raise ValueError("can't remove samples with weights other than they were added with")
    return weight, squared


def require_digits(squares: FloatArray, rounding: FloatArray) -> None:
    """Raise ValueError if sums of squares that are left may be off by more than a millionth."""
    bad = np.flatnonzero(squares < -rounding)
    reason = "would be left with a variance below 0; remove only what was added before"
    if not len(bad):
        bad = np.flatnonzero(squares < _DIGITS * rounding)
        reason = (
            "varies so much less without these samples that fewer than 6 digits of its variance "
            "would be left; add up the samples that remain in new Moments"
        )
    if len(bad):
        raise ValueError(f"feature {listed(bad)} {reason}")


def drop_rows(
    rows: Any, weights: FloatArray | None, removed: Any, removed_weights: FloatArray | None
) -> tuple[Any, FloatArray | None] | None:
    """Return rows and weights without those removed; None if one of them is not there."""
    missing = Counter(_row_keys(removed, removed_weights))
    stays = np.ones(rows.shape[0], dtype=bool)
    for i, key in enumerate(_row_keys(rows, weights)):
        if missing[key] > 0:
            missing[key] -= 1
            stays[i] = False
    if +missing:
        return None
    return rows[np.flatnonzero(stays)], None if weights is None else weights[stays]


def _row_keys(rows: Any, weights: FloatArray | None) -> Iterator[tuple[bytes, bytes, float]]:
    """Yield something that is equal for equal rows of equal weight, dense or sparse."""
    stored = sp.csr_array(rows, copy=True)  # of a dense block without the zeros
    stored.eliminate_zeros()
    places = stored.indices.astype(np.int64)
    for i in range(rows.shape[0]):
        part = slice(stored.indptr[i], stored.indptr[i + 1])
        weight = 1.0 if weights is None else float(weights[i])
        yield places[part].tobytes(), stored.data[part].tobytes(), weight
