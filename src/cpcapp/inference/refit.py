"""Solve a contrast again for other rows, at the loading that was fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from cpcapp.contrast.solve import solve_contrast
from cpcapp.moments.moments import FloatArray, Moments
from cpcapp.moments.sample import Sample


def refit(contrast: Any, target: Sample, background: Sample) -> Any:
    """Return the contrast of these rows; its loading does not depend on them."""
    filters = contrast.filters
    unit = np.allclose(np.linalg.norm(filters, axis=0), 1.0)
    return solve_contrast(
        _moments(target),
        _moments(background),
        filters.shape[1],
        loading=contrast.loading,
        scaling="unit" if unit else "background",
    )


def match(found: Any, contrast: Any) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the order and signs that bring components closest to those of a contrast."""
    # FᵀW is the identity if both are the same.
    likeness = contrast.atoms.T @ found.filters
    length = np.linalg.norm(found.filters, axis=0) / np.linalg.norm(contrast.filters, axis=0)
    rows, order = linear_sum_assignment(-np.abs(likeness / np.where(length > 0.0, length, 1.0)))
    return order, np.where(likeness[rows, order] < 0.0, -1.0, 1.0)


def _moments(sample: Sample) -> Moments:
    weights = None if (sample.weights == 1.0).all() else sample.weights
    return Moments.of(sample.rows, sample_weight=weights)
