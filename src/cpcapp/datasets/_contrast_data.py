"""What every data set of a contrast returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cpcapp.moments.rows import FloatArray


@dataclass(frozen=True)
class ContrastData:
    """A target set with classes to find, and a background set.

    Attributes
    ----------
    target : ndarray of shape (n_target, n_features)
    background : ndarray of shape (n_background, n_features)
    labels : ndarray of shape (n_target,)
        Classes within the target, for judging a result, never for finding it.
    feature_names : list of str
    label_names : list of str
        What each class is called: ``label_names[labels[i]]``. Empty where a class has no name.
    groups : ndarray of shape (n_target,) or None
        Rows with one number belong to one individual and must not be torn apart when a result is
        cross-validated. None where each row stands for itself.
    clean : ndarray of shape (n_target, n_features) or None
        The part of each target row that is special to it, without what it shares with the
        background, where that is known.
    source : str
        Where the numbers come from, in a sentence.
    """

    target: FloatArray
    background: FloatArray
    labels: NDArray[np.intp]
    feature_names: list[str]
    label_names: list[str] = field(default_factory=list)
    groups: NDArray[np.intp] | None = None
    clean: FloatArray | None = None
    source: str = ""


def standardize_columns(rows: FloatArray) -> FloatArray:
    """Centre columns and divide them by their deviations; NaN stay, constant columns become 0."""
    from sklearn.preprocessing import StandardScaler  # here, as it takes long to import

    scaled: FloatArray = StandardScaler().fit_transform(rows)
    return scaled


def check_classes(name: str, values: Sequence[int], largest: int) -> list[int]:
    """Return the numbers of classes as integers, or raise ``ValueError``."""
    classes = [int(value) for value in values]
    if not classes or len(set(classes)) < len(classes) or not set(classes) <= {*range(largest + 1)}:
        raise ValueError(f"{name}={tuple(values)} must be different numbers from 0 to {largest}")
    return classes
