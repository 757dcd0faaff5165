"""How well classes come apart in a picture of two components, in numbers.

Components are scaled to variance 1 before anything is measured: how a method scales its axes
says nothing about what it found. Labels judge a result here, and never make one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

from cpcapp.moments.moments import FloatArray

_FOLDS = 5
_NEIGHBOURS = 5
ROUNDING = 1e-9


@dataclass(frozen=True)
class Measures:
    """How well classes come apart.

    Attributes
    ----------
    ari : float
        Adjusted Rand index of k-means with the classes: 1 the same, 0 as good as chance.
    silhouette : float
        Mean over samples of how much nearer the own class is than the next: 1 far apart, 0
        touching, below 0 mixed.
    accuracy : float
        Share of samples whose class their 5 nearest neighbours tell, cross-validated.
    """

    ari: float
    silhouette: float
    accuracy: float


def measure(
    scores: ArrayLike, labels: ArrayLike, groups: ArrayLike | None = None, *, seed: int = 0
) -> Measures:
    """Measure how well classes come apart, in three ways.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_components)
    labels : array-like of shape (n_samples,)
    groups : array-like of shape (n_samples,), optional
        Rows of one individual, which are kept in one fold.
    seed : int, default=0

    Returns
    -------
    Measures

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat([0, 1], 20)
    >>> scores = np.random.default_rng(0).normal(size=(40, 2)) + 9 * labels[:, None]
    >>> found = measure(scores, labels)
    >>> found.ari, found.accuracy
    (1.0, 1.0)
    """
    return Measures(
        ari=cluster_agreement(scores, labels, seed=seed),
        silhouette=float(silhouette_score(unit_variance(scores), np.asarray(labels))),
        accuracy=neighbour_accuracy(scores, labels, groups, seed=seed),
    )


def unit_variance(scores: ArrayLike) -> FloatArray:
    """Centre components and scale each to variance 1; one that is constant becomes 0.

    So does one that is constant to rounding: against a huge α cPCA finds directions in which
    nothing varies at all, and what is left there depends on the machine.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_components)

    Returns
    -------
    ndarray of shape (n_samples, n_components)

    Examples
    --------
    >>> unit_variance([[0.0, 5.0], [4.0, 5.0]])
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    points = np.asarray(scores, dtype=np.float64)
    deviation = points.std(axis=0)
    constant = deviation <= ROUNDING * deviation.max()
    centred = (points - points.mean(axis=0)) / np.where(constant, 1.0, deviation)
    return np.asarray(np.where(constant, 0.0, centred))


def cluster_agreement(scores: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> float:
    """Return the adjusted Rand index of k-means (ten starts) with the classes.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_components)
    labels : array-like of shape (n_samples,)
    seed : int, default=0

    Returns
    -------
    float

    Examples
    --------
    >>> cluster_agreement([[0.0], [0.1], [9.0], [9.1]], [0, 0, 1, 1])
    1.0
    """
    n_classes = len(np.unique(labels))
    clusters = KMeans(n_classes, n_init=10, random_state=seed).fit_predict(unit_variance(scores))
    return float(adjusted_rand_score(labels, clusters))


def neighbour_accuracy(
    scores: ArrayLike, labels: ArrayLike, groups: ArrayLike | None = None, *, seed: int = 0
) -> float:
    """Return how often the 5 nearest neighbours tell the class, in 5-fold cross-validation.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_components)
    labels : array-like of shape (n_samples,)
    groups : array-like of shape (n_samples,), optional
        Rows with one number are never in two folds: otherwise the nearest neighbour of a
        measurement is another measurement of the same individual, and the class is known.
    seed : int, default=0

    Returns
    -------
    float
        In [0, 1]: samples told right over all samples.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat([0, 1], 10)
    >>> neighbour_accuracy(np.c_[labels, labels], labels)
    1.0
    """
    points, classes = unit_variance(scores), np.asarray(labels)
    right = np.zeros(len(points), dtype=bool)
    for train, test in folds(classes, groups, seed=seed):
        near = KNeighborsClassifier(min(_NEIGHBOURS, len(train)))
        right[test] = near.fit(points[train], classes[train]).predict(points[test]) == classes[test]
    return float(right.mean())


def folds(
    labels: ArrayLike, groups: ArrayLike | None = None, *, seed: int = 0
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield the rows to learn from and to test on, five times, with all classes in each.

    With fewer than five samples (or individuals) of a class there are that many folds.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
    groups : array-like of shape (n_samples,), optional
        Rows with one number stay together.
    seed : int, default=0

    Yields
    ------
    train, test : ndarray of int

    Examples
    --------
    >>> [sorted(test.tolist()) for _, test in folds([0, 0, 1, 1], groups=[7, 7, 8, 9])]
    Traceback (most recent call last):
    ...
    ValueError: class 0 has 1 individual; at least 2 are needed, to learn and to test
    """
    classes = np.asarray(labels)
    own = np.arange(len(classes)) if groups is None else np.asarray(groups)
    for name in np.unique(classes):
        count = len(np.unique(own[classes == name]))
        if count < 2:
            raise ValueError(
                f"class {name} has {count} individual; at least 2 are needed, to learn and to test"
            )
    n_folds = min(_FOLDS, *(len(np.unique(own[classes == c])) for c in np.unique(classes)))
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    rows = np.zeros((len(classes), 1))
    yield from kind(n_folds, shuffle=True, random_state=seed).split(rows, classes, groups)
