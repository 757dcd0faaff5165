"""A quick comparison of PCA, cPCA and cPCA++ on generated data, for a first look."""

from __future__ import annotations

import time
from typing import NamedTuple

from cpcapp.datasets import ContrastData, mice_like, synthetic
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.experiments.measures import cluster_agreement
from cpcapp.moments.rows import FloatArray


class MethodView(NamedTuple):
    """Samples as a method shows them, the ARI of their clusters with the true classes, the time."""

    method: str
    scores: FloatArray
    ari: float
    seconds: float
    alpha: float | None = None


def make_demo_data(seed: int = 0) -> dict[str, ContrastData]:
    """Return two generated pairs of data sets by name."""
    return {
        "synthetic": synthetic(noise_variance=100.0, random_state=seed),
        "mice-like": mice_like(random_state=seed),
    }


def compare_methods(data: ContrastData) -> list[MethodView]:
    """Return the target as PCA, cPCA and cPCA++ show it with default settings."""
    views = []
    for name, method in (("PCA", CPCAPlusPlus()), ("cPCA", CPCA()), ("cPCA++", CPCAPlusPlus())):
        background = None if name == "PCA" else data.background
        start = time.perf_counter()
        scores = method.fit(data.target, background=background).transform(data.target)
        seconds = time.perf_counter() - start
        alpha = float(method.alpha_) if isinstance(method, CPCA) else None
        ari = cluster_agreement(scores, data.labels)
        views.append(MethodView(name, scores, ari, seconds, alpha))
    return views


def count_significant(data: ContrastData) -> int:
    """Return the number of components above sampling noise."""
    estimator = CPCAPlusPlus("auto").fit(data.target, background=data.background)
    return int(estimator.n_components_)
