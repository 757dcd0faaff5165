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
    filters = contrast.filters
    unit = np.allclose(np.linalg.norm(filters, axis=0), 1.0)
    # With units of all rows the loading would tell of the rows that are left out.
    before, now = (_units(contrast, *sides) for sides in (whole, (target, background)))
    ratio = np.where(before > 0.0, now / np.where(before > 0.0, before, 1.0), 1.0)
    loading = _loading(contrast)
    diagonal = loading.diagonal * np.maximum(ratio, 1.0 / len(background))
    return solve_contrast(
        _moments(target),
        _moments(background),
        filters.shape[1],
        loading=Loading(loading.weight, diagonal),
        scaling="unit" if unit else "background",
    )


def _units(contrast: Contrast, target: Sample, background: Sample) -> FloatArray:
    """Return the units of a loading: variances of both sets, of the background, or none."""
    if contrast.bound is not None:
        return target.variance() + background.variance()
    if _loading(contrast).weight < 1.0:
        return background.variance()
    return np.ones(target.rows.shape[1])


def _loading(contrast: Contrast) -> Loading:
    if contrast.loading is None:
        raise ValueError("a contrast without a background cannot be tried on other background")
    return contrast.loading


def match(found: Contrast, contrast: Contrast) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the order and signs that bring components closest to those of a contrast."""
    # FᵀW is the identity if both are the same.
    likeness = contrast.atoms.T @ found.filters
    length = np.linalg.norm(found.filters, axis=0) / np.linalg.norm(contrast.filters, axis=0)
    rows, order = linear_sum_assignment(-np.abs(likeness / np.where(length > 0.0, length, 1.0)))
    return order, np.where(likeness[rows, order] < 0.0, -1.0, 1.0)


def _moments(sample: Sample) -> Moments:
    weights = None if (sample.weights == 1.0).all() else sample.weights
    return Moments.of(sample.rows, sample_weight=weights)
