"""The pictures of the experiments. Needs matplotlib (``pip install 'cpcapp[reproduce]'``)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from cpcapp.plotting import MARKERS, PALETTE, scatter

if TYPE_CHECKING:
    from cpcapp.experiments.comparison import Comparison, View

DRAWN = 1000  # points in a panel: more hide each other
_DPI = 100


def png_of(figure: Figure) -> bytes:
    """Return a figure as a PNG of at most 256 colours: a third of the size, and no other look."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=_DPI, format="png", facecolor="white")
    with Image.open(drawn) as image:
        flat = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        flat.save(small, format="png", optimize=True)
    return small.getvalue()


def methods_figure(comparison: Comparison, paper_alpha: float | None = None) -> Figure:
    """Draw cPCA at four α in the upper row, and methods with nothing to choose in the lower."""
    figure = Figure(figsize=(12.4, 6.7), layout="constrained")
    upper, lower = figure.subplots(2, 4)
    best = comparison.best
    papers = None if paper_alpha is None else comparison.nearest(paper_alpha)
    wanted = [best, papers, *(comparison.nearest(alpha) for alpha in (1, 10, 100, 0.3))]
    shown = list({view.alpha: view for view in wanted if view is not None}.values())[:4]
    for ax, view in zip(upper, sorted(shown, key=lambda view: view.alpha), strict=False):
        marks = {"the paper's": view is papers, "best, by labels": view is best}
        marked = ", ".join(mark for mark, is_true in marks.items() if is_true)
        _panel(ax, view, comparison, f"cPCA, α = {view.alpha:.3g}", f" ({marked})" * bool(marked))
    views = (comparison.pca, comparison.tsne, comparison.cpca, comparison.cpca_plus_plus)
    for ax, view in zip(lower, views, strict=True):
        _panel(ax, view, comparison, view.method)
    add_legend(figure, comparison.class_names)
    return figure


def _panel(ax: Axes, view: View, comparison: Comparison, title: str, marked: str = "") -> None:
    drawn = np.arange(len(view.rows))
    if len(drawn) > DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(len(drawn), DRAWN, replace=False))
    labels = comparison.data.labels[view.rows[drawn]]
    title = f"{title}\nARI {view.ari:z.2f}{marked}"
    scatter(
        ax, view.scores[drawn], labels, eigenvalues=view.numbers.get("eigenvalues"), title=title
    )


def add_legend(figure: Figure, names: Sequence[str]) -> None:
    """Name the classes below all panels."""
    handles = [
        figure.axes[0].scatter([], [], s=40, linewidths=0, color=PALETTE[i], marker=MARKERS[i])
        for i in range(len(names))
    ]
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)


def sweep_figure(comparison: Comparison) -> Figure:
    """Draw how well the classes come apart against α, and for the methods without one."""
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    ax = figure.subplots()
    curve = [(view.alpha, view.ari) for view in comparison.sweep if view.alpha]
    ax.plot(*zip(*curve, strict=True), color=PALETTE[0], label="cPCA, each α")
    best = comparison.best
    if best.alpha:
        point = (best.alpha, best.ari)
        ax.plot(*point, "*", color=PALETTE[0], ms=10, label="best, by labels")
    views = (comparison.cpca_plus_plus, comparison.cpca, comparison.tsne, comparison.pca)
    for view, style, colour in zip(views, ("-", "-.", "--", ":"), PALETTE[1:], strict=False):
        ax.axhline(view.ari, color=colour, linestyle=style, label=view.method)
    ax.set(xscale="log", ylim=(-0.08, 1.05), ylabel="adjusted Rand index")
    ax.set_xlabel("contrast parameter α of cPCA")
    legend_beside(ax)
    return figure


def legend_beside(ax: Axes) -> None:
    """Put the legend to the right of a plot."""
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def image_grid(rows: Mapping[str, Any]) -> Figure:
    """Draw square pictures, each a row of pixels, scaled from its own darkest to lightest point."""
    columns = len(next(iter(rows.values())))
    figure = Figure(figsize=(1.25 * columns + 1.2, 1.3 * len(rows) + 0.3), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes, (name, pictures) in zip(grid, rows.items(), strict=True):
        for ax, picture in zip(axes, pictures, strict=True):
            side = round(np.sqrt(len(picture)))
            ax.imshow(picture.reshape(side, side), cmap="gray", interpolation="nearest")
            ax.set(xticks=[], yticks=[])
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
    return figure
