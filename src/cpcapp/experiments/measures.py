"""How well classes come apart in a picture of two components, in numbers.

Components are scaled to variance 1 before anything is measured: how a method scales its axes
says nothing about what it found. Labels judge a result here, and never make one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler


class Measures(NamedTuple):
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
    points, classes = StandardScaler().fit_transform(scores), np.asarray(labels)
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = kind(5, shuffle=True, random_state=seed)
    predicted = cross_val_predict(KNeighborsClassifier(5), points, classes, groups=groups, cv=folds)
    return Measures(
        ari=cluster_agreement(scores, labels, seed=seed),
        silhouette=float(silhouette_score(points, classes)),
        accuracy=float(np.mean(predicted == classes)),
    )


def cluster_agreement(scores: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> float:
    """Return the adjusted Rand index of k-means (ten starts) with the classes."""
    k_means = KMeans(len(np.unique(labels)), n_init=10, random_state=seed)
    clusters = k_means.fit_predict(StandardScaler().fit_transform(scores))
    return float(adjusted_rand_score(labels, clusters))
