"""How well classes come apart in a picture of two components, in numbers.

Components are scaled to variance 1 before anything is measured: how a method scales its axes
says nothing about what it found. Labels judge a result here, and never make one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from cpcapp.moments.rows import FloatArray

ROUNDING = 1e-9


@dataclass(frozen=True)
class Measures:
    """How well classes come apart: each is 1 where they do.

    ``ari`` is the adjusted Rand index of k-means with the classes (0: as good as chance),
    ``silhouette`` how much nearer the own class is than the next (below 0: mixed), ``accuracy``
    the share of samples whose class their 5 nearest neighbours tell, cross-validated.
    """

    ari: float
    silhouette: float
    accuracy: float


def measure(
    scores: ArrayLike, labels: ArrayLike, groups: ArrayLike | None = None, *, seed: int = 0
) -> Measures:
    """Measure how well classes come apart; rows of one group are kept in one fold."""
    points, classes = unit_variance(scores), np.asarray(labels)
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = kind(5, shuffle=True, random_state=seed)
    told = cross_val_predict(KNeighborsClassifier(5), points, classes, groups=groups, cv=folds)
    return Measures(
        ari=cluster_agreement(scores, labels, seed=seed),
        silhouette=float(silhouette_score(points, classes)),
        accuracy=float(np.mean(told == classes)),
    )


def cluster_agreement(scores: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> float:
    """Return the adjusted Rand index of k-means (ten starts) with the classes."""
    n_classes = len(np.unique(labels))
    clusters = KMeans(n_classes, n_init=10, random_state=seed).fit_predict(unit_variance(scores))
    return float(adjusted_rand_score(labels, clusters))


def unit_variance(scores: ArrayLike) -> FloatArray:
    """Centre components and scale each to variance 1; one that is constant becomes 0.

    So does one that is constant to rounding: against a huge α cPCA finds directions in which
    nothing varies at all, and what is left there depends on the machine.
    """
    points = np.asarray(scores, dtype=np.float64)
    deviation = points.std(axis=0)
    constant = deviation <= ROUNDING * deviation.max()
    centred = (points - points.mean(axis=0)) / np.where(constant, 1.0, deviation)
    return np.asarray(np.where(constant, 0.0, centred))
