"""Weights of samples: which are taken."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from cpcapp.moments.rows import FloatArray

# Its square is still a number, and so is that of its inverse.
LEAST_WEIGHT = 1e-100


def check_weights(weights: Any, n_rows: int, name: str = "sample_weight") -> FloatArray | None:
    """Return one weight as float64 for each row; None if there are none."""
    if weights is None:
        return None
    if isinstance(weights, Real):
        weights = np.full(n_rows, float(weights))
    try:
        values = np.array(weights, dtype=np.float64)  # a copy: nobody changes it later
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number for each of {n_rows} rows: {error}") from error
    if values.shape != (n_rows,):
        raise ValueError(f"{name} has shape {values.shape}; it must be ({n_rows},), one a row")
    allowed = (values == 0.0) | ((values >= LEAST_WEIGHT) & (values <= 1.0 / LEAST_WEIGHT))
    bad = np.flatnonzero(~allowed)
    if len(bad):
        raise ValueError(
            f"{name} has {values[bad[0]]} at row {bad[0]}; weights must be finite and at least 0"
            + (f", from {LEAST_WEIGHT:g} to 1e100" if values[bad[0]] > 0.0 else "")
        )
    return values


def drop_zero_weights(rows: Any, weights: FloatArray | None) -> tuple[Any, FloatArray | None]:
    """Return rows, of a torch tensor too, and weights without the rows that count for nothing."""
    if weights is None or weights.all():
        return rows, weights
    kept = np.flatnonzero(weights)
    return rows[kept], weights[kept]
