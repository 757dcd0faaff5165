"""A quick comparison of PCA, cPCA and cPCA++ on generated data, for a first look."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from cpcapp.datasets import ContrastData, mice_like, synthetic
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.experiments.measures import cluster_agreement
from cpcapp.moments.moments import FloatArray


@dataclass(frozen=True)
class MethodView:
    """Samples as a method shows them.

    Attributes
    ----------
    method : str
    scores : ndarray of shape (n_samples, 2)
    ari : float
        Adjusted Rand index of k-means on the scores with the true classes.
    seconds : float
        Time of fitting and transforming.
    alpha : float or None
        What cPCA chose.
    """

    method: str
    scores: FloatArray = field(repr=False)
    ari: float
    seconds: float
    alpha: float | None = None


def make_demo_data(seed: int = 0) -> dict[str, ContrastData]:
    """Return two generated pairs of data sets by name.

    Examples
    --------
    >>> {name: data.target.shape for name, data in make_demo_data().items()}
    {'synthetic': (400, 30), 'mice-like': (270, 77)}
    """
    return {
        "synthetic": synthetic(noise_variance=100.0, random_state=seed),
        "mice-like": mice_like(random_state=seed),
    }


def compare_methods(data: ContrastData) -> list[MethodView]:
    """Return the target as PCA, cPCA and cPCA++ show it with default settings.

    Parameters
    ----------
    data : ContrastData

    Returns
    -------
    list of MethodView

    Examples
    --------
    >>> views = compare_methods(make_demo_data()["synthetic"])
    >>> [(view.method, round(view.ari, 1)) for view in views]
    [('PCA', 0.0), ('cPCA', 1.0), ('cPCA++', 1.0)]
    """
    # No p-values are asked for, and calibrating them would be part of the times.
    plus = CPCAPlusPlus(calibrate=False)
    methods = {"PCA": CPCAPlusPlus(), "cPCA": CPCA(alpha="clustering"), "cPCA++": plus}
    views = []
    for name, method in methods.items():
        background = None if name == "PCA" else data.background
        start = time.perf_counter()
        scores = method.fit(data.target, background=background).transform(data.target)
        seconds = time.perf_counter() - start
        alpha = float(method.alpha_) if isinstance(method, CPCA) else None
        views.append(
            MethodView(name, scores, cluster_agreement(scores, data.labels), seconds, alpha)
        )
    return views


def count_significant(data: ContrastData) -> int:
    """Return the number of components above sampling noise.

    Examples
    --------
    >>> count_significant(make_demo_data()["synthetic"])
    2
    """
    estimator = CPCAPlusPlus("auto").fit(data.target, background=data.background)
    return int(estimator.n_components_)
