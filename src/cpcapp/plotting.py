"""Pictures of a contrast. Needs matplotlib (``pip install 'cpcapp[plot]'``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from cpcapp.contrast.solve import solve_contrast
from cpcapp.inference.noise import count_components, noise_threshold
from cpcapp.moments.moments import Moments
from cpcapp.moments.rows import align

__all__ = ["contrast_figure", "loadings", "plot", "scatter", "scatter_grid", "scree", "spectrum"]

# Okabe and Ito's colours, told apart by people with any common kind of colour vision; the
# marker says the same once more.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = "osD^vPX*"
_BACKGROUND = "#C4C4C4"
# Numbers as colours: from dark to light in equal steps, also for people with colour blindness.
_RAMP = "viridis"


def plot(
    est: Any,
    X: Any,
    labels: ArrayLike | None = None,
    *,
    background: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw samples by the first two components of a fitted estimator.

    Parameters
    ----------
    est : fitted estimator
        ``CPCAPlusPlus``, ``CPCA``, or another with ``transform``.
    X : array-like or sparse matrix of shape (n_samples, n_features)
    labels : array-like of shape (n_samples,), optional
        Text, or up to eight numbers: classes, shown by colour and marker; beyond eight, the
        rarest become "other". More than eight different numbers: a range of colours.
    background : array-like of shape (n_background, n_features), optional
        Drawn in grey behind the samples.
    ax : matplotlib Axes, optional
        By default one of a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cpcapp import CPCAPlusPlus
    >>> from cpcapp.datasets import synthetic
    >>> data = synthetic(random_state=0)
    >>> est = CPCAPlusPlus().fit(data.target, background=data.background)
    >>> ax = plot(est, data.target, data.labels, ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['0', '1', '2', '3']
    """
    scores = np.asarray(est.transform(X), dtype=np.float64)
    if not scores.shape[1]:
        raise ValueError(f"{type(est).__name__} has no component to draw; fit it with n_components")
    behind = None if background is None else est.transform(background)
    ax = _new_axes() if ax is None else ax
    eigenvalues = getattr(est, "eigenvalues_", None)
    values = None
    if labels is not None:
        values = _check_labels(np.asarray(align(labels, X, "labels")), len(scores))
    is_ramp = values is not None and (
        values.dtype.kind in "iuf" and len(np.unique(values)) > len(PALETTE)
    )
    _draw_sides(ax, scores, None if is_ramp else values, behind, eigenvalues)
    if is_ramp:
        points = ax.collections[-1]
        points.set_array(values)
        points.set_cmap(_RAMP)
        figure: Any = ax.get_figure()
        figure.colorbar(points, ax=ax)
    return ax


def scatter(
    ax: Axes,
    scores: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    eigenvalues: ArrayLike | None = None,
    title: str = "",
) -> None:
    """Draw samples by their first two components.

    Parameters
    ----------
    ax : matplotlib Axes
    scores : array-like of shape (n_samples, n_components)
        What ``transform`` returns, with at least one component.
    labels : array-like of shape (n_samples,), optional
        Classes, shown by colour and marker.
    eigenvalues : array-like of shape (n_components,), optional
        Written beside the axes.
    title : str, optional

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().add_subplot()
    >>> scatter(ax, [[0, 1], [2, 3]], ["a", "b"])
    """
    points = np.asarray(scores, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] < 1:
        raise ValueError(f"scores has shape {points.shape}; it must be (n_samples, n_components)")
    x, y = points[:, 0], points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))
    classes = np.zeros(len(points), dtype=int) if labels is None else np.asarray(labels)
    _check_labels(classes, len(points))
    for i, name in enumerate(np.unique(classes)):
        chosen = classes == name
        style: dict[str, Any] = {"s": 9, "alpha": 0.7, "linewidths": 0, "label": str(name)}
        look: dict[str, Any] = {
            "color": PALETTE[i % len(PALETTE)],
            "marker": MARKERS[i % len(MARKERS)],
        }
        ax.scatter(x[chosen], y[chosen], **style, **look)
    values = [] if eigenvalues is None else [f" (λ = {v:.3g})" for v in np.asarray(eigenvalues)]
    for axis, i in ((ax.xaxis, 0), (ax.yaxis, 1)):
        axis.set_label_text(f"component {i + 1}" + "".join(values[i : i + 1]))
    ax.tick_params(labelsize=7)
    ax.set_title(title, fontsize=10)


