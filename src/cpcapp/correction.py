"""What is left of samples when the contrast, or the background's main subspace, is removed."""

from __future__ import annotations

from typing import Any

from cpcapp.contrast import solve_contrast
from cpcapp.moments import FloatArray, Moments

__all__ = ["REMOVALS", "main_subspace"]

#: What `correct` can remove.
REMOVALS = ("contrast", "background")


def main_subspace(background: Any, n_components: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean of a background, and its main principal directions.

    Parameters
    ----------
    background : Moments or array-like of shape (n, n_features)
    n_components : int

    Returns
    -------
    mean : ndarray of shape (n_features,)
    directions : ndarray of shape (n_features, n_components)
        Orthonormal columns.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.5]])
    >>> mean, directions = main_subspace(rows, 1)
    >>> mean.round(2), np.abs(directions[:, 0]).argmax()
    (array([2.  , 1.17]), np.int64(0))
    """
    moments = background if isinstance(background, Moments) else Moments.of(background)
    directions = solve_contrast(moments, None, n_components).filters
    assert moments.mean is not None
    return moments.mean, directions
