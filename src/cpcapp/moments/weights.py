"""Weights of samples: what is taken, and how they go with chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NOTHING = object()
# Its square is still a number, and so is that of its inverse.
LEAST_WEIGHT = 1e-100


def check_weights(
    weights: Any, n_rows: int, name: str = "sample_weight"
) -> NDArray[np.float64] | None:
    """Return weights as one float64 for each row, or None if there are none.

    Parameters
    ----------
    weights : array-like of shape (n_rows,), float or None
        A number is the weight of every row.
    n_rows : int
    name : str
        Of the parameter, for messages.

    Examples
    --------
    >>> check_weights([1, 0, 2], 3)
    array([1., 0., 2.])
    >>> check_weights([1, -1], 2)
    Traceback (most recent call last):
    ValueError: sample_weight has -1.0 at row 1; weights must be finite and at least 0
    """
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


def drop_zero_weights(
    rows: Any, weights: Any, name: str = "sample_weight"
) -> tuple[Any, NDArray[np.float64] | None]:
    """Return rows and their checked weights without the rows that count for nothing.

    Examples
    --------
    >>> drop_zero_weights(np.array([[1.0], [2.0]]), [0, 3])
    (array([[2.]]), array([3.]))
    """
    values = check_weights(weights, rows.shape[0], name)
    if values is None or (values > 0.0).all():
        return rows, values
    kept = np.flatnonzero(values)
    return rows[kept], values[kept]


def weighted_chunks(chunks: Iterable[Any], sample_weight: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each chunk with its weights, or with None.

    Parameters
    ----------
    chunks : iterable
    sample_weight : array-like, float, an iterable of those, or None
        One for each chunk, or a number for all.

    Examples
    --------
    >>> list(weighted_chunks(["a", "b"], iter([[1], [2]])))
    [('a', [1]), ('b', [2])]
    """
    if sample_weight is None or isinstance(sample_weight, Real):
        for chunk in chunks:
            yield chunk, sample_weight
        return
    for chunk, weights in zip_longest(chunks, sample_weight, fillvalue=_NOTHING):
        if chunk is _NOTHING or weights is _NOTHING:
            raise ValueError("sample_weight must give weights for each chunk, as many as chunks")
        yield chunk, weights
