"""PCA, cPCA over a sweep, t-SNE and cPCA++ on one pair of data sets, pictured and measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cpcapp.contrast.solve import subspace_overlap
from cpcapp.datasets import ContrastData
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.experiments._results import Progress, Settings
from cpcapp.experiments.measures import ROUNDING, Measures, measure
from cpcapp.moments.moments import FloatArray, Moments

_QUICK_TSNE_ROWS = 300
# Of the 40 α that CPCA sweeps by default; 2.7, the paper's for its synthetic data, is one of them.
_QUICK_ALPHAS = np.concatenate([[0.0], np.logspace(-1, 3, 40)[2::4]])
# The sizes of subspace whose overlap is given: what is drawn, a few more, and the paper's.
_OVERLAP_SIZES = (2, 10, 50)


@dataclass(frozen=True)
class View:
    """Samples as a method shows them.

    ``rows`` are the rows of the target that it shows, all of them but for a quick t-SNE.
    """

    method: str
    scores: FloatArray
    rows: NDArray[np.intp]
    measures: Measures
    eigenvalues: FloatArray | None = None
    alpha: float | None = None


@dataclass(frozen=True)
class Comparison:
    """All methods on one pair of data sets.

    Attributes
    ----------
    sweep : list of View
        cPCA at each α, ascending; the first is α = 0, which is PCA.
    automatic : int
        Which of them ``CPCA`` takes by itself.
    offered : list of int
        Which of them it offers to look at.
    best : int
        Which of them has the largest ARI. Nobody knows it without the labels.
    """

    data: ContrastData
    pca: View
    sweep: list[View]
    automatic: int
    offered: list[int]
    best: int
    tsne: View
    cpca_plus_plus: View
    overlaps: list[dict[str, float]]

    def nearest(self, alpha: float) -> int:
        """Return which of the sweep is nearest to an α."""
        return int(np.argmin([abs((view.alpha or 0.0) - alpha) for view in self.sweep]))

    def numbers(self) -> dict[str, Any]:
        """Return all figures, for programs."""
        chosen, best = self.sweep[self.automatic], self.sweep[self.best]
        return {
            "n_target": len(self.data.target),
            "n_background": len(self.data.background),
            "n_features": self.data.target.shape[1],
            "n_individuals": None if self.data.groups is None else len(np.unique(self.data.groups)),
            "PCA": _figures(self.pca),
            "cPCA, automatic": _figures(chosen),
            "cPCA, best by labels": _figures(best),
            "t-SNE": _figures(self.tsne),
            "cPCA++": _figures(self.cpca_plus_plus),
            "cPCA sweep": [_figures(view) for view in self.sweep],
            "cPCA offered": [self.sweep[i].alpha for i in self.offered],
            "subspace overlap": self.overlaps,
        }


def compare(data: ContrastData, settings: Settings, progress: Progress) -> Comparison:
    """Run all methods on a pair of data sets.

    Parameters
    ----------
    data : ContrastData
    settings : Settings
    progress : callable
        Called with the share done.

    Returns
    -------
    Comparison
    """
    X, B = data.target, data.background
    # Threads add up in whatever order they end; one thread, one result.
    with threadpool_limits(1):
        plus = CPCAPlusPlus().fit(X, background=B)
        plus_view = _view(data, settings, "cPCA++", plus.transform(X), plus.eigenvalues_)
        pca = CPCAPlusPlus().fit(X)
        pca_view = _view(data, settings, "PCA", pca.transform(X), pca.eigenvalues_)
        progress(0.05)
        cpca = cpca_with_sweep(settings).fit(X, background=B)
        progress(0.1)
        sweep = []
        for done, alpha in enumerate(cpca.alphas_, start=1):
            sweep.append(_view_at(cpca, float(alpha), data, settings))
            progress(0.1 + 0.4 * done / len(cpca.alphas_))
        tsne = _tsne(data, settings)
        progress(1.0)
    alphas = cpca.alphas_.tolist()
    return Comparison(
        data,
        pca=pca_view,
        sweep=sweep,
        automatic=alphas.index(cpca.alpha_),
        offered=[alphas.index(alpha) for alpha in cpca.selected_alphas_],
        best=_best(sweep),
        tsne=tsne,
        cpca_plus_plus=plus_view,
        overlaps=_overlaps(data),
    )


def cpca_with_sweep(settings: Settings, n_components: int = 2) -> CPCA:
    """Return cPCA with a sweep: the default one, or a quarter of it in a quick run."""
    alphas = _QUICK_ALPHAS if settings.quick else None
    return CPCA(n_components, alpha="clustering", alphas=alphas, random_state=settings.seed)


def _best(sweep: list[View]) -> int:
    found = [(view.measures.ari, view.measures.silhouette) for view in sweep]
    return found.index(max(found))


def _view(
    data: ContrastData,
    settings: Settings,
    method: str,
    scores: FloatArray,
    eigenvalues: FloatArray | None = None,
    *,
    rows: NDArray[np.intp] | None = None,
    alpha: float | None = None,
) -> View:
    rows = np.arange(len(data.target)) if rows is None else rows
    groups = None if data.groups is None else data.groups[rows]
    found = measure(scores, data.labels[rows], groups, seed=settings.seed)
    return View(method, scores, rows, found, eigenvalues, alpha)


def _view_at(cpca: CPCA, alpha: float, data: ContrastData, settings: Settings) -> View:
    scores, back = (cpca.transform_at(side, alpha) for side in (data.target, data.background))
    # v an eigenvector of unit length: λ = vᵀ(R_f - αR_b)v.
    values = scores.var(axis=0) - alpha * back.var(axis=0)
    # Directions in which neither set varies: what they show is rounding.
    flat = scores.std(axis=0) <= ROUNDING * data.target.std()
    scores, values = np.where(flat, 0.0, scores), np.where(flat, 0.0, values)
    return _view(data, settings, "cPCA", scores, values, alpha=alpha)


def _tsne(data: ContrastData, settings: Settings) -> View:
    """Embed the target alone, as the paper does; in a quick run some of its rows."""
    n = len(data.target)
    rows = np.arange(n)
    if settings.quick and n > _QUICK_TSNE_ROWS:
        rng = np.random.default_rng(settings.seed)
        rows = np.sort(rng.choice(n, _QUICK_TSNE_ROWS, replace=False))
    model = TSNE(
        perplexity=min(30.0, (len(rows) - 1) / 3.0),
        max_iter=300 if settings.quick else 1000,
        random_state=settings.seed,
    )
    scores = np.asarray(model.fit_transform(data.target[rows]), dtype=np.float64)
    return _view(data, settings, "t-SNE", scores, rows=rows)


def _overlaps(data: ContrastData) -> list[dict[str, float]]:
    target, background = Moments.of(data.target), Moments.of(data.background)
    n_features = data.target.shape[1]
    most = min(n_features, len(data.target) - 1, len(data.background) - 1)
    return [
        {"k": k, "overlap": subspace_overlap(target, background, k), "unrelated": k / n_features}
        for k in _OVERLAP_SIZES
        if k < most
    ]


def _figures(view: View) -> dict[str, Any]:
    figures: dict[str, Any] = dict(asdict(view.measures))
    figures["n_shown"] = len(view.rows)
    if view.alpha is not None:
        figures["alpha"] = view.alpha
    if view.eigenvalues is not None:
        figures["eigenvalues"] = view.eigenvalues.tolist()
    return figures
