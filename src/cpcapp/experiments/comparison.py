"""PCA, cPCA over a sweep, t-SNE and cPCA++ on one pair of data sets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from cpcapp.contrast.difference import solve_difference
from cpcapp.datasets import ContrastData
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.experiments.figures import DRAWN, methods_figure, png_of, sweep_figure
from cpcapp.experiments.measures import measure
from cpcapp.experiments.results import (
    Picture,
    Progress,
    Result,
    Settings,
    Table,
    result_of,
    title_of,
)
from cpcapp.moments import Moments
from cpcapp.moments.rows import FloatArray

# As cPCA's authors sweep it (words.toml says how many); 2.7, the paper's α, is a quick one too.
ALPHAS = np.concatenate([[0.0], np.logspace(-1, 3, 40)])
_QUICK_ALPHAS = ALPHAS[[0, *range(3, 41, 4)]]
_QUICK_ROWS = 1500
_QUICK_TSNE_ROWS = 300

_MEASURES_NOTE = (
    "ARI: agreement of k-means clusters with the classes, 1 is perfect and 0 is chance. "
    "Silhouette: 1 if classes lie far apart, 0 if they touch, below 0 if they are mixed. Accuracy: "
    "how often the 5 nearest neighbours tell the class, in 5-fold cross-validation{kept}. "
    "Components are scaled to variance 1 first. Rows marked * used the labels that are to be "
    "found: nobody could have picked that α without them."
)


def subsample(data: ContrastData, settings: Settings) -> ContrastData:
    """Return some rows of either side, in their order, for a quick run; else all."""
    if not settings.quick:
        return data
    rng = np.random.default_rng(settings.seed)
    target, background = (
        np.sort(rng.permutation(len(side))[:_QUICK_ROWS]) for side in (data.target, data.background)
    )
    return replace(
        data,
        target=data.target[target],
        background=data.background[background],
        labels=data.labels[target],
        groups=None if data.groups is None else data.groups[target],
    )


def describe_data(data: ContrastData) -> str:
    """Say where data come from and how many they are."""
    n, m = data.target.shape
    return (
        f"{data.source}. {n:,} target and {len(data.background):,} background rows of {m} features."
    )


class View(NamedTuple):
    """Samples as a method shows them: the scores of some rows of the target, and all figures."""

    method: str
    scores: FloatArray
    rows: NDArray[np.intp]
    numbers: dict[str, Any]

    @property
    def ari(self) -> float:
        """The adjusted Rand index."""
        return float(self.numbers["ari"])

    @property
    def alpha(self) -> float:
        """The α of cPCA."""
        return float(self.numbers["alpha"])


@dataclass(frozen=True)
class Comparison:
    """All methods on one pair of data sets; the sweep of cPCA begins with α = 0, which is PCA."""

    data: ContrastData
    pca: View
    cpca: View
    tsne: View
    cpca_plus_plus: View
    sweep: list[View]

    @property
    def best(self) -> View:
        """Of the sweep, the view with the largest ARI; nobody knows it without the labels."""
        return max(self.sweep, key=lambda view: (view.ari, view.numbers["silhouette"]))

    @property
    def class_names(self) -> list[str]:
        """What the classes are called, in the order of their numbers."""
        n_classes = int(self.data.labels.max()) + 1
        return self.data.label_names or [f"class {i + 1}" for i in range(n_classes)]

    def nearest(self, alpha: float) -> View:
        """Return the view of the sweep that is nearest to an α."""
        return min(self.sweep, key=lambda view: abs(view.alpha - alpha))

    def numbers(self) -> dict[str, Any]:
        """Return all figures, for programs."""
        groups = self.data.groups
        return {
            "n_target": len(self.data.target),
            "n_background": len(self.data.background),
            "n_features": self.data.target.shape[1],
            "n_individuals": None if groups is None else len(np.unique(groups)),
            "PCA": self.pca.numbers,
            "cPCA, automatic": self.cpca.numbers,
            "cPCA, best by labels": self.best.numbers,
            "t-SNE": self.tsne.numbers,
            "cPCA++": self.cpca_plus_plus.numbers,
            "cPCA sweep": [view.numbers for view in self.sweep],
        }

    def result(self, name: str, paper_alpha: float | None = None) -> Result:
        """Return the result of an experiment that is this comparison."""
        return result_of(
            name,
            [self.sentence()],
            data=describe_data(self.data),
            pictures=tuple(self.pictures(name, title_of(name).partition(":")[0], paper_alpha)),
            tables=tuple(self.tables()),
            numbers=self.numbers(),
        )

    def sentence(self) -> str:
        """Say in words how the methods compare."""
        views = (self.cpca_plus_plus, self.cpca, self.best, self.tsne, self.pca)
        plus, cpca, best, tsne, pca = (f"{view.ari:z.2f}" for view in views)
        return (
            f"ARI: cPCA++ {plus} and cPCA {cpca} with nothing chosen; cPCA {best} at the best α = "
            f"{self.best.alpha:.3g}, which only labels could tell; t-SNE {tsne}; PCA {pca}."
        )

    def pictures(self, name: str, title: str, paper_alpha: float | None = None) -> list[Picture]:
        """Draw the methods side by side, and the sweep over α."""
        n, best = len(self.data.target), self.best
        drawn = f" At most {DRAWN:,} points of {n:,} are drawn in each." if n > DRAWN else ""
        return [
            Picture(
                f"{name}-methods",
                png_of(methods_figure(self, paper_alpha)),
                alt=f"{title}: scatter plots of the first two components, coloured by class "
                f"({', '.join(self.class_names)}). {self.sentence()}",
                caption=f"{title}. Above: cPCA at some α. Below: methods with default settings. λ "
                "are eigenvalues: variances for PCA, differences of variances for cPCA, ratios to "
                f"the loaded background for cPCA++.{drawn}",
            ),
            Picture(
                f"{name}-sweep",
                png_of(sweep_figure(self)),
                alt=f"{title}: adjusted Rand index of cPCA against α, with a maximum of "
                f"{best.ari:z.2f} at α = {best.alpha:.3g}, and horizontal lines for the "
                "other methods.",
                caption="How well clusters agree with the classes, for each α of cPCA, and for the "
                "methods that have no α.",
            ),
        ]

    def tables(self, suffix: str = "") -> list[Table]:
        """Return the measures of the methods, and of each α."""
        n, shown = len(self.data.target), len(self.tsne.rows)
        named = {
            "PCA": self.pca,
            "cPCA, nothing to choose": self.cpca,
            f"cPCA, best α = {self.best.alpha:.3g} *": self.best,
            "t-SNE" + ("" if shown == n else f" ({shown} of {n:,} rows)"): self.tsne,
            "cPCA++, nothing to choose": self.cpca_plus_plus,
        }
        each = {f"{view.alpha:.3g}": view for view in self.sweep}
        head = ("ARI", "silhouette", "accuracy")
        methods, alphas = (
            [
                (name, *(f"{view.numbers[measure.lower()]:z.3f}" for measure in head))
                for name, view in views.items()
            ]
            for views in (named, each)
        )
        kept = "" if self.data.groups is None else ", each individual in one fold only"
        note = _MEASURES_NOTE.format(kept=kept)
        return [
            Table(f"How well the classes come apart{suffix}", ("method", *head), methods, note),
            Table(f"Each α of cPCA{suffix}", ("α", *head), alphas, folded=True),
        ]


def compare(data: ContrastData, settings: Settings, progress: Progress) -> Comparison:
    """Run all methods on a pair of data sets; ``progress`` is called with the share done."""
    X, B = data.target, data.background

    def view(method: str, scores: FloatArray, rows: Any = None, **others: Any) -> View:
        rows = np.arange(len(X)) if rows is None else rows
        groups = None if data.groups is None else data.groups[rows]
        measures = measure(scores, data.labels[rows], groups, seed=settings.seed)
        numbers = {**measures._asdict(), "n_shown": len(rows), **others}
        return View(method, scores, rows, numbers)

    pca, cpca = CPCAPlusPlus().fit(X), CPCA().fit(X, background=B)
    plus = CPCAPlusPlus().fit(X, background=B)
    views = {
        "pca": view("PCA", pca.transform(X), eigenvalues=pca.eigenvalues_.tolist()),
        "cpca": view("cPCA, nothing chosen", cpca.transform(X), alpha=float(cpca.alpha_)),
        "cpca_plus_plus": view("cPCA++", plus.transform(X), eigenvalues=plus.eigenvalues_.tolist()),
    }
    progress(0.1)
    sweep = []
    alphas = alphas_of(settings)
    eigenvalues, filters = solve_difference(Moments.of(X), Moments.of(B), 2, alphas)
    for i, alpha in enumerate(alphas):
        scores = (X - X.mean(axis=0)) @ filters[i]
        # Directions in which neither set varies: what they show is rounding.
        flat = scores.std(axis=0) <= 1e-9 * X.std()
        scores, values = np.where(flat, 0.0, scores), np.where(flat, 0.0, eigenvalues[i])
        sweep.append(view("cPCA", scores, alpha=float(alpha), eigenvalues=values.tolist()))
        progress(0.1 + 0.4 * (i + 1) / len(alphas))
    tsne = view("t-SNE", *_tsne(X, settings))
    progress(1.0)
    return Comparison(data, sweep=sweep, tsne=tsne, **views)


def alphas_of(settings: Settings) -> FloatArray:
    """Return the α of cPCA's sweep; a quick run has a quarter of them."""
    return _QUICK_ALPHAS if settings.quick else ALPHAS


def _tsne(target: FloatArray, settings: Settings) -> tuple[FloatArray, NDArray[np.intp]]:
    """Embed the target alone, as the paper does; in a quick run some of its rows."""
    rows = np.arange(len(target))
    if settings.quick and len(target) > _QUICK_TSNE_ROWS:
        rng = np.random.default_rng(settings.seed)
        rows = np.sort(rng.choice(len(target), _QUICK_TSNE_ROWS, replace=False))
    model = TSNE(
        perplexity=min(30.0, (len(rows) - 1) / 3.0),
        max_iter=300 if settings.quick else 1000,
        random_state=settings.seed,
    )
    return np.asarray(model.fit_transform(target[rows]), dtype=np.float64), rows
