"""``cpcapp demo``: the main job on examples that need no download."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from cpcapp.cli._errors import UserError, require
from cpcapp.datasets import ContrastData, mice_like, synthetic
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.moments import FloatArray


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="contrast two generated data sets and draw the result",
        description="Contrast the paper's synthetic example and one shaped like the mice protein "
        "experiment with PCA, cPCA and cPCA++. Prints how well the hidden classes come apart and "
        "writes contrast.png. Nothing is downloaded.",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("cpcapp-demo"),
        metavar="DIR",
        help="folder for the picture (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the data (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("matplotlib", "plot")
    from cpcapp.plotting import scatter_grid

    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed} must be at least 0")
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"can't make the folder {arguments.output}: {error.strerror}") from error
    examples = {
        "synthetic (400 + 400 samples, 30 features)": synthetic(
            noise_variance=100.0, random_state=arguments.seed
        ),
        "mice-like (270 + 135 samples, 77 features)": mice_like(random_state=arguments.seed),
    }
    rows = []
    for title, data in examples.items():
        print(title)
        rows.append((title.partition(" (")[0], data.labels, _views(data)))
    picture = arguments.output / "contrast.png"
    try:
        scatter_grid(rows).savefig(picture, dpi=110)
    except OSError as error:
        raise UserError(f"can't write {picture}: {error.strerror}") from error
    print(f"picture: {picture}")
    return 0


def _views(data: ContrastData) -> list[tuple[str, FloatArray]]:
    """Return the target as each method shows it, and print how well its classes come apart."""
    methods = {"PCA": CPCAPlusPlus(), "cPCA": CPCA(), "cPCA++": CPCAPlusPlus()}
    views = []
    for name, method in methods.items():
        background = None if name == "PCA" else data.background
        start = time.perf_counter()
        scores = method.fit(data.target, background=background).transform(data.target)
        seconds = time.perf_counter() - start
        ari = _agreement(scores, data.labels)
        print(f"  {name:7} adjusted Rand index {ari:5.2f}   {1e3 * seconds:7.1f} ms")
        chosen = f" (α = {method.alpha_:.3g})" if isinstance(method, CPCA) else ""
        views.append((f"{name}{chosen}   ARI {ari:.2f}", scores))
    count = CPCAPlusPlus("auto").fit(data.target, background=data.background).n_components_
    print(f"  components above sampling noise: {count}")
    return views


def _agreement(scores: FloatArray, labels: Any) -> float:
    """Return the adjusted Rand index of k-means on the scores and the true classes."""
    scores = scores / scores.std(axis=0)
    clusters = KMeans(len(np.unique(labels)), n_init=10, random_state=0).fit_predict(scores)
    return float(adjusted_rand_score(labels, clusters))
