"""The pictures of the experiments. Needs matplotlib (``pip install 'cpcapp[reproduce]'``)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from cpcapp.experiments.comparison import Comparison, View
from cpcapp.plotting import MARKERS, PALETTE, scatter

DRAWN = 1000  # points in a panel: more hide each other
_DPI = 100


def png_of(figure: Figure) -> bytes:
    """Return a figure as a PNG of at most 256 colours: a third of the size, and no other look."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=_DPI, format="png", facecolor="white")
    small = io.BytesIO()
    with Image.open(drawn) as image:
        flat = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        flat.save(small, format="png", optimize=True)
    return small.getvalue()


def methods_figure(comparison: Comparison, paper_alpha: float | None = None) -> Figure:
    """Draw cPCA at four α in the upper row, and methods with nothing to choose in the lower."""
    figure = Figure(figsize=(12.4, 6.7), layout="constrained")
    upper, lower = figure.subplots(2, 4)
    papers = None if paper_alpha is None else comparison.nearest(paper_alpha)
    wanted = [comparison.best, papers, *(comparison.nearest(alpha) for alpha in (1, 10, 100, 0.3))]
    shown = list({view.alpha: view for view in wanted if view is not None}.values())[:4]
    for ax, view in zip(upper, sorted(shown, key=lambda view: view.alpha or 0.0), strict=False):
        marks = ["the paper's"] if view is papers else []
        marks += ["best, by labels"] if view is comparison.best else []
        marked = f" ({', '.join(marks)})" if marks else ""
        _panel(ax, view, comparison, f"cPCA, α = {view.alpha:.3g}", marked)
    for ax, view in zip(
        lower,
        (comparison.pca, comparison.tsne, comparison.cpca, comparison.cpca_plus_plus),
        strict=True,
    ):
        _panel(ax, view, comparison, view.method)
    _legend(figure, comparison.class_names)
    return figure


def _panel(ax: Axes, view: View, comparison: Comparison, title: str, marked: str = "") -> None:
    drawn = np.arange(len(view.rows))
    if len(drawn) > DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(len(drawn), DRAWN, replace=False))
    labels = comparison.data.labels[view.rows[drawn]]
    title = f"{title}\nARI {view.measures.ari:z.2f}{marked}"
    scatter(ax, view.scores[drawn], labels, eigenvalues=view.eigenvalues, title=title)


def _legend(figure: Figure, names: Sequence[str]) -> None:
    styles = zip(PALETTE, MARKERS, strict=True)
    handles = [
        figure.axes[0].scatter([], [], s=40, linewidths=0, color=colour, marker=marker)
        for _, (colour, marker) in zip(names, styles, strict=False)
    ]
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)


def sweep_figure(comparison: Comparison) -> Figure:
    """Draw how well the classes come apart against α, and for the methods without one."""
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    ax = figure.subplots()
    sweep = [view for view in comparison.sweep if view.alpha]
    alphas = [view.alpha or 0.0 for view in sweep]
    ax.plot(alphas, [view.measures.ari for view in sweep], color=PALETTE[0], label="cPCA, each α")
    best = comparison.best
    if best.alpha:
        ax.plot(
            best.alpha, best.measures.ari, "*", color=PALETTE[0], ms=10, label="best, by labels"
        )
    lines = (
        *((comparison.cpca_plus_plus, "-"), (comparison.cpca, "-.")),
        *((comparison.tsne, "--"), (comparison.pca, ":")),
    )
    for (view, style), colour in zip(lines, PALETTE[1:], strict=False):
        ax.axhline(view.measures.ari, color=colour, linestyle=style, label=view.method)
    ax.set_xscale("log")
    ax.set_ylim(-0.08, 1.05)
    ax.set_xlabel("contrast parameter α of cPCA")
    ax.set_ylabel("adjusted Rand index")
    _legend_beside(ax)
    return figure


def _legend_beside(ax: Axes) -> None:
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def image_grid(rows: Sequence[tuple[str, NDArray[Any]]]) -> Figure:
    """Draw square pictures, each a row of pixels, scaled from its own darkest to lightest point."""
    columns = len(rows[0][1])
    figure = Figure(figsize=(1.25 * columns + 1.2, 1.3 * len(rows) + 0.3), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes, (name, pictures) in zip(grid, rows, strict=True):
        side = round(np.sqrt(pictures.shape[1]))
        for ax, picture in zip(axes, pictures, strict=True):
            ax.imshow(picture.reshape(side, side), cmap="gray", interpolation="nearest")
            ax.set_xticks([])
            ax.set_yticks([])
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
    return figure


def curves_figure(
    x: Sequence[float],
    curves: Sequence[tuple[str, Sequence[float]]],
    levels: Sequence[tuple[str, float]],
) -> Figure:
    """Draw errors over the number of components, and levels that do not depend on it."""
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    ax = figure.subplots()
    for i, (name, values) in enumerate(curves):
        ax.plot(x, values, marker=MARKERS[i], ms=5, color=PALETTE[i], label=name)
    for (name, value), style in zip(levels, ("--", ":"), strict=True):
        ax.axhline(value, color="0.35", linestyle=style, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(x, [f"{value:g}" for value in x], minor=False)
    ax.set_xticks([], minor=True)
    for formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        formatter("{x:g}")
    ax.set_xlabel("components K")
    ax.set_ylabel("squared error, average digit = 1")
    _legend_beside(ax)
    return figure


def planes_figure(planes: Sequence[tuple[str, Any, Any]], angles: Any) -> Figure:
    """Draw samples in the planes that methods find, and below what each plane is made of.

    A plane is a method, the scores, and its share along each true direction. Samples are coloured
    by their angle in the true plane.
    """
    figure = Figure(figsize=(3.1 * len(planes), 5.0), layout="constrained")
    grid = figure.subplots(2, len(planes), height_ratios=[2, 1])
    for (upper, lower), (name, scores, shares) in zip(grid.T, planes, strict=True):
        upper.scatter(*scores.T, c=angles, cmap="twilight", s=4, linewidths=0)
        upper.set_title(name, fontsize=9)
        upper.set_xticks([])
        upper.set_yticks([])
        lower.bar(np.arange(1, len(shares) + 1), shares, width=1.0, color=PALETTE[0])
        lower.set_ylim(0.0, 1.0)
        lower.tick_params(labelsize=7)
        lower.set_xlabel("direction", fontsize=8)
    grid[1, 0].set_ylabel("share of the plane", fontsize=8)
    return figure


def people_figure(
    people: Sequence[tuple[str, Any, Sequence[tuple[str, Any]]]], names: Sequence[str]
) -> Figure:
    """Draw a row for each method and a column for each person: (name, labels, (title, scores))."""
    n_methods = len(people[0][2])
    figure = Figure(figsize=(1.55 * len(people), 1.9 * n_methods + 0.5), layout="constrained")
    grid = figure.subplots(n_methods, len(people), squeeze=False)
    for axes, (name, labels, views) in zip(grid.T, people, strict=True):
        for ax, (title, scores) in zip(axes, views, strict=True):
            scatter(ax, scores, labels, title=title)
            ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
            ax.set_title(title, fontsize=8)
        axes[-1].set_xlabel(name, fontsize=8)
    _legend(figure, names)
    return figure