def scatter_grid(rows: Sequence[tuple[str, Any, Sequence[tuple[str, Any]]]]) -> Figure:
    """Draw a grid of scatter plots: a row for each data set, a column for each method.

    Parameters
    ----------
    rows : sequence of (name, labels, views)
        With views a sequence of (title, scores).

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> scatter_grid([("data", [0, 1], [("PCA", [[0, 1], [2, 3]])])]).axes[0].get_title()
    'PCA'
    """
    columns = max(len(views) for _, _, views in rows)
    figure = Figure(figsize=(3.4 * columns, 3.2 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes, (name, labels, views) in zip(grid, rows, strict=True):
        for ax in axes[len(views) :]:
            ax.set_visible(False)
        for ax, (title, scores) in zip(axes, views, strict=False):
            scatter(ax, scores, labels, title=title)
        axes[0].set_ylabel(f"{name}\ncomponent 2")
    return figure


def spectrum(ax: Axes, eigenvalues: ArrayLike, *, threshold: float | None = None) -> None:
    """Draw eigenvalues, and the height that noise alone reaches.

    Parameters
    ----------
    ax : matplotlib Axes
    eigenvalues : array-like of shape (n_components,)
    threshold : float, optional
        For example of :func:`cpcapp.noise_threshold`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> spectrum(Figure().add_subplot(), [30.3, 23.5, 1.9], threshold=2.2)
    """
    values = np.asarray(eigenvalues, dtype=np.float64)
    ax.plot(np.arange(1, len(values) + 1), values, "o-", color=PALETTE[0], markersize=4)
    if threshold is not None:
        ax.axhline(threshold, color=PALETTE[1], linestyle="--", linewidth=1, label="noise")
        ax.legend(fontsize=8)
    ax.set_yscale("log")
    ax.set_xlabel("component")
    ax.set_ylabel("target power / background power")


def scree(
    target: Any,
    background: Any,
    *,
    false_alarm_rate: float = 0.05,
    n_components: int = 30,
    ax: Axes | None = None,
) -> Axes:
    """Draw the largest eigenvalues of a contrast, with those above the noise filled.

    Parameters
    ----------
    target, background : Moments or array-like of shape (n, n_features)
    false_alarm_rate : float, default=0.05
        Probability that noise alone has an eigenvalue above the line (:func:`noise_threshold`).
    n_components : int, default=30
        Eigenvalues drawn at most.
    ax : matplotlib Axes, optional
        By default one of a new figure.

    Returns
    -------
    matplotlib Axes
        With ``n_background - 1 > n_features`` the eigenvalues are those of the plain ratio, which
        the noise threshold is made for. With fewer background samples they are those of
        ``loading="oas"``, and there is no line.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cpcapp.datasets import synthetic
    >>> data = synthetic(random_state=0)
    >>> ax = scree(data.target, data.background, ax=Figure().add_subplot())
    >>> ax.get_title()
    '2 of 30 above the noise'
    """
    f, b = (m if isinstance(m, Moments) else Moments.of(m) for m in (target, background))
    width = f.n_features or 0
    ax = _new_axes() if ax is None else ax
    most = min(n_components, width, f.n_samples - 1)
    has_ratio = b.n_samples - 1 > width
    values = solve_contrast(f, b, most, loading="none" if has_ratio else "oas").eigenvalues
    if not has_ratio:
        spectrum(ax, values)
        ax.set_title(f"{len(values)} largest of {width}, shrunk", fontsize=10)
        return ax
    line = noise_threshold(f.n_samples, b.n_samples, width, false_alarm_rate=false_alarm_rate)
    spectrum(ax, values, threshold=line)
    noise = values <= line
    places = np.arange(1, len(values) + 1)
    ax.plot(places[noise], values[noise], "o", color=PALETTE[0], markersize=4, mfc="white")
    count = count_components(f, b, false_alarm_rate=false_alarm_rate)
    ax.set_title(f"{count} of {width} above the noise", fontsize=10)
    return ax


def loadings(
    ax: Axes, weights: ArrayLike, feature_names: Sequence[str] | None = None, *, top: int = 15
) -> None:
    """Draw the features with the largest weights of one component, largest on top.

    Parameters
    ----------
    ax : matplotlib Axes
    weights : array-like of shape (n_features,)
        A row of ``components_`` or of ``atoms_``.
    feature_names : sequence of str, optional
    top : int, default=15

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> loadings(Figure().add_subplot(), [0.1, -2.0, 0.5], ["a", "b", "c"], top=2)
    """
    values = np.asarray(weights, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"weights has shape {values.shape}; give one row of components_")
    names = [str(i) for i in range(len(values))] if feature_names is None else list(feature_names)
    if len(names) != len(values):
        raise ValueError(f"feature_names has {len(names)} names for {len(values)} weights")
    order = np.argsort(-np.abs(values), kind="stable")[:top][::-1]
    colours = [PALETTE[0] if v >= 0 else PALETTE[1] for v in values[order]]
    ax.barh([names[i] for i in order], values[order], color=colours)
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.tick_params(labelsize=8)


def contrast_figure(
    scores: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    weights: ArrayLike,
    feature_names: Sequence[str] | None = None,
    eigenvalues: ArrayLike | None = None,
    background: ArrayLike | None = None,
    title: str = "",
    label_title: str = "",
    top: int = 12,
) -> Figure:
    """Draw samples by their first two components, and beside them the features behind these.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_components)
    labels : array-like of shape (n_samples,), optional
        Classes, shown by colour and marker; beyond eight, the rarest become "other".
    weights : array-like of shape (n_components, n_features)
        For example ``components_`` of an estimator.
    feature_names : sequence of str, optional
    eigenvalues : array-like of shape (n_components,), optional
    background : array-like of shape (n_background, n_components), optional
        Scores of background samples, drawn in light grey below the others.
    title, label_title : str, optional
        Of the scatter plot and of its legend.
    top : int, default=12
        Features shown of each component.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = contrast_figure([[0, 1], [2, 3]], ["a", "b"], weights=[[1, 0], [0, 1]])
    >>> [ax.get_title() for ax in figure.axes]
    ['', 'component 1', 'component 2']
    """
    rows = np.asarray(weights, dtype=np.float64)[:2]
    width = 6.0 + 3.2 * len(rows)
    figure = Figure(figsize=(width, 4.6), layout="constrained")
    axes = figure.subplots(1, 1 + len(rows), width_ratios=[6.0] + [3.2] * len(rows))
    _draw_sides(axes[0], np.asarray(scores), labels, background, eigenvalues, title, label_title)
    for i, (ax, row) in enumerate(zip(axes[1:], rows, strict=True)):
        loadings(ax, row, feature_names, top=top)
        ax.set_title(f"component {i + 1}", fontsize=10)
        ax.set_xlabel("weight", fontsize=8)
    return figure


def _new_axes() -> Axes:
    import matplotlib.pyplot as plt

    axes: Axes = plt.subplots(layout="constrained")[1]
    return axes


def _draw_sides(
    ax: Axes,
    scores: NDArray[Any],
    labels: ArrayLike | None,
    background: ArrayLike | None,
    eigenvalues: ArrayLike | None,
    title: str = "",
    legend_title: str = "",
) -> None:
    """Draw samples over those of the background, with a legend if there are kinds of points."""
    has_one_axis = scores.shape[1] == 1
    if background is not None:
        behind = np.asarray(background)
        # On a line of its own, as the samples would hide it.
        y = np.full(len(behind), -0.1) if has_one_axis else behind[:, 1]
        style: dict[str, Any] = {"color": _BACKGROUND, "label": "background", "linewidths": 0}
        ax.scatter(behind[:, 0], y, s=9, alpha=0.7, zorder=0, **style)
    classes = ["target"] * len(scores) if labels is None else _few_classes(np.asarray(labels))
    scatter(ax, scores, classes, eigenvalues=eigenvalues, title=title)
    if labels is not None or background is not None:
        style = {"title": legend_title, "fontsize": 8, "title_fontsize": 8, "markerscale": 1.8}
        for handle in filter(None, ax.legend(**style).legend_handles):
            handle.set_alpha(1.0)
    if has_one_axis:
        ax.set(ylim=(-1.0, 1.0), yticks=[], ylabel="")


def _check_labels(labels: NDArray[Any], n_samples: int) -> NDArray[Any]:
    if labels.shape != (n_samples,):
        raise ValueError(f"labels has shape {labels.shape}; it must be ({n_samples},)")
    return labels


def _few_classes(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels as text, the rarest put together where colours would repeat."""
    names = np.array([str(label) for label in labels], dtype=object)
    classes, counts = np.unique(names, return_counts=True)
    if len(classes) > len(PALETTE):
        common = classes[np.argsort(-counts, kind="stable")[: len(PALETTE) - 1]]
        names[~np.isin(names, common)] = "other"
    return names
