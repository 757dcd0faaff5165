"""The five data sets of the paper's Table I, real where they are to be had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cpcapp.experiments.timing import TABLES, shapes
from cpcapp.experiments.timing import correlated_rows as correlated

# Measured is what is at hand: a benchmark fetches nothing.
os.environ.setdefault("CPCAPP_OFFLINE", "1")

FloatArray = NDArray[np.float64]

MNIST_OVER_GRASS = TABLES["mnist_over_grass"].title

__all__ = ["MNIST_OVER_GRASS", "FloatArray", "Pair", "correlated", "table_one"]


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
    for shape in shapes(seed):
        source = "real" if shape.real else "generated"
        yield Pair(shape.paper.title, shape.target, shape.background, source)
