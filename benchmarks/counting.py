"""Are counts, p-values and intervals as sure as they say.

False alarms are how often `permutation_test` counts anything when both sets are samples of one
population; the law of F-matrices is what is used where only moments are at hand. Power is how often
it counts something, and exactly what is there, when the target varies more than the background
along some directions. p-values are those of new background rows, so the share below
a level should be at most the level. Coverage is how often the interval of a held-out contrast holds
the contrast that the filters have in the population.

    python benchmarks/counting.py [--repetitions 100] [--output results/counting.json]

A run that was cut short goes on where it stopped, if the code is the same.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cpcapp
from _machine import describe_machine, load_average
from _report import machine_line, table
from cpcapp.contrast.solve import solve_contrast
from cpcapp.estimators.significance import permutation_test
from cpcapp.inference.held_out import held_out
from cpcapp.inference.noise import count_components
from cpcapp.inference.permutation import PermutationTest, count_components_of
from cpcapp.inference.power import calibrate
from cpcapp.moments.moments import Moments
from cpcapp.moments.sample import make_sample, mix_samples

FloatArray = NDArray[np.float64]
Rng = np.random.Generator
Row = dict[str, Any]
Measure = Callable[[int], Row]
KINDS = ["Gaussian", "t5 rows", "lognormal", "rare binary"]


def draw(kind: str, rng: Rng, n: int, p: int) -> FloatArray:
    if kind == "Gaussian":
        return rng.normal(size=(n, p))
    if kind == "t5 rows":  # one scale for all features of a row
        return rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)
    if kind == "lognormal":
        return np.exp(rng.normal(size=(n, p)))
    return (rng.random((n, p)) < 0.03).astype(np.float64)  # rare binary


def draw_centred(kind: str, rng: Rng, n: int, p: int) -> FloatArray:
    return draw(kind, rng, n, p) - (np.exp(0.5) if kind == "lognormal" else 0.0)


# -- false alarms --------------------------------------------------------------------------

Test = Callable[[str, Rng, int], PermutationTest]


def plain(n_f: int, n_b: int, p: int, apart: float = 0.0) -> Test:
    def test(kind: str, rng: Rng, seed: int) -> PermutationTest:
        X, B = draw(kind, rng, n_f, p), draw(kind, rng, n_b, p)
        return permutation_test(X + apart * rng.normal(size=p), B, random_state=seed)

    return test


def weighted(unequal: bool) -> Test:
    def test(kind: str, rng: Rng, seed: int) -> PermutationTest:
        X, B = draw(kind, rng, 80, 40), draw(kind, rng, 80, 40)
        weights = [rng.exponential(size=80) if unequal else np.ones(80) for _ in "fb"]
        return permutation_test(
            X,
            B,
            sample_weight=weights[0],
            background_sample_weight=weights[1],
            random_state=seed,
        )

    return test


def grouped(n_groups: int, copies: int, p: int, share: float, apart: float = 0.0) -> Test:
    """Rows of one group share some of their variance: all of it where they are copies."""

    def test(kind: str, rng: Rng, seed: int) -> PermutationTest:
        labels = np.repeat(np.arange(n_groups), copies)
        sets = [
            share * draw(kind, rng, n_groups, p)[labels]
            + (1.0 - share) * draw(kind, rng, len(labels), p)
            for _ in "fb"
        ]
        return permutation_test(
            sets[0] + apart * rng.normal(size=p),
            sets[1],
            groups=labels,
            background_groups=labels,
            random_state=seed,
        )

    return test


def with_covariates(n_f: int, n_b: int, p: int, covariates: Callable[[Rng, int], Any]) -> Test:
    def test(kind: str, rng: Rng, seed: int) -> PermutationTest:
        columns = [covariates(rng, n) for n in (n_f, n_b)]
        sets = [draw(kind, rng, n, p) for n in (n_f, n_b)]
        if columns[0].dtype.kind == "i":  # batches, which really differ
            effects = 3.0 * rng.normal(size=(12, p))
            sets = [rows + effects[batch] for rows, batch in zip(sets, columns, strict=True)]
            columns = [batch.astype(str) for batch in columns]
        return permutation_test(
            *sets, covariates=columns[0], background_covariates=columns[1], random_state=seed
        )

    return test


def several(sizes: tuple[int, ...], apart: float) -> Test:
    def test(kind: str, rng: Rng, seed: int) -> PermutationTest:
        parts = [make_sample(draw(kind, rng, n, 40) + i * apart) for i, n in enumerate(sizes)]
        background = mix_samples(parts, np.full(len(parts), 1.0 / len(parts)))
        target = make_sample(draw(kind, rng, 80, 40))
        return count_components_of(target, background, random_state=seed)

    return test


def missing(share_f: float, share_b: float) -> Test:
    """Features are correlated, so that filling in changes their covariance."""

    def test(kind: str, rng: Rng, seed: int) -> PermutationTest:
        mixing = np.eye(20) + 0.5 * rng.normal(size=(20, 20))
        sets = [draw(kind, rng, 100, 20) @ mixing for _ in "fb"]
        for rows, share in zip(sets, (share_f, share_b), strict=True):
            rows[rng.random(rows.shape) < share] = np.nan
        return permutation_test(*sets, missing="pairwise", random_state=seed)

    return test


CASES: dict[str, Test] = {
    "200 + 200 x 10": plain(200, 200, 10),
    "80 + 80 x 40": plain(80, 80, 40),
    "40 + 120 x 60": plain(40, 120, 60),
    "120 + 40 x 60": plain(120, 40, 60),
    "60 + 60 x 180": plain(60, 60, 180),
    "10 + 6 x 50": plain(10, 6, 50),
    "12 + 12 x 8": plain(12, 12, 8),
    "25 + 25 x 40": plain(25, 25, 40),
    "means apart, 25 + 25 x 40": plain(25, 25, 40, 1.0),
    "means apart, 40 + 120 x 60": plain(40, 120, 60, 1.0),
    "means apart, 60 + 60 x 180": plain(60, 60, 180, 1.0),
    "weights of 1, 80 + 80 x 40": weighted(False),
    "unequal weights, 80 + 80 x 40": weighted(True),
    "30 + 30 groups of 4 copies x 20": grouped(30, 4, 20, 1.0),
    "6 + 6 groups of 10 x 8": grouped(6, 10, 8, 0.7),
    "means apart, 15 + 15 groups of 6 x 8": grouped(15, 6, 8, 0.7, 1.0),
    "a noise covariate, 80 + 80 x 40": with_covariates(80, 80, 40, lambda r, n: r.normal(size=n)),
    "12 batches, 400 + 60 x 30": with_covariates(400, 60, 30, lambda r, n: r.integers(12, size=n)),
    "40 covariates, 100 + 100 x 20": with_covariates(
        100, 100, 20, lambda r, n: r.normal(size=(n, 40))
    ),
    "one background in a list, 80 + 80 x 40": several((80,), 0.0),
    "two backgrounds of other means, 80 + 40 + 40 x 40": several((40, 40), 5.0),
    "30 % missing in the target, 100 + 100 x 20": missing(0.3, 0.0),
    "10 % missing in both, 100 + 100 x 20": missing(0.1, 0.1),
}


def false_alarms() -> Iterator[Measure]:
    for name, test in CASES.items():
        yield partial(alarms_of, name, test)


def alarms_of(name: str, test: Test, repetitions: int) -> Row:
    row: Row = {"case": name}
    for kind in KINDS:
        rng = np.random.default_rng(0)
        tests = [test(kind, rng, i) for i in range(repetitions)]
        row[kind] = sum(found.n_components > 0 for found in tests) / repetitions
    return row


def law_alarms() -> Iterator[Measure]:
    for shape in ((200, 200, 10), (40, 120, 60)):
        yield partial(law_alarms_of, shape)


def law_alarms_of(shape: tuple[int, int, int], repetitions: int) -> Row:
    n_f, n_b, p = shape
    row: Row = {"case": f"{n_f} + {n_b} x {p}"}
    for kind in KINDS[:3]:
        rng = np.random.default_rng(0)
        pairs = (
            [Moments.of(draw(kind, rng, n, p)) for n in (n_f, n_b)] for _ in range(repetitions)
        )
        row[kind] = sum(count_components(*pair) > 0 for pair in pairs) / repetitions
    return row


# -- power ---------------------------------------------------------------------------------


def power() -> Iterator[Measure]:
    for shape in ((80, 80, 40), (40, 120, 60), (120, 40, 60), (60, 60, 200)):
        for contrasts in ((4.0,), (8.0,), (16.0, 8.0), (24.0, 16.0, 8.0)):
            for features in ("independent", "correlated"):
                yield partial(power_of, shape, contrasts, features)


def power_of(
    shape: tuple[int, int, int], contrasts: tuple[float, ...], features: str, repetitions: int
) -> Row:
    row: Row = {
        "shape": "{} + {} x {}".format(*shape),
        "contrasts": ", ".join(f"{c:g}" for c in contrasts),
        "features": features,
    }
    for kind in KINDS[:2]:
        counts = np.array(
            [planted(kind, contrasts, shape, features, i) for i in range(repetitions)]
        )
        row[f"{kind}, any"] = float(np.mean(counts > 0))
        row[f"{kind}, exactly"] = float(np.mean(counts == len(contrasts)))
    return row


def planted(
    kind: str, contrasts: tuple[float, ...], shape: tuple[int, int, int], features: str, seed: int
) -> int:
    rng = np.random.default_rng(seed)
    n_f, n_b, p = shape
    X, B = draw(kind, rng, n_f, p), draw(kind, rng, n_b, p)
    X[:, : len(contrasts)] *= np.sqrt(contrasts)
    if features == "correlated":
        mixing = np.linalg.qr(rng.normal(size=(p, p))).Q
        X, B = X @ mixing, B @ mixing
    return permutation_test(X, B, random_state=seed).n_components


def rare_features(kind: str, rng: Rng, n: int, p: int) -> FloatArray:
    if kind == "once":  # one row has another value
        rows = np.zeros((n, p))
        rows[rng.integers(n, size=p), np.arange(p)] = 1.0
        return rows
    if kind == "1 %":
        return (rng.random((n, p)) < 0.01).astype(np.float64)
    if kind == "counts":
        return (rng.random((n, p)) < 0.01) * rng.lognormal(3.0, 1.0, size=(n, p))
    return 5.0 + 1e-6 * rng.normal(size=(n, p))  # tiny noise


def near_constant() -> Iterator[Measure]:
    for p in (30, 200):
        for kind in ("once", "1 %", "counts", "tiny noise"):
            yield partial(near_constant_of, kind, p)


def near_constant_of(kind: str, p: int, repetitions: int) -> Row:
    rng = np.random.default_rng(6)
    shares = {"any": 0, "exactly one": 0, "false alarms": 0}
    for i in range(repetitions):
        X, B = (
            np.hstack([rng.normal(size=(100, 20)), rare_features(kind, rng, 100, p)]) for _ in "fb"
        )
        shares["false alarms"] += permutation_test(X, B, random_state=i).n_components > 0
        X[:, 0] += 5.0 * rng.integers(2, size=100)
        found = permutation_test(X, B, random_state=i).n_components
        shares["any"] += found > 0
        shares["exactly one"] += found == 1
    row = {name: share / repetitions for name, share in shares.items()}
    return {"almost constant features": f"{p}, {kind}"} | row


# -- p-values and intervals ----------------------------------------------------------------


def p_values() -> Iterator[Measure]:
    cases = [(kind, "") for kind in KINDS] + [("Gaussian", "groups"), ("Gaussian", "weights")]
    for shape in ((300, 1500, 20), (300, 150, 60), (100, 100, 200)):
        for kind, given in cases:
            yield partial(p_values_of, shape, kind, given)


def p_values_of(shape: tuple[int, int, int], kind: str, given: str, repetitions: int) -> Row:
    n_f, n_b, p = shape
    rng = np.random.default_rng(3)
    shares = []
    for i in range(repetitions):
        X, B = draw(kind, rng, n_f, p), draw(kind, rng, n_b, p)
        X[:, 0] += 3.0 * B.std() * rng.normal(size=n_f)
        labels = weights = None
        if given == "groups":  # each row stands there twice
            labels = np.arange(n_b) // 2
            B = B[labels]
        if given == "weights":  # half of the rows have twice the deviations, and count less
            loud = rng.random(n_b) < 0.5
            B[loud] *= 2.0
            weights = np.where(loud, 0.05, 1.0)
        target, background = make_sample(X), make_sample(B, groups=labels, weights=weights)
        found = solve_contrast(
            Moments.of(X), Moments.of(background.rows, sample_weight=weights), 1, rows=X
        )
        calibration = calibrate(target, background, found, random_state=i)
        new = draw(kind, rng, 2000, p)
        if given == "weights":
            new[rng.random(2000) < 0.05 / 1.05] *= 2.0
        outputs = (new - background.mean) @ found.filters
        values = calibration.p_value(np.einsum("ij,ij->i", outputs, outputs))
        shares.append([(values <= level).mean() for level in (0.05, 0.01)])
    means = np.mean(shares, axis=0).tolist()
    return {
        "shape": f"{n_f} + {n_b} x {p}",
        "kind": f"{kind}, {given}" if given else kind,
        "up to 0.05": means[0],
        "up to 0.01": means[1],
    }


def coverage() -> Iterator[Measure]:
    shapes = (500, 500, 20), (200, 200, 20), (60, 60, 40), (200, 60, 40), (100, 100, 100)
    for shape in shapes:
        for kind in KINDS[:3]:
            yield partial(coverage_of, shape, kind)


def coverage_of(shape: tuple[int, int, int], kind: str, repetitions: int) -> Row:
    n_f, n_b, p = shape
    scale = np.r_[9.0, 4.0, np.ones(p - 2)]
    inside, fits, estimates, truths, notes = [], [], [], [], []
    for i in range(repetitions):
        rng = np.random.default_rng(i)
        X, B = draw_centred(kind, rng, n_f, p), draw_centred(kind, rng, n_b, p)
        X *= np.sqrt(scale)
        found = solve_contrast(X, B, 2)
        held = held_out(make_sample(X), make_sample(B), found, random_state=i)
        squares = found.filters**2
        truth = scale @ squares / squares.sum(axis=0)
        inside.append((held.intervals[:, 0] <= truth) & (truth <= held.intervals[:, 1]))
        fits.append(found.contrast)
        estimates.append(held.contrasts)
        truths.append(truth)
        notes.append(held.note is not None)
    return {
        "shape": f"{n_f} + {n_b} x {p}",
        "kind": kind,
        "coverage": np.mean(inside, axis=0).tolist(),
        "true": np.median(truths, axis=0).tolist(),
        "held out": np.median(estimates, axis=0).tolist(),
        "of the fit": np.median(fits, axis=0).tolist(),
        "with a note": float(np.mean(notes)),
    }


def seconds() -> Iterator[Measure]:
    for shape in ((400, 30), (1000, 300), (5000, 784), (500, 20_000)):
        yield partial(seconds_of, shape)


def seconds_of(shape: tuple[int, int], _: int) -> Row:
    """Return processor time."""
    rng = np.random.default_rng(5)
    X, B = rng.normal(size=shape), rng.normal(size=shape)
    row: Row = {"shape": "{0} + {0} x {1}".format(*shape)}
    for name in ("nothing there", "one component"):
        start = process_time()
        found = permutation_test(X, B)
        row[name] = process_time() - start
        row[f"{name}: shuffled sets"] = found.n_permutations
        X[:, 0] *= 6.0
    return row


# -- running -------------------------------------------------------------------------------

# Name, title, what measures it, and how many of the repetitions it makes.
SECTIONS: list[tuple[str, str, Callable[[], Iterator[Measure]], float]] = [
    ("false_alarms", "False alarms of the permutation test", false_alarms, 2.0),
    ("law_alarms", "False alarms of the law of F-matrices", law_alarms, 1.0),
    ("power", "How often something, and exactly what is there, is counted", power, 0.6),
    ("near_constant", "Two classes in one feature of 20, among others", near_constant, 0.3),
    ("p_values", "Share of new background with p-values up to a level", p_values, 0.3),
    ("coverage", "Coverage of 95 % intervals of held-out contrasts", coverage, 0.6),
    ("seconds", "Seconds of a processor", seconds, 1.0),
]


def as_markdown(results: dict[str, Any]) -> str:
    def cell(value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(f"{v:.2f}" for v in value)
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    parts = [
        "# Counts, p-values and intervals",
        machine_line(results),
        " ".join(str(__doc__).split("\n\n")[1].split()),
        f"{results['repetitions']} sets a case: twice as many for false alarms of the permutation "
        "test (one standard deviation is 0.015), 60 % for power and coverage, 30 % for p-values "
        "and features that are almost constant. Nominal rate 0.05.",
    ]
    for name, title, _, _ in SECTIONS:
        if rows := results.get(name):
            cells = [[cell(v) for v in row.values()] for row in rows]
            parts += [f"## {title}", table(list(rows[0]), cells)]
    return "\n\n".join(parts) + "\n"


def source_hash() -> str:
    """Return what tells the measured code from other code: a run goes on with the same only."""
    package = Path(cpcapp.__file__).parent
    rooms = ("moments", "contrast", "inference", "estimators")
    files = [path for room in rooms for path in sorted((package / room).rglob("*.py"))]
    return sha256(b"".join(path.read_bytes() for path in [*files, Path(__file__)])).hexdigest()


def save(results: Row, path: Path) -> None:
    results["machine"]["load_average_at_end"] = load_average()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def main(progress: Callable[..., None] = print) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    default = Path(__file__).parent / "results" / "counting.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    parser.add_argument("--repetitions", type=int, default=100)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    results: Row = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": False,
        "quick": arguments.repetitions < 100,
        "repetitions": arguments.repetitions,
        "source": source_hash(),
        "machine": describe_machine(),
    }
    if arguments.output.exists():
        before = json.loads(arguments.output.read_text())
        same = all(before.get(name) == results[name] for name in ("repetitions", "source"))
        if same and not before.get("complete", True):
            results = before
    for name, _, section, share in SECTIONS:
        rows = results.setdefault(name, [])
        for measure in islice(section(), len(rows), None):
            rows.append(measure(max(int(share * arguments.repetitions), 2)))
            progress(name, rows[-1], flush=True)
            save(results, arguments.output)
    results["complete"] = True
    save(results, arguments.output)
    arguments.output.with_suffix(".md").write_text(as_markdown(results))


if __name__ == "__main__":
    main()
