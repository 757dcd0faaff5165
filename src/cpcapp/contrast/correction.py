"""What is left of samples when the contrast, or the background's main subspace, is removed."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpcapp.contrast.solve import solve_contrast
from cpcapp.moments.moments import FloatArray, Moments

__all__ = ["REMOVALS", "remove_main_subspace"]

#: What `correct` can remove.
REMOVALS = ("contrast", "background")


def remove_main_subspace(rows: Any, background: Any, n_components: int) -> FloatArray:
    """Return rows without their part in the main subspace of a background.

    Parameters
    ----------
    rows : ndarray of shape (n, n_features)
        NaN counts as the background's mean, and stays NaN.
    background : Moments or array-like of shape (n_background, n_features)
    n_components : int
        Principal directions ``U`` of the background.

    Returns
    -------
    ndarray of shape (n, n_features)
        ``x - UUᵀ(x - mean)``, with the mean of the background.

    Examples
    --------
    >>> background = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    >>> remove_main_subspace(np.array([[7.0, 5.0]]), background, 1)
    array([[2., 5.]])
    """
    moments = background if isinstance(background, Moments) else Moments.of(background)
    if moments.mean is None or moments.n_features != rows.shape[1]:
        raise ValueError(f"background has {moments.n_features} features, but X has {rows.shape[1]}")
    directions = solve_contrast(moments, None, n_components).filters
    centred = np.nan_to_num(rows - moments.mean, nan=0.0)
    return np.asarray(rows - (centred @ directions) @ directions.T)
