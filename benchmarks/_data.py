"""The five data sets of the paper's Table I, real where they are to be had."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cpcapp.datasets import (
    ContrastData,
    DataNotFoundError,
    leukemia,
    mhealth,
    mice_protein,
    mnist_over_grass,
    synthetic,
)

# Measured is what is at hand: a benchmark fetches nothing.
os.environ.setdefault("CPCAPP_OFFLINE", "1")

FloatArray = NDArray[np.float64]

MNIST_OVER_GRASS = "MNIST over grass"


@dataclass(frozen=True)
class Pair:
    """A target and a background set."""

    name: str
    target: FloatArray
    background: FloatArray
    source: str

    @property
    def n_features(self) -> int:
        return self.target.shape[1]

    @property
    def shape(self) -> str:
        return f"{len(self.target)}+{len(self.background)} x {self.n_features}"

    def far_from_zero(self) -> Pair:
        """Return the same data ten deviations off, where products need centred rows."""
        offset = 10.0 * self.target.std(axis=0)
        target, background = self.target + offset, self.background + offset
        return Pair(f"{self.name}, far from zero", target, background, self.source)


def table_one(seed: int = 0) -> Iterator[Pair]:
    """Yield the pairs one by one, so that only one is held at a time."""
    rng = np.random.default_rng(seed)
    paper = synthetic(random_state=rng)
    yield Pair("Synthetic", paper.target, paper.background, "generated, as in the paper")
    yield _real(MNIST_OVER_GRASS, partial(mnist_over_grass, random_state=rng)) or _generated(
        MNIST_OVER_GRASS, 5000, 5000, 784, rng
    )
    yield _real("Mice protein", mice_protein) or _generated("Mice protein", 270, 135, 77, rng)
    yield _real("MHealth", mhealth) or _generated("MHealth", 6451, 3072, 23, rng)
    yield _real("Leukemia", leukemia) or _generated("Leukemia", 7898, 1985, 500, rng)


def correlated(
    n: int, m: int, rng: np.random.Generator, *, like: int = 0, signal: bool = False
) -> FloatArray:
    """Draw samples of one population (told by ``like``), with a signal of two directions."""
    population = np.random.default_rng(like)
    n_factors = min(20, m)
    factors = (
        population.standard_normal((n_factors, m)) * (3.0 / np.arange(1, n_factors + 1))[:, None]
    )
    own = population.uniform(0.3, 1.0, m)
    mean = population.standard_normal(m)
    directions = population.standard_normal((2, m)) / np.sqrt(m)
    rows = rng.standard_normal((n, m))
    rows *= own
    rows += rng.standard_normal((n, n_factors)) @ factors
    rows += mean
    if signal:
        rows += rng.choice([-3.0, 3.0], (n, 2)) @ directions
    return rows


def _real(name: str, load: Callable[[], ContrastData]) -> Pair | None:
    try:
        data = load()
    except DataNotFoundError:
        return None
    return Pair(name, data.target, data.background, "real")


def _generated(name: str, n: int, n_background: int, m: int, rng: np.random.Generator) -> Pair:
    target = correlated(n, m, rng, signal=True)
    return Pair(name, target, correlated(n_background, m, rng), "generated")
