"""What the experiments that compare methods on a data set have in common: pictures and tables."""

from __future__ import annotations

from cpcapp.experiments._comparison import Comparison, View
from cpcapp.experiments._results import Cell, Picture, Table
from cpcapp.experiments.figures import (
    DRAWN,
    class_names,
    methods_figure,
    png_of,
    sweep_figure,
)

LOOK_AT = (
    "Each dot is a sample; colour and shape tell its class, which no method was shown. Look "
    "whether the colours lie apart. cPCA has a setting, α, that somebody has to choose: the upper "
    "row shows what different choices give. PCA, t-SNE and cPCA++, below, have none."
)
MEASURES_NOTE = (
    "ARI: agreement of k-means clusters with the classes, 1 is perfect and 0 is chance. "
    "Silhouette: 1 if classes lie far apart, 0 if they touch, below 0 if they are mixed. Accuracy: "
    "how often the 5 nearest neighbours tell the class, in 5-fold cross-validation{kept}. "
    "Components are scaled to variance 1 first. Rows marked * used the labels that are to be "
    "found: nobody could have picked that α without them."
)


def pictures(
    name: str, title: str, comparison: Comparison, paper_alpha: float | None = None
) -> tuple[Picture, Picture]:
    """Draw the methods side by side, and the sweep over α."""
    classes = ", ".join(class_names(comparison))
    plus, best = comparison.cpca_plus_plus.measures, comparison.sweep[comparison.best]
    return (
        Picture(
            f"{name}-methods",
            png_of(methods_figure(comparison, paper_alpha)),
            alt=f"{title}: scatter plots of the first two components, coloured by class "
            f"({classes}). Adjusted Rand index: PCA {comparison.pca.measures.ari:.2f}, t-SNE "
            f"{comparison.tsne.measures.ari:.2f}, cPCA++ {plus.ari:.2f}, cPCA at its best α "
            f"{best.measures.ari:.2f}.",
            caption=f"{title}. Above: cPCA at some α. Below: PCA, t-SNE and cPCA++ with default "
            "settings. λ are eigenvalues: variances for PCA, differences of variances for cPCA, "
            f"ratios to the background for cPCA++.{_points_note(comparison)}",
        ),
        Picture(
            f"{name}-sweep",
            png_of(sweep_figure(comparison)),
            alt=f"{title}: adjusted Rand index of cPCA against α, with a maximum of "
            f"{best.measures.ari:.2f} at α = {best.alpha:.3g}; horizontal lines for cPCA++ at "
            f"{plus.ari:.2f}, t-SNE at {comparison.tsne.measures.ari:.2f} and PCA at "
            f"{comparison.pca.measures.ari:.2f}.",
            caption="How well clusters agree with the classes, for each α of cPCA, and for the "
            "methods that have no α.",
        ),
    )


def tables(comparison: Comparison, suffix: str = "") -> tuple[Table, Table, Table]:
    """Return the measures of the methods, of each α, and the overlap of the subspaces."""
    kept = "" if comparison.data.groups is None else ", each individual in one fold only"
    automatic, best = comparison.sweep[comparison.automatic], comparison.sweep[comparison.best]
    head = ("method", "ARI", "silhouette", "accuracy")
    main = [
        _row("PCA", comparison.pca),
        _row(f"cPCA, automatic α = {automatic.alpha:.3g}", automatic),
        _row(f"cPCA, best α = {best.alpha:.3g} *", best),
        _row("t-SNE" + _rows_note(comparison.tsne, comparison), comparison.tsne),
        _row("cPCA++, nothing to choose", comparison.cpca_plus_plus),
    ]
    offered = set(comparison.offered)
    each = [
        _row(f"{view.alpha:.3g}" + (" (offered)" if i in offered else ""), view)
        for i, view in enumerate(comparison.sweep)
    ]
    overlaps: list[tuple[Cell, ...]] = [
        (int(o["k"]), f"{o['overlap']:.3f}", f"{o['unrelated']:.3f}") for o in comparison.overlaps
    ]
    return (
        Table(
            f"How well the classes come apart{suffix}", head, main, MEASURES_NOTE.format(kept=kept)
        ),
        Table(f"Each α of cPCA{suffix}", ("α", *head[1:]), each, folded=True),
        Table(
            f"How much of the target's main subspace lies in the background's{suffix}",
            ("components", "overlap", "if unrelated"),
            overlaps,
            "1 where what is loud in the target is loud in the background too, so that plain PCA "
            "mostly sees what both share. (Section IV of the paper has 0.9325 for 50 components of "
            "spliced and authentic edges in photos.)",
        ),
    )


def ari_sentence(comparison: Comparison) -> str:
    """Say in words how the methods compare."""
    automatic, best = comparison.sweep[comparison.automatic], comparison.sweep[comparison.best]
    return (
        f"ARI: cPCA++ {comparison.cpca_plus_plus.measures.ari:.2f} with nothing chosen; cPCA "
        f"{automatic.measures.ari:.2f} at the α = {automatic.alpha:.3g} it takes by itself, and "
        f"{best.measures.ari:.2f} at the best α = {best.alpha:.3g}, which only labels could tell; "
        f"t-SNE {comparison.tsne.measures.ari:.2f}; PCA {comparison.pca.measures.ari:.2f}."
    )


def ari_figure(comparison: Comparison) -> str:
    """Return the main figures in a few words."""
    best = comparison.sweep[comparison.best]
    figures = {
        "cPCA++": comparison.cpca_plus_plus,
        f"cPCA at its best α = {best.alpha:.2g} *": best,
        "t-SNE": comparison.tsne,
        "PCA": comparison.pca,
    }
    return "ARI: " + ", ".join(f"{n} {view.measures.ari:.2f}" for n, view in figures.items())


def target_sentence(comparison: Comparison, aim: float) -> str:
    """Say whether cPCA++ reached the index that was aimed at."""
    found = comparison.cpca_plus_plus.measures.ari
    reached = "Reached" if found >= aim else "Not reached"
    return (
        f"Aim for cPCA++ with default settings: ARI of at least {aim:.2f}. {reached}: {found:.3f}."
    )


def gap_sentence(comparison: Comparison, aim: float = 0.02) -> str:
    """Say how near cPCA++ comes to the best α, which takes labels to find."""
    gap = comparison.sweep[comparison.best].measures.ari - comparison.cpca_plus_plus.measures.ari
    reached = "Reached" if gap <= aim else "Not reached"
    found = "the same" if abs(gap) < 5e-4 else f"{abs(gap):.3f} {'below' if gap > 0 else 'above'}"
    return (
        f"Aim without labels: within {aim:.2f} of cPCA at the α that labels would pick. {reached}: "
        f"{found}."
    )


def _row(name: str, view: View) -> tuple[Cell, ...]:
    found = (view.measures.ari, view.measures.silhouette, view.measures.accuracy)
    return (name, *(f"{value:.3f}" for value in found))


def _points_note(comparison: Comparison) -> str:
    n = len(comparison.data.target)
    return f" At most {DRAWN:,} points of {n:,} are drawn in each." if n > DRAWN else ""


def _rows_note(view: View, comparison: Comparison) -> str:
    n, total = len(view.rows), len(comparison.data.target)
    return "" if n == total else f" ({n} of {total:,} rows)"
