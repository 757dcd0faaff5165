"""Are counts, p-values and intervals as sure as they say.

False alarms are how often `n_components="auto"` counts anything when both sets are samples of one
population. The law of F-matrices is what is used where only moments are at hand. Power is how often
it counts something when the variance of the target along one direction is 4 or 8 times that of the
background. p-values are those of new background samples, so the share below a level should be the
level. Coverage is how often the interval of the bootstrap holds the true eigenvalue, which is known
without loading.

    python benchmarks/counting.py [--repetitions 200] [--output results/counting.json]
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from cpcapp.contrast.views import ViewsDisagreeWarning
from numpy.typing import NDArray

from _machine import describe_machine, load_average
from _report import machine_line, table
from cpcapp import (
    CPCAPlusPlus,
    Moments,
    NoComponentsWarning,
    bootstrap,
    count_components,
    permutation_test,
)

FloatArray = NDArray[np.float64]

# target rows, background rows, features: from 0.05 to 3 features for each row
SHAPES = [(200, 200, 10), (80, 80, 40), (40, 120, 60), (120, 40, 60), (60, 60, 180)]
NEW_SAMPLES = 2000


def draw(kind: str, rng: np.random.Generator, n: int, p: int) -> FloatArray:
    if kind == "Gaussian":
        return rng.normal(size=(n, p))
    if kind == "t5 rows":  # one scale for all features of a row
        return rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)
    if kind == "t10 rows":
        return rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(10, size=(n, 1)) / 10)
    if kind == "lognormal":
        return np.exp(rng.normal(size=(n, p)))
    return (rng.random((n, p)) < 0.03).astype(np.float64)  # rare binary


KINDS = ["Gaussian", "t5 rows", "lognormal", "rare binary"]


def false_alarms(repetitions: int, progress: Callable[..., None]) -> list[dict[str, Any]]:
    found = []
    for n_f, n_b, p in SHAPES:
        for kind in KINDS:
            rng = np.random.default_rng(0)
            counted = {"permutation": 0} | ({"means apart": 0} if p > n_f else {})
            for i in range(repetitions):
                X, B = draw(kind, rng, n_f, p), draw(kind, rng, n_b, p)
                shift = rng.normal(size=p) * B.std()
                for name in counted:
                    target = X if name == "permutation" else X + shift
                    test = permutation_test(target, B, random_state=i)
                    counted[name] += test.n_components > 0
            row: dict[str, Any] = {"shape": [n_f, n_b, p], "kind": kind}
            row |= {"permutation": None, "means apart": None}
            row |= {name: count / repetitions for name, count in counted.items()}
            row["F-matrix law"] = law_alarms(kind, n_f, n_b, p, repetitions)
            found.append(row)
            progress(row, flush=True)
    return found


def law_alarms(kind: str, n_f: int, n_b: int, p: int, repetitions: int) -> float | None:
    if n_b - 1 <= p or kind == "rare binary":  # some features are constant
        return None
    rng = np.random.default_rng(0)
    pairs = ((draw(kind, rng, n_f, p), draw(kind, rng, n_b, p)) for _ in range(repetitions))
    return sum(count_components(Moments.of(X), Moments.of(B)) > 0 for X, B in pairs) / repetitions


def groups(repetitions: int) -> dict[str, float]:
    """Each row of 30 + 30 stands there four times."""
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(30), 4)
    counted = {"rows": 0, "groups": 0}
    for i in range(repetitions):
        X, B = (np.repeat(rng.normal(size=(30, 20)), 4, axis=0) for _ in range(2))
        counted["rows"] += permutation_test(X, B, random_state=i).n_components > 0
        grouped = {"groups": labels, "background_groups": labels}
        counted["groups"] += permutation_test(X, B, random_state=i, **grouped).n_components > 0
    return {name: count / repetitions for name, count in counted.items()}


def power(repetitions: int) -> list[dict[str, Any]]:
    found = []
    for contrast in (4.0, 8.0):
        for kind in ("Gaussian", "t5 rows"):
            rng = np.random.default_rng(2)
            by = {"permutation": 0, "F-matrix law": 0}
            for i in range(repetitions):
                X, B = draw(kind, rng, 80, 40), draw(kind, rng, 80, 40)
                X[:, 0] *= np.sqrt(contrast)
                mixing = np.linalg.qr(rng.normal(size=(40, 40))).Q
                X, B = X @ mixing, B @ mixing
                by["permutation"] += permutation_test(X, B, random_state=i).n_components > 0
                by["F-matrix law"] += count_components(Moments.of(X), Moments.of(B)) > 0
            shares = {name: count / repetitions for name, count in by.items()}
            found.append({"contrast": contrast, "kind": kind} | shares)
    return found


def rare_features(kind: str, rng: np.random.Generator, n: int, p: int) -> FloatArray:
    if kind == "once":  # one row has another value
        rows = np.zeros((n, p))
        rows[rng.integers(n, size=p), np.arange(p)] = 1.0
        return rows
    if kind == "1 %":
        return (rng.random((n, p)) < 0.01).astype(np.float64)
    if kind == "counts":
        return (rng.random((n, p)) < 0.01) * rng.lognormal(3.0, 1.0, size=(n, p))
    return 5.0 + 1e-6 * rng.normal(size=(n, p))  # tiny noise


def near_constant(repetitions: int) -> list[dict[str, Any]]:
    found = []
    for p in (30, 200):
        for kind in ("once", "1 %", "counts", "tiny noise"):
            rng = np.random.default_rng(6)
            shares = {"count": 0, "false alarms": 0}
            for i in range(repetitions):
                X, B = rng.normal(size=(100, 20)), rng.normal(size=(100, 20))
                rare = [rare_features(kind, rng, 100, p) for _ in range(2)]
                B = np.hstack([B, rare[1]])
                noise = np.hstack([X, rare[0]])
                shares["false alarms"] += permutation_test(noise, B, random_state=i).p_value <= 0.05
                noise[:, 0] += 5.0 * rng.integers(2, size=100)
                shares["count"] += permutation_test(noise, B, random_state=i).n_components == 1
            row = {name: share / repetitions for name, share in shares.items()}
            found.append({"kind": kind, "features": p} | row)
    return found


def p_values(repetitions: int) -> list[dict[str, Any]]:
    found = []
    for n_f, n_b, p in ((300, 1500, 20), (300, 150, 60), (100, 100, 200)):
        for kind in KINDS:
            rng = np.random.default_rng(3)
            rates: dict[str, list[float]] = {}
            for _ in range(repetitions):
                X, B = draw(kind, rng, n_f, p), draw(kind, rng, n_b, p)
                X[:, 0] += 3.0 * B.std() * rng.normal(size=n_f)
                new = draw(kind, rng, NEW_SAMPLES, p)
                for name, calibrate in (("held out", True), ("χ²", False)):
                    est = CPCAPlusPlus(1, calibrate=calibrate).fit(X, background=B)
                    values = est.p_value(new)
                    for level in (0.05, 0.001):
                        share = float((values <= level).mean())
                        rates.setdefault(f"{name} {level:g}", []).append(share)
            row: dict[str, Any] = {"shape": [n_f, n_b, p], "kind": kind}
            row |= {name: float(np.mean(shares)) for name, shares in rates.items()}
            if n_b < 999:  # 0.001 is out of reach
                row["held out 0.001"] = None
            found.append(row)
    return found


def coverage(repetitions: int) -> list[dict[str, Any]]:
    found = []
    for n, p, kind in ((200, 5, "Gaussian"), (1000, 10, "Gaussian"), (2000, 10, "t5 rows")):
        rng = np.random.default_rng(4)
        inside = np.zeros(2)
        for i in range(repetitions):
            X, B = draw(kind, rng, n, p), draw(kind, rng, n, p)
            X[:, :2] *= np.sqrt([9.0, 4.0])
            est = CPCAPlusPlus(2, loading="none", calibrate=False).fit(X, background=B)
            intervals = bootstrap(est, X, B, n=100, random_state=i).eigenvalue_intervals
            inside += (intervals[:, 0] <= [9.0, 4.0]) & (intervals[:, 1] >= [9.0, 4.0])
        shares = (inside / repetitions).tolist()
        found.append({"shape": [n, n, p], "kind": kind, "coverage": shares})
    return found


def seconds() -> list[dict[str, Any]]:
    """Processor time, the shortest of five."""
    found = []
    rng = np.random.default_rng(5)
    for n, p in ((400, 30), (1000, 100), (1000, 500), (5000, 300)):
        X, B = rng.normal(size=(n, p)), rng.normal(size=(n, p))
        X[:, 0] *= 3.0
        row: dict[str, Any] = {"shape": [n, n, p]}
        for name, est in (
            ("fit of 2, without p-values", CPCAPlusPlus(2, calibrate=False)),
            ("fit of 2", CPCAPlusPlus(2, calibrate=True)),
            ("fit of auto, without p-values", CPCAPlusPlus("auto", calibrate=False)),
        ):
            times = []
            for _ in range(5):
                start = process_time()
                est.fit(X, background=B)
                times.append(process_time() - start)
            row[name] = min(times)
        row["with over without"] = row["fit of 2"] / row["fit of 2, without p-values"]
        found.append(row)
    return found


def as_markdown(results: dict[str, Any]) -> str:
    def cell(value: Any) -> str:
        if value is None:
            return "-"
        if isinstance(value, list):
            whole = all(isinstance(v, int) for v in value)
            return "{}+{} x {}".format(*value) if whole else ", ".join(f"{v:.2f}" for v in value)
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    def section(title: str, rows: list[dict[str, Any]]) -> list[str]:
        return [f"## {title}", table(list(rows[0]), [[cell(v) for v in r.values()] for r in rows])]

    titles = {
        "false_alarms": "False alarms",
        "groups": "False alarms where each row stands there four times",
        "power": "Power, 80 + 80 rows of 40 features",
        "p_values": "Share of new background with p-values up to 0.05 and 0.001",
        "coverage": "Coverage of eigenvalues 9 and 4",
        "near_constant": "How often 1 is counted where one feature of 20 has two classes, among "
        "features that are almost constant",
        "seconds": "Seconds of a processor",
    }
    parts = [
        "# Counts, p-values and intervals",
        machine_line(results),
        " ".join(str(__doc__).split("\n\n")[1].split()),
        f"{results['repetitions']} repetitions of counts, two thirds as many of the bootstrap, "
        "a tenth as many of p-values; nominal rate 0.05; 95 % intervals. With means apart, the "
        "target is shifted by about one standard deviation in each feature.",
    ]
    for name, title in titles.items():
        if name in results:
            found = results[name]
            parts += section(title, found if isinstance(found, list) else [found])
    return "\n\n".join(parts) + "\n"


def main(progress: Callable[..., None] = print) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    default = Path(__file__).parent / "results" / "counting.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    parser.add_argument("--repetitions", type=int, default=200)
    arguments = parser.parse_args()
    n = arguments.repetitions
    for category in (NoComponentsWarning, ViewsDisagreeWarning):
        warnings.simplefilter("ignore", category)
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": n < 200,
        "repetitions": n,
        "machine": describe_machine(),
    }
    for name, measure in (
        ("false_alarms", lambda: false_alarms(n, progress)),
        ("power", lambda: power(n)),
        ("p_values", lambda: p_values(max(n // 10, 2))),
        ("groups", lambda: groups(n)),
        ("near_constant", lambda: near_constant(max(n // 15, 2))),
        ("coverage", lambda: coverage(max(2 * n // 3, 2))),
        ("seconds", seconds),
    ):
        results[name] = measure()
        progress(name, results[name], flush=True)
        # After each part, so that a run that is cut short leaves what it has.
        results["machine"]["load_average_at_end"] = load_average()
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        arguments.output.with_suffix(".md").write_text(as_markdown(results))


if __name__ == "__main__":
    main()
