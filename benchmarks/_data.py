"""The five data sets of the paper's Table I, real where they are to be had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cpcapp.datasets import synthetic

FloatArray = NDArray[np.float64]

MNIST_OVER_GRASS = "MNIST over grass"
_CROP = 28


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
    yield _mnist_over_grass(rng) or _generated(MNIST_OVER_GRASS, 5000, 5000, 784, rng)
    yield _mice_protein() or _generated("Mice protein", 270, 135, 77, rng)
    yield _generated("MHealth", 6451, 3072, 23, rng)
    yield _generated("Leukemia", 7898, 1985, 500, rng)


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


def _generated(name: str, n: int, n_background: int, m: int, rng: np.random.Generator) -> Pair:
    target = correlated(n, m, rng, signal=True)
    return Pair(name, target, correlated(n_background, m, rng), "generated")


def _folder(name: str) -> Path | None:
    root = os.environ.get("CPCAPP_DATA")
    folder = Path(root) / name if root else None
    return folder if folder is not None and folder.is_dir() else None


def _mnist_over_grass(rng: np.random.Generator, n: int = 5000) -> Pair | None:
    mnist, grass = _folder("mnist"), _folder("grass")
    if mnist is None or grass is None:
        return None
    with np.load(mnist / "mnist.npz") as archive:
        digits = archive["x_train"][archive["y_train"] <= 1]
    photos = _grey_photos(grass)
    target = _crops(photos, n, rng)
    chosen = rng.choice(len(digits), n, replace=False)
    target += 0.25 / 255.0 * digits[chosen].reshape(n, -1)
    return Pair(MNIST_OVER_GRASS, target, _crops(photos, n, rng), "real")


def _grey_photos(folder: Path) -> list[FloatArray]:
    from PIL import Image

    photos = []
    for path in sorted(folder.glob("*.jpg")):
        with Image.open(path) as photo:
            photos.append(np.asarray(photo.convert("L"), dtype=np.float64) / 255.0)
    return photos


def _crops(photos: list[FloatArray], n: int, rng: np.random.Generator) -> FloatArray:
    crops = np.empty((n, _CROP * _CROP))
    for crop in crops:
        photo = photos[rng.integers(len(photos))]
        top, left = (rng.integers(size - _CROP + 1) for size in photo.shape)
        crop[:] = photo[top : top + _CROP, left : left + _CROP].ravel()
    return crops


def _mice_protein() -> Pair | None:
    folder = _folder("mice_protein")
    if folder is None:
        return None
    import pandas as pd

    table = pd.read_csv(folder / "Data_Cortex_Nuclear.csv")
    values = table.filter(regex="_N$").fillna(0.0).to_numpy(dtype=np.float64)
    saline = table["Treatment"] == "Saline"
    target = saline & (table["Behavior"] == "S/C")
    background = saline & (table["Behavior"] == "C/S") & (table["Genotype"] == "Control")
    sets = (_standardised(values[rows.to_numpy()]) for rows in (target, background))
    return Pair("Mice protein", *sets, "real")


def _standardised(rows: FloatArray) -> FloatArray:
    deviation = rows.std(axis=0)
    return np.ascontiguousarray(
        (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    )
