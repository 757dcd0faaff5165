"""Rank the features of a component: the same way for estimators and for tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def rank_features(weights: Any, names: Sequence[str], count: int) -> list[list[tuple[str, float]]]:
    """Return for each component the features of largest weight, with their weights.

    Parameters
    ----------
    weights : ndarray of shape (n_components, n_features)
    names : sequence of str of length n_features
    count : int
        Features of each component.

    Examples
    --------
    >>> import numpy as np
    >>> rank_features(np.array([[0.1, -2.0, 0.5]]), ["a", "b", "c"], 2)
    [[('b', -2.0), ('c', 0.5)]]
    """
    found = []
    for row in weights:
        order = np.argsort(-np.abs(row), kind="stable")[:count]
        found.append([(str(names[i]), float(row[i])) for i in order])
    return found
