"""How long the methods take, on the five shapes of the paper's Tables I and II."""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from sklearn.manifold import TSNE

from cpcapp import datasets
from cpcapp.contrast.difference import solve_difference
from cpcapp.estimators import CPCAPlusPlus
from cpcapp.experiments.comparison import ALPHAS
from cpcapp.experiments.results import (
    DataProblem,
    Progress,
    Result,
    Settings,
    Table,
    load_data,
    result_of,
)
from cpcapp.moments import Moments
from cpcapp.moments.rows import FloatArray

_PAUSE = 0.05  # for the threads of the last call to go to sleep
_QUICK_TSNE_ROWS = 400

Seconds = dict[str, float | None]


class TableRow(NamedTuple):
    """A data set of the paper's Tables I and II: its size, and the seconds of each method."""

    title: str
    n_target: int
    n_background: int
    n_features: int
    cpca: float
    tsne: float
    cpca_plus_plus: float


TABLES = {
    "synthetic": TableRow("Synthetic", 400, 400, 30, 0.062, 6.62, 0.0017),
    "mnist_over_grass": TableRow("MNIST over grass", 5000, 5000, 784, 26.0, 811.0, 1.00),
    "mice_protein": TableRow("Mice protein expression", 270, 135, 77, 0.13, 2.23, 0.0033),
    "mhealth": TableRow("MHealth measurements", 6451, 3072, 23, 0.091, 1388.0, 0.00065),
    "leukemia": TableRow("Leukemia, single cells", 7898, 1985, 500, 11.70, 2155.0, 0.86),
}
# As printed below Table II; they are the means of the five ratios.
SPEED_UP_OVER_CPCA = 51
SPEED_UP_OVER_TSNE = 428_654


class Shape(NamedTuple):
    """Data with the shape of a row of Table I, real where they are here."""

    name: str
    paper: TableRow
    target: FloatArray
    background: FloatArray
    real: bool


def run(settings: Settings, progress: Progress) -> Result:
    """Time cPCA with its sweep, t-SNE and cPCA++ on all shapes, taking turns.

    On one thread, where the processor's time is what a quiet machine would take: other programs
    slow down long calls much more than short ones.
    """
    seconds: dict[str, Seconds] = {}
    numbers: dict[str, dict[str, int | bool]] = {}
    rows = []
    for shape in shapes(settings.seed):
        p, (n, m), n_background = shape.paper, shape.target.shape, len(shape.background)
        times = seconds[shape.name] = time_methods(shape, settings)
        numbers[shape.name] = {
            "n_target": n,
            "n_background": n_background,
            "n_features": m,
            "real": shape.real,
        }
        kind = "real" if shape.real else "generated"
        each = (times[method] for method in ("cPCA", "t-SNE", "cPCA++"))
        ratios = (_ratio(times, "cPCA"), _ratio(times, "t-SNE"))
        papers = (p.cpca / p.cpca_plus_plus, p.tsne / p.cpca_plus_plus)
        size = f"{n:,} + {n_background:,} × {m}"
        rows.append((p.title, size, kind, *each, *ratios, *papers))
        progress(len(rows) / len(TABLES))
    # Means of the ratios, as the paper has them; None if one is missing.
    of_all = [[_ratio(times, m) for times in seconds.values()] for m in ("cPCA", "t-SNE")]
    known = [[ratio for ratio in each if ratio is not None] for each in of_all]
    average = [float(np.mean(k)) if len(k) == len(seconds) else None for k in known]
    papers = (float(SPEED_UP_OVER_CPCA), float(SPEED_UP_OVER_TSNE))
    rows.append(("average", *(None,) * 5, *average, *papers))

    said = f"{average[0]:.0f} times as fast as cPCA (the paper: {SPEED_UP_OVER_CPCA})"
    if average[1] is not None:
        said += (
            f", and {average[1]:,.0f} times as fast as t-SNE (the paper: {SPEED_UP_OVER_TSNE:,})"
        )
    short = " t-SNE is left out above 400 rows, as this is a quick run." if settings.quick else ""
    drawn = [name for name, each in numbers.items() if not each["real"] and name != "synthetic"]
    source = "All data are real but for the synthetic example."
    if drawn:
        titles = ", ".join(TABLES[name].title for name in drawn)
        source = f"Generated data of the same shape stand in for: {titles}."
    machine = (
        f"{os.cpu_count()} cores, {platform.system()} on {platform.machine()}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}"
    )
    return result_of(
        "timing",
        data=f"{machine}. {source}",
        findings=(f"On average over the shapes cPCA++ is {said}.{short}",),
        tables=(
            Table(
                "Seconds, and times as long as cPCA++",
                (
                    *("data", "target + background × features", "source", "cPCA", "t-SNE"),
                    *("cPCA++", "times: cPCA", "times: t-SNE"),
                    *("the paper's: cPCA", "the paper's: t-SNE"),
                ),
                rows,
                "Processor time, all methods on one thread. Medians of rounds in which cPCA and "
                "cPCA++ took turns; t-SNE once.",
            ),
        ),
        numbers=numbers,
        timings={
            "machine": machine,
            "seconds": seconds,
            "average speed-up": dict(zip(("cPCA", "t-SNE"), average, strict=True)),
        },
    )


