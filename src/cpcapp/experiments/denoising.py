"""Taking the grass away from under a digit (Appendix B)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cpcapp.contrast.difference import solve_difference
from cpcapp.datasets import ContrastData, mnist_over_grass
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.experiments.comparison import alphas_of, describe_data
from cpcapp.experiments.figures import image_grid, legend_beside, png_of
from cpcapp.experiments.results import (
    Picture,
    Progress,
    Result,
    Settings,
    Table,
    load_data,
    result_of,
)
from cpcapp.moments import Moments
from cpcapp.moments.rows import FloatArray
from cpcapp.plotting import MARKERS, PALETTE

PAPER_K = 3
BEST = "cPCA, best α *"
OAS = "cPCA++, OAS"
_COMPONENTS = (1, 2, 3, 5, 10, 20, 50)
_QUICK_COMPONENTS = (1, 3, 10)
_AVERAGE = "the average digit"
_ERRORS = ("squared", "brightness_aside", "likeness")


def run(settings: Settings, progress: Progress) -> Result:
    """Fit PCA, cPCA and cPCA++ and compare what they make of new pictures with the digits."""
    n, n_new = (1500, 300) if settings.quick else (5000, 1000)
    seed = settings.seed
    data = load_data(mnist_over_grass, n_target=n + n_new, n_background=n, random_state=seed)
    fitted, new = split(data, n)
    components = _QUICK_COMPONENTS if settings.quick else _COMPONENTS
    digits: dict[int, dict[str, FloatArray]] = {}
    for i, k in enumerate(components):
        digits[k] = denoise(fitted, new, k, settings)
        progress((i + 1) / len(components))
    methods = list(digits[PAPER_K])
    errors = {name: [errors_of(digits[k][name], new) for k in components] for name in methods}
    grass = fitted.background.mean(axis=0)
    average = np.broadcast_to(fitted.target.mean(axis=0) - grass, new.target.shape)
    controls = {
        "the picture, nothing done": errors_of(new.target - grass, new),
        _AVERAGE: errors_of(average, new),
    }
    unit = controls[_AVERAGE] * [1, 1, 0] + [0, 0, 1]  # likeness is not divided
    relative = {name: np.array(each) / unit for name, each in errors.items()}
    levels = {name: each / unit for name, each in controls.items()}

    papers = {name: each[components.index(PAPER_K)] for name, each in relative.items()}
    said = ", ".join(f"{n} {whole:.2f} ({aside:.2f})" for n, (whole, aside, _) in papers.items())
    plus = CPCAPlusPlus(components[-1]).fit(fitted.target, background=fitted.background)
    n_special = int((plus.eigenvalues_ > 1.0).sum())
    return result_of(
        "denoising",
        data=f"{describe_data(fitted)} Errors are means over {n_new:,} further pictures.",
        findings=(
            f"Squared error with K = {PAPER_K}, average digit = 1, and in brackets with the "
            f"brightness of each picture aside: {said}.",
            f"With K = {components[-1]} the error of cPCA++ is {relative['cPCA++'][-1, 0]:.2f}. "
            "The default loading is made to show classes in few components: of so many "
            f"{n_special} have an eigenvalue above 1, and the others show what both sets share, "
            'which is grass. To denoise with many components take loading="oas", which loads less: '
            f"{relative[OAS][-1, 0]:.2f}.",
        ),
        pictures=(_pictures(new, digits[PAPER_K]), _curves(components, relative, levels)),
        tables=(
            Table(
                f"K = {PAPER_K}, as in the paper",
                ("method", "squared error", "brightness aside", "likeness"),
                [(name, *each.tolist()) for name, each in (papers | levels).items()],
                "Errors over those of the average digit: less is better. Likeness: 1 is the same "
                f"digit. The average digit has a mean squared error of {unit[0]:.4g}, with grass "
                "in [0, 1] and digits in [0, 0.25]. The row marked * used the clean digits.",
            ),
            Table(
                "Squared error, average digit = 1, for each number of components",
                ("method", *(f"K = {k}" for k in components)),
                [(name, *each[:, 0].tolist()) for name, each in relative.items()],
            ),
        ),
        numbers={
            "K": list(components),
            "n_tested": n_new,
            "methods": {name: [_named(each) for each in sweep] for name, sweep in errors.items()},
            "controls": {name: _named(each) for name, each in controls.items()},
        },
    )


def split(data: ContrastData, n: int) -> tuple[ContrastData, ContrastData]:
    """Return the first n pictures, to fit methods to, and the others, to denoise."""
    names = ("target", "labels", "clean")
    first, other = (
        replace(data, **{name: getattr(data, name)[rows] for name in names})
        for rows in (slice(n), slice(n, None))
    )
    return first, other


def denoise(
    fitted: ContrastData, new: ContrastData, k: int, settings: Settings
) -> dict[str, FloatArray]:
    """Return the digits that each method finds in new pictures, with k components.

    ``denoise`` of an estimator gives a picture: the mean of the target, grass and digit, is added
    back. The digit alone is that picture without the mean of the grass, which the background
    tells. The same is subtracted for all methods, PCA too, so that they differ in their filters
    only. ``new.clean`` picks the best α of cPCA.
    """
    X, B = fitted.target, fitted.background
    mean = X.mean(axis=0)
    _, of_each_alpha = solve_difference(Moments.of(X), Moments.of(B), k, alphas_of(settings))
    oas = CPCAPlusPlus(k, loading="oas")
    # A generator: a picture of each α at a time.
    swept = ((new.target - mean) @ F @ F.T + mean - B.mean(axis=0) for F in of_each_alpha)
    pictures = {
        "PCA": CPCAPlusPlus(k).fit(X).denoise(new.target),
        "cPCA": CPCA(k).fit(X, background=B).denoise(new.target),
        BEST: min(swept, key=lambda digits: errors_of(digits, new)[0]) + B.mean(axis=0),
        "cPCA++": CPCAPlusPlus(k).fit(X, background=B).denoise(new.target),
        OAS: oas.fit(X, background=B).denoise(new.target),
    }
    return {name: rows - B.mean(axis=0) for name, rows in pictures.items()}


def errors_of(digits: FloatArray, new: ContrastData) -> FloatArray:
    """Return how far digits are from the clean ones, as means over pictures.

    First the squared difference of the pixels; then the same after each picture, found and clean,
    has lost its own mean; then the correlation of the pixels, their likeness: what the eye sees in
    pictures that are scaled one by one.
    """
    clean: Any = new.clean
    shown, true = (rows - rows.mean(axis=1, keepdims=True) for rows in (digits, clean))
    lengths = np.linalg.norm(shown, axis=1) * np.linalg.norm(true, axis=1)
    likeness = (shown * true).sum(axis=1) / np.where(lengths > 0.0, lengths, 1.0)
    return np.array([((digits - clean) ** 2).mean(), ((shown - true) ** 2).mean(), likeness.mean()])


def _named(errors: FloatArray) -> dict[str, float]:
    return dict(zip(_ERRORS, errors.tolist(), strict=True))


def _pictures(new: ContrastData, digits: dict[str, FloatArray]) -> Picture:
    rows: dict[str, Any] = {"over grass": new.target} | digits | {"digit alone": new.clean}
    # Zeros first, as in the paper's figure.
    first = np.concatenate([np.flatnonzero(new.labels == label)[:3] for label in (0, 1)])
    return Picture(
        "denoising-pictures",
        png_of(image_grid({name: pictures[first] for name, pictures in rows.items()})),
        alt=f"Three zeros and three ones over grass, what each method makes of them with "
        f"{PAPER_K} components, and the digits alone.",
        caption=f"K = {PAPER_K}, as in the paper. Each picture is scaled to its own darkest and "
        "lightest point.",
        shareable=False,
    )


def _curves(
    components: tuple[int, ...], relative: dict[str, FloatArray], levels: dict[str, FloatArray]
) -> Picture:
    """Draw errors over the number of components, and levels that do not depend on it."""
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    ax = figure.subplots()
    for (name, each), colour, marker in zip(relative.items(), PALETTE, MARKERS, strict=False):
        ax.plot(components, each[:, 1], marker=marker, ms=5, color=colour, label=name)
    for (name, level), style in zip(levels.items(), ("--", ":"), strict=True):
        ax.axhline(level[1], color="0.35", linestyle=style, label=name)
    ax.set(xscale="log", yscale="log", xlabel="components K")
    ax.set_ylabel("squared error, average digit = 1")
    ax.set_xticks(components, [str(k) for k in components])
    ax.set_xticks([], minor=True)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:g}")
    legend_beside(ax)
    ends = ", ".join(f"{n} {each[0, 1]:.2f} to {each[-1, 1]:.2f}" for n, each in relative.items())
    return Picture(
        "denoising-errors",
        png_of(figure),
        alt=f"Squared error against the number of components, from {components[0]} to "
        f"{components[-1]}: {ends}, where 1 is the error of the average digit.",
        caption="Error of the denoised digit, the brightness of each picture aside, against the "
        "number of components kept.",
    )
