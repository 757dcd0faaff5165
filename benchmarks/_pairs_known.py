"""The labelled pairs of the first comparison: digits over photos, mice, tables under factors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray

from cpcapp.datasets import ContrastData, mice_like, synthetic

FloatArray = NDArray[np.float64]
Triple = tuple[FloatArray, FloatArray, NDArray[np.intp]]


# Family, name, and what makes the pair.
Row = tuple[str, str, Callable[[], Triple]]


def known() -> Iterator[Row]:
    """Yield the pairs; those whose files are missing are left out."""
    yield from (*_over_photos(), *_mice(), *_generated(), *_tables())


def _over_photos() -> Iterator[Row]:
    mnist, grass, bsds = (_folder(name) for name in ("mnist", "grass", "bsds500"))
    rng = np.random.default_rng(2)
    grey = {}
    if mnist and grass:
        with np.load(mnist / "mnist.npz") as archive:
            digits = archive["x_train"].reshape(-1, 784) / 255.0, archive["y_train"]
        grey["grass"] = _grey_photos(grass)
        name = "MNIST 0/1 at .25 over grass, 5000"
        yield "MNIST over grass", name, _over(digits, grey["grass"], (0, 1), 0.25, 5000, 0)
    if bsds:
        grey["BSDS"] = _grey_photos(bsds / "images" / "train")[:100]
    for photos, (low, high), counts in (
        ("grass", (0.15, 0.4), (0, 0, 0, 0, 1000, 1000)),
        ("BSDS", (0.4, 0.8), (2000, 1200, 1000, 1000)),
    ):
        for seed, n in enumerate(counts):
            pair = tuple(int(d) for d in rng.choice(10, 2, replace=False))
            weight = round(float(rng.uniform(low, high)), 2)
            if n and photos in grey and mnist:  # larger ones take long, and are much the same
                name = f"MNIST {pair[0]}/{pair[1]} at {weight:g} over {photos}, {n}"
                make = _over(digits, grey[photos], pair, weight, n, 10 + seed)
                yield f"MNIST over {photos}", name, make
    if bsds:
        small = sklearn.datasets.load_digits()
        for seed in range(6):
            pair = tuple(int(d) for d in rng.choice(10, 2, replace=False))
            weight = round(float(rng.uniform(0.3, 0.6)), 2)
            name = f"8 x 8 digits {pair[0]}/{pair[1]} at {weight:g} over BSDS"
            rows = small.data / 16.0, small.target
            yield (
                "8 x 8 digits over BSDS",
                name,
                _over(rows, grey["BSDS"], pair, weight, None, seed),
            )


def _over(
    digits: tuple[FloatArray, NDArray[np.intp]],
    photos: list[FloatArray],
    pair: tuple[int, ...],
    weight: float,
    n: int | None,
    seed: int,
) -> Callable[[], Triple]:
    def make() -> Triple:
        rng = np.random.default_rng(seed)
        rows, labels = digits
        of_pair = np.flatnonzero(np.isin(labels, pair))
        chosen = of_pair if n is None else rng.choice(of_pair, n, replace=False)
        side = round(rows.shape[1] ** 0.5)
        crops = [_crop(photos, side, rng) for _ in range(2 * len(chosen))]
        target, background = np.split(np.array(crops), 2)
        return target + weight * rows[chosen], background, labels[chosen]

    return make


def _crop(photos: list[FloatArray], side: int, rng: np.random.Generator) -> FloatArray:
    photo = photos[rng.integers(len(photos))]
    top, left = (rng.integers(size - side + 1) for size in photo.shape)
    return photo[top : top + side, left : left + side].ravel()


def _mice() -> Iterator[Row]:
    folder = _folder("mice_protein")
    if folder is None:
        return
    import pandas as pd

    table = pd.read_csv(folder / "Data_Cortex_Nuclear.csv")
    values = table.filter(regex="_N$").fillna(0.0).to_numpy(dtype=np.float64)

    def rows(query: str) -> NDArray[np.intp]:
        return table.query(query).index.to_numpy()

    saline, memantine = "Treatment == 'Saline'", "Treatment == 'Memantine'"
    shocked, control = "Behavior == 'S/C'", "Genotype == 'Control'"
    unshocked = "Behavior == 'C/S'"
    for name, target, background, label in (
        ("as in the paper", (saline, shocked), (saline, unshocked, control), "Genotype"),
        ("with memantine", (memantine, shocked), (memantine, unshocked, control), "Genotype"),
        ("sets exchanged", (saline, unshocked), (saline, shocked, control), "Genotype"),
        (
            "sets exchanged, memantine",
            (memantine, unshocked),
            (memantine, shocked, control),
            "Genotype",
        ),
        (
            "behaviour of trisomic mice",
            (saline, "Genotype == 'Ts65Dn'"),
            (saline, unshocked, control),
            "Behavior",
        ),
        ("treatment", (shocked, control), (saline, unshocked, control), "Treatment"),
    ):
        f, b = rows(" and ".join(target)), rows(" and ".join(background))
        labels = pd.factorize(table[label][f])[0]
        sets = _standardised(values[f]), _standardised(values[b]), labels
        yield "Mice protein", f"Mice protein, {name}", lambda sets=sets: sets


def subjects() -> Iterator[Row]:
    """Yield the ten subjects of mHealth: knees bending and cycling against lying, in raw units."""
    folder = _folder("mhealth_windows")
    if folder is None:
        return
    with np.load(folder / "mhealth_windows.npz") as archive:
        rows, activity, subject = (archive[name] for name in ("X", "y", "subject"))
    for number in np.unique(subject):
        f, b = ((subject == number) & np.isin(activity, its) for its in ((8, 9), (3,)))
        sets = rows[f].astype(np.float64), rows[b].astype(np.float64), activity[f]
        yield "mHealth", f"mHealth, subject {number}", lambda sets=sets: sets


def _generated() -> Iterator[Row]:
    def of(data: ContrastData) -> Callable[[], Triple]:
        return lambda: (data.target, data.background, data.labels)

    for seed, noise in enumerate((10.0, 30.0, 60.0)):
        data = synthetic(noise_variance=noise, random_state=seed)
        yield "synthetic", f"synthetic, noise {noise:g}", of(data)
    for seed, (n_features, n_background) in enumerate(
        ((77, 135), (77, 135), (77, 400), (40, 135), (150, 135), (77, 90))
    ):
        data = mice_like(270, n_background, n_features, random_state=seed)
        yield "mice_like", f"mice_like {seed}, {n_background} of {n_features} features", of(data)


def _tables() -> Iterator[Row]:
    for seed, (name, strength, n, keep) in enumerate(
        (
            ("wine", 2.0, None, None),
            ("wine", 4.0, None, None),
            ("wine", 8.0, None, None),
            ("breast_cancer", 2.0, None, None),
            ("breast_cancer", 4.0, 100, None),
            ("breast_cancer", 8.0, 60, None),
            ("digits", 3.0, None, (0, 1)),
            ("digits", 3.0, None, (3, 5)),
            ("iris", 3.0, None, None),
        )
    ):
        label = f"{name} under factors of strength {strength:g}" + (f", {keep}" if keep else "")
        yield name, label, _under_factors(name, strength, n, keep, seed)
    for name, target, other in (
        ("wine", (0, 1), 2),
        ("wine", (1, 2), 0),
        ("digits", (3, 5), 8),
        ("digits", (4, 9), 1),
        ("iris", (1, 2), 0),
    ):
        data = getattr(sklearn.datasets, f"load_{name}")()
        of_target = np.isin(data.target, target)
        sets = data.data[of_target], data.data[data.target == other], data.target[of_target]
        yield name, f"{name} {target} against {other}", lambda sets=sets: sets


def _under_factors(
    name: str, strength: float, n_background: int | None, keep: tuple[int, ...] | None, seed: int
) -> Callable[[], Triple]:
    """Bury a table under strong common factors, which the background has as well."""

    def make() -> Triple:
        rng = np.random.default_rng(seed)
        data = getattr(sklearn.datasets, f"load_{name}")()
        kept = np.isin(data.target, keep) if keep else np.ones(len(data.target), dtype=bool)
        rows, labels = _standardised(data.data[kept]), data.target[kept]
        m = rows.shape[1]
        factors = rng.standard_normal((max(3, m // 4), m)) * strength / 3**0.5
        factors *= rng.uniform(0.3, 1.0, (len(factors), 1))

        def nuisance(n: int) -> FloatArray:
            common = rng.standard_normal((n, len(factors))) @ factors
            return common + 0.5 * rng.standard_normal((n, m))

        return rows + nuisance(len(rows)), nuisance(n_background or len(rows)), labels

    return make


def _folder(name: str) -> Path | None:
    root = os.environ.get("CPCAPP_DATA")
    folder = Path(root) / name if root else None
    return folder if folder is not None and folder.is_dir() else None


def _grey_photos(folder: Path) -> list[FloatArray]:
    from PIL import Image

    photos = []
    for path in sorted(folder.glob("*.jpg")):
        with Image.open(path) as photo:
            photos.append(np.asarray(photo.convert("L"), dtype=np.float64) / 255.0)
    return photos


def _standardised(rows: FloatArray) -> FloatArray:
    deviation = rows.std(axis=0)
    return np.ascontiguousarray(
        (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    )
