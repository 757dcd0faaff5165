"""Solve a contrast again for other rows, at the loading that was fitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from cpcapp.contrast.loading import Loading
from cpcapp.contrast.solution import Contrast
from cpcapp.contrast.solve import solve_contrast
from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import FloatArray
from cpcapp.moments.sample import Sample

Sides = tuple[Sample, Sample]


def refit(contrast: Contrast, target: Sample, background: Sample, whole: Sides) -> Contrast:
    """Return the contrast of some of the rows, loaded as that of all rows was."""
    loading = contrast.loading
    if loading is None:
        raise ValueError("a contrast without a background cannot be tried on other background")

    def units(f: Sample, b: Sample) -> FloatArray:
        if contrast.bound is not None:
            return f.variance() + b.variance()
        return b.variance() if loading.weight < 1.0 else np.ones(b.rows.shape[1])

    # With units of all rows the loading would tell of the rows that are left out.
    before, now = units(*whole), units(target, background)
    ratio = np.divide(now, before, out=np.ones_like(now), where=before > 0.0)
    diagonal = loading.diagonal * np.maximum(ratio, 1.0 / len(background))
    unit = np.allclose(np.linalg.norm(contrast.filters, axis=0), 1.0)
    return solve_contrast(
        _moments(target),
        _moments(background),
        contrast.filters.shape[1],
        loading=Loading(loading.weight, diagonal),
        scaling="unit" if unit else "background",
    )


def _moments(sample: Sample) -> Moments:
    weights = None if (sample.weights == 1.0).all() else sample.weights
    return Moments.of(sample.rows, sample_weight=weights)


def match(found: Contrast, contrast: Contrast) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the order and signs that bring components closest to those of a contrast."""
    # FᵀW is the identity if both are the same.
    likeness = contrast.atoms.T @ found.filters
    length = np.linalg.norm(found.filters, axis=0) / np.linalg.norm(contrast.filters, axis=0)
    rows, order = linear_sum_assignment(-np.abs(likeness / np.where(length > 0.0, length, 1.0)))
    return order, np.where(likeness[rows, order] < 0.0, -1.0, 1.0)
