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

from cpcapp.experiments._comparison import Comparison, View
from cpcapp.moments.moments import FloatArray
from cpcapp.plotting import MARKERS, PALETTE, scatter

DRAWN = 1000  # points in a panel: more hide each other
_DPI = 100


def png_of(figure: Figure) -> bytes:
    """Return a figure as a PNG of at most 256 colours: a third of the size, and no other look.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> png_of(Figure(figsize=(1, 1)))[1:4]
    b'PNG'
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=_DPI, format="png", facecolor="white")
    small = io.BytesIO()
    with Image.open(drawn) as image:
        flat = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        flat.save(small, format="png", optimize=True)
    return small.getvalue()


def class_names(comparison: Comparison) -> list[str]:
    """Return what the classes are called, in the order of their numbers."""
    data = comparison.data
    numbers = range(int(data.labels.max()) + 1)
    return [data.label_names[i] if data.label_names else f"class {i + 1}" for i in numbers]


def methods_figure(comparison: Comparison, paper_alpha: float | None = None) -> Figure:
    """Draw cPCA at some α in the upper row, and PCA, t-SNE and cPCA++ in the lower.

    Parameters
    ----------
    comparison : Comparison
    paper_alpha : float, optional
        The α that the paper picks, which is shown too.

    Returns
    -------
    matplotlib Figure
    """
    chosen = shown_alphas(comparison, paper_alpha)
    figure = Figure(figsize=(12.4, 6.4), layout="constrained")
    grid = figure.subplots(2, 4)
    for ax in grid.ravel():
        ax.set_visible(False)
    for ax, index in zip(grid[0], chosen, strict=False):
        view = comparison.sweep[index]
        _panel(ax, view, comparison, _alpha_title(comparison, index, paper_alpha))
    lower = (comparison.pca, comparison.tsne, comparison.cpca_plus_plus)
    for ax, view in zip(grid[1], lower, strict=False):
        _panel(ax, view, comparison, f"{view.method}\nARI {view.measures.ari:.2f}")
    _legend(grid[1, 3], class_names(comparison))
    return figure


def shown_alphas(comparison: Comparison, paper_alpha: float | None = None) -> list[int]:
    """Return at most four of the sweep: the paper's, the offered ones, and the labels' best.

    Views that are no different from PCA, which has a panel of its own, come last.
    """
    wanted = [comparison.best, comparison.automatic]
    if paper_alpha is not None:
        wanted.insert(0, comparison.nearest(paper_alpha))
    wanted += [i for i in reversed(comparison.offered) if i > 0]
    return sorted(list(dict.fromkeys(wanted))[:4])


def _alpha_title(comparison: Comparison, index: int, paper_alpha: float | None) -> str:
    view = comparison.sweep[index]
    marks = []
    if index == comparison.automatic:
        marks.append("automatic")
    if paper_alpha is not None and index == comparison.nearest(paper_alpha):
        marks.append("the paper's")
    if index == comparison.best:
        marks.append("best, by labels")
    marked = f" ({', '.join(marks)})" if marks else ""
    return f"cPCA, α = {view.alpha:.3g}\nARI {view.measures.ari:.2f}{marked}"


def _panel(ax: Axes, view: View, comparison: Comparison, title: str) -> None:
    ax.set_visible(True)
    drawn = np.arange(len(view.rows))
    if len(drawn) > DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(len(drawn), DRAWN, replace=False))
    labels = comparison.data.labels[view.rows[drawn]]
    scatter(ax, view.scores[drawn], labels, eigenvalues=view.eigenvalues, title=title)


def _legend(ax: Axes, names: Sequence[str]) -> None:
    ax.set_visible(True)
    ax.axis("off")
    for i, name in enumerate(names):
        colour, marker = PALETTE[i % len(PALETTE)], MARKERS[i % len(MARKERS)]
        ax.scatter([], [], s=40, linewidths=0, color=colour, marker=marker, label=name)
    ax.legend(loc="center", frameon=False, fontsize=11, title="classes", title_fontsize=11)


def sweep_figure(comparison: Comparison) -> Figure:
    """Draw how well the classes come apart against α, and for the methods without one.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    matplotlib Figure
    """
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    ax = figure.subplots()
    sweep = [view for view in comparison.sweep if view.alpha]
    alphas = [view.alpha or 0.0 for view in sweep]
    ax.plot(alphas, [view.measures.ari for view in sweep], color=PALETTE[0], label="cPCA, each α")
    marks = [
        ("cPCA, automatic", comparison.automatic, "o"),
        ("best, by labels", comparison.best, "*"),
    ]
    for name, index, marker in marks:
        view = comparison.sweep[index]
        if view.alpha:
            ax.plot(view.alpha, view.measures.ari, marker, color=PALETTE[0], ms=10, label=name)
    lines = ((comparison.cpca_plus_plus, "-"), (comparison.tsne, "--"), (comparison.pca, ":"))
    for (view, style), colour in zip(lines, PALETTE[1:], strict=False):
        ax.axhline(view.measures.ari, color=colour, linestyle=style, label=view.method)
    ax.set_xscale("log")
    ax.set_ylim(-0.08, 1.05)
    ax.set_xlabel("contrast parameter α of cPCA")
    ax.set_ylabel("adjusted Rand index")
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def image_grid(
    rows: Sequence[tuple[str, NDArray[Any]]], titles: Sequence[str] | None = None
) -> Figure:
    """Draw small square pictures in rows, each scaled to its own darkest and lightest point.

    Parameters
    ----------
    rows : sequence of (name, pictures)
        With pictures of shape (n, side * side).
    titles : sequence of str, optional
        Over the columns.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> len(image_grid([("a row", np.zeros((3, 16)))]).axes)
    3
    """
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
    for ax, title in zip(grid[0], titles or (), strict=False):
        ax.set_title(title, fontsize=10)
    return figure


def curves_figure(
    x: Sequence[float],
    curves: Sequence[tuple[str, FloatArray | Sequence[float]]],
    *,
    levels: Sequence[tuple[str, float]] = (),
    xlabel: str,
    ylabel: str,
) -> Figure:
    """Draw curves over x, and levels that do not depend on it, both axes in logarithm.

    Parameters
    ----------
    x : sequence of float
    curves : sequence of (name, values)
    levels : sequence of (name, value), optional
    xlabel, ylabel : str

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = curves_figure([1, 2], [("a", [3, 4])], xlabel="x", ylabel="y")
    >>> figure.axes[0].get_xlabel()
    'x'
    """
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    ax = figure.subplots()
    for i, (name, values) in enumerate(curves):
        ax.plot(x, values, marker=MARKERS[i], ms=5, color=PALETTE[i], label=name)
    for (name, value), style in zip(levels, ("--", ":", "-."), strict=False):
        ax.axhline(value, color="0.35", linestyle=style, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(x, [f"{value:g}" for value in x], minor=False)
    ax.set_xticks([], minor=True)
    for formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        formatter("{x:g}")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def planes_figure(planes: Sequence[tuple[str, Any, Any]], angles: Any) -> Figure:
    """Draw samples in the planes that methods find, and below what each plane is made of.

    Parameters
    ----------
    planes : sequence of (str, ndarray of shape (n, 2), ndarray of shape (n_directions,))
        Method, scores, and the share of its plane along each true direction.
    angles : ndarray of shape (n,)
        Of each sample in the true plane, from -π to π: its colour.

    Returns
    -------
    matplotlib Figure
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
