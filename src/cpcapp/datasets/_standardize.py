"""Bringing measurements in different units to one scale."""

from __future__ import annotations

import numpy as np

from cpcapp.moments.moments import FloatArray


def standardize_columns(rows: FloatArray) -> FloatArray:
    """Return the rows with each column centred and divided by its standard deviation.

    NaN are ignored and stay. A constant column becomes 0.

    Examples
    --------
    >>> import numpy as np
    >>> standardize_columns(np.array([[1.0, 5.0], [3.0, 5.0]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    n = np.maximum((~np.isnan(rows)).sum(axis=0), 1)
    centred = rows - np.nansum(rows, axis=0) / n
    deviations = np.sqrt(np.nansum(centred**2, axis=0) / n)
    scaled: FloatArray = centred / np.where(deviations > 0.0, deviations, 1.0)
    return scaled