def shapes(seed: int) -> Iterator[Shape]:
    """Yield data of the five shapes one by one: real ones, or generated ones of that shape."""
    rng = np.random.default_rng(seed)
    for name, row in TABLES.items():
        sizes = ((row.n_target, row.n_features), (row.n_background, row.n_features))
        options = {"random_state": seed} if name in ("synthetic", "mnist_over_grass") else {}
        try:
            data = load_data(getattr(datasets, name), **options)
        except DataProblem:
            data = None
        if data is not None and (data.target.shape, data.background.shape) == sizes:
            yield Shape(name, row, data.target, data.background, real=name != "synthetic")
        else:
            target = correlated_rows(*sizes[0], rng, signal=True)
            yield Shape(name, row, target, correlated_rows(*sizes[1], rng), real=False)


def correlated_rows(
    n: int, m: int, rng: np.random.Generator, *, signal: bool = False
) -> FloatArray:
    """Draw rows that vary together as measurements do, and along two more directions if asked."""
    population = np.random.default_rng(0)  # the same for target and background
    n_factors = min(20, m)
    strengths = 3.0 / np.arange(1, n_factors + 1)
    factors = population.standard_normal((n_factors, m)) * strengths[:, None]
    noise = population.uniform(0.3, 1.0, m)
    mean = population.standard_normal(m)
    directions = population.standard_normal((2, m)) / np.sqrt(m)
    rows: FloatArray = rng.standard_normal((n, m))
    rows *= noise
    rows += rng.standard_normal((n, n_factors)) @ factors
    rows += mean
    if signal:
        rows += rng.choice([-3.0, 3.0], (n, 2)) @ directions
    return rows


def time_methods(shape: Shape, settings: Settings) -> Seconds:
    """Return the seconds of each method to fit both sets and reduce the target to two components.

    They are medians of rounds in which cPCA and cPCA++ take turns; t-SNE once, and in a quick run
    on small data only.
    """
    X, B = shape.target, shape.background

    def sweep_cpca() -> object:
        _, filters = solve_difference(Moments.of(X), Moments.of(B), 2, ALPHAS)
        mean = X.mean(axis=0)
        return [(X - mean) @ of_one_alpha for of_one_alpha in filters]

    calls: dict[str, Callable[[], object]] = {
        "cPCA": sweep_cpca,
        "cPCA++": lambda: CPCAPlusPlus().fit(X, background=B).transform(X),
    }
    large = X.shape[1] >= 500
    rounds = (1 if large else 3) if settings.quick else (5 if large else 15)
    if not (settings.quick and large):
        for call in calls.values():
            call()  # first calls pay for imports and fresh memory
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name in list(calls)[:: -1 if i % 2 else 1]:
            seconds[name].append(_cpu_seconds(calls[name]))
    times: Seconds = {name: float(np.median(each)) for name, each in seconds.items()}
    times["t-SNE"] = None
    if not settings.quick or len(X) <= _QUICK_TSNE_ROWS:
        times["t-SNE"] = _cpu_seconds(lambda: TSNE(random_state=settings.seed).fit_transform(X))
    return times


def _cpu_seconds(call: Callable[[], object]) -> float:
    gc.collect()
    time.sleep(_PAUSE)
    start = time.process_time()
    call()
    return time.process_time() - start


def _ratio(times: Seconds, method: str) -> float | None:
    slow, fast = times[method], times["cPCA++"]
    return None if slow is None or fast is None else slow / fast
