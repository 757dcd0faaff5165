"""Judge rules for the loading by classes that they never see.

Each rule gives two components of each labelled pair. They are scaled to variance 1, clustered by
k-means, and compared with the classes (adjusted Rand index). The regret of a rule is how far it
falls short of the best that labels could choose: any ridge from 1e-4 to 10 of the mean variance,
in raw or in background units, or cPCA at any α from 0.1 to 1000.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import eigh, subspace_angles
from scipy.stats import kurtosis
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score

from _labelled_pairs import FloatArray, LabelledPair, labelled_pairs
from _machine import describe_machine, load_average
from _report import machine_line, table
from cpcapp import CPCAPlusPlus
from cpcapp.loading import oas_shrinkage

K = 2
RIDGES = 10.0 ** np.arange(-4, 1.1, 0.5)
ALPHAS = np.logspace(-1, 3, 17)
# Below this even the labels find nothing to choose.
MIN_BEST = 0.3
DEFAULT = "the default: OAS, bound 6 (or noise), mean units"


class Problem:
    """Covariances of a pair in some units, ready for many ridges."""

    def __init__(self, target: FloatArray, background: FloatArray, units: FloatArray) -> None:
        root = np.sqrt(units)
        self.root, self.n_target, self.n_background = root, len(target), len(background)
        self.r_f, self.r_b = (np.cov((rows / root).T, ddof=0) for rows in (target, background))
        self.n_features = len(units)
        self.mean_variance = float(np.trace(self.r_b)) / self.n_features
        trace, square = float(np.trace(self.r_b)), float((self.r_b**2).sum())
        rho = oas_shrinkage(trace, square, self.n_background, self.n_features)
        self.rho = min(max(rho, 1e-9), 1.0 - 1e-6)

    @cached_property
    def basis(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        values, vectors = eigh(self.r_b)
        return np.maximum(values, 0.0), vectors, vectors.T @ self.r_f @ vectors

    def solve(self, ridge: float, weight: float = 1.0) -> tuple[FloatArray, FloatArray]:
        """Return eigenvalues and filters of ``R_f v = λ (weight R_b + ridge I) v``."""
        values, vectors, inner = self.basis
        scale = 1.0 / np.sqrt(weight * values + ridge)
        found, u = top(inner * np.multiply.outer(scale, scale))
        return found, vectors @ (scale[:, None] * u)

    def shrunk(self, extra: float = 0.0) -> tuple[FloatArray, FloatArray]:
        """Return the solution with OAS and a ridge on top."""
        return self.solve(self.rho * self.mean_variance + extra, 1.0 - self.rho)


def top(matrix: FloatArray, other: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    m = len(matrix)
    values, vectors = eigh(matrix, other, subset_by_index=(m - K, m - 1))
    return values[::-1], vectors[:, ::-1]


class Judge:
    """One pair, and the rules' scores on it."""

    def __init__(self, pair: LabelledPair) -> None:
        self.pair = pair
        of_background, of_target = pair.background.var(axis=0), pair.target.var(axis=0)
        gone = of_background <= 1e-12 * of_background.max()
        units = np.where(gone, np.where(of_target > 0, of_target, 1.0), of_background)
        self.mean_units = np.where(of_target + of_background > 0, of_target + of_background, 2) / 2
        self.raw = Problem(pair.target, pair.background, np.ones_like(units))
        self.scaled = Problem(pair.target, pair.background, units)

    def scores(self, filters: FloatArray) -> FloatArray:
        outputs = (self.pair.target - self.pair.target.mean(axis=0)) @ filters
        return outputs / outputs.std(axis=0)

    def agreement(self, filters: FloatArray) -> float:
        labels = self.pair.labels
        clusters = KMeans(len(np.unique(labels)), n_init=10, random_state=0)
        return float(adjusted_rand_score(labels, clusters.fit_predict(self.scores(filters))))

    def within(self, problem: Problem, filters: FloatArray) -> float:
        return self.agreement(filters / problem.root[:, None])

    def curves(self) -> dict[str, list[float]]:
        """Return the agreement for each fixed setting."""
        curves = {
            name: [self.within(p, p.solve(f * p.mean_variance)[1]) for f in RIDGES]
            for name, p in (
                ("ridge, raw units", self.raw),
                ("ridge, background units", self.scaled),
            )
        }
        raw = self.raw
        curves["cpca"] = [self.agreement(top(raw.r_f - a * raw.r_b)[1]) for a in ALPHAS]
        return curves

    def by_background(self) -> Iterator[tuple[str, float]]:
        """Rules that know the moments of the background, or a little of the target's."""
        for name, p in (("raw units", self.raw), ("background units", self.scaled)):
            yield f"OAS, {name}", self.within(p, p.shrunk()[1])
            more = float(np.trace(p.r_f) - np.trace(p.r_b)) / p.n_features
            yield f"OAS + mean excess, {name}", self.within(p, p.shrunk(max(more, 0.0))[1])
            positive = np.maximum(np.linalg.eigvalsh(p.r_f - p.r_b), 0.0).sum() / p.n_features
            yield f"OAS + positive excess, {name}", self.within(p, p.shrunk(positive)[1])

    def by_bound(self) -> Iterator[tuple[str, float]]:
        """Rules that bound the largest eigenvalue."""
        p = self.scaled
        root = p.root
        loaded = (1.0 - p.rho) * p.r_b + p.rho * p.mean_variance * np.eye(p.n_features)
        largest = p.shrunk()[0][0]
        bounds = {f"bound {c}": float(c) for c in (3, 4, 5, 6, 7, 8, 10, 15)}
        bounds["bound √λ"] = float(np.sqrt(max(largest, 1.5)))
        for name, units in (
            ("mean", self.mean_units / root**2),
            ("background", np.ones_like(root)),
        ):
            for label, c in bounds.items():
                s = 1.0 / np.sqrt(units)
                difference = (p.r_f - c * loaded) * np.multiply.outer(s, s)
                ridge = max(top(difference)[0][0] / c, 0.0)
                filters = top(p.r_f, loaded + ridge * np.diag(units))[1]
                yield f"OAS, {label}, {name} units", self.within(p, filters)
        default = CPCAPlusPlus(K).fit(self.pair.target, background=self.pair.background)
        yield DEFAULT, self.agreement(default.components_.T)

    def by_halves_and_data(self) -> Iterator[tuple[str, float]]:
        """Rules that choose among ridges by halves of the data, or by the outputs themselves."""
        p, units = self.scaled, self.scaled.root**2
        rng = np.random.default_rng(0)
        orders = [rng.permutation(len(rows)) for rows in (self.pair.target, self.pair.background)]
        halves = [
            Problem(self.pair.target[orders[0][i::2]], self.pair.background[orders[1][i::2]], units)
            for i in range(2)
        ]
        marks: dict[str, list[float]] = {}
        reached = []
        for fraction in RIDGES:
            ridge = (fraction + p.rho) * p.mean_variance
            values, filters = p.solve(ridge, 1.0 - p.rho)
            reached.append(self.within(p, filters))
            outputs = self.scores(filters / p.root[:, None])
            clusters = KMeans(2, n_init=3, random_state=0).fit_predict(outputs)
            found = {
                "gap of the eigenvalues": values[0] / values[1],
                "data: least kurtosis": -kurtosis(outputs).min(),
                "data: clearest clusters": calinski_harabasz_score(outputs, clusters),
                **_halves(halves, ridge, 1.0 - p.rho),
            }
            for name, mark in found.items():
                marks.setdefault(name, []).append(float(mark))
        for name, values in marks.items():
            yield f"ridge by {name}", reached[int(np.argmax(values))]


def _halves(halves: list[Problem], ridge: float, weight: float) -> dict[str, float]:
    spans = [half.solve(ridge, weight)[1] for half in halves]
    contrast = likelihood = 0.0
    for own, other, f in zip(halves, halves[::-1], spans, strict=True):
        dets = [np.linalg.slogdet(f.T @ r @ f)[1] for r in (other.r_f, other.r_b)]
        contrast += dets[0] - dets[1]
        values, vectors, _ = own.basis
        loaded = weight * values + ridge
        power = np.einsum("ij,ij->j", vectors, other.r_b @ vectors)
        likelihood -= float(np.log(loaded).sum() + (power / loaded).sum())
    return {
        "halves: same span": float((np.cos(subspace_angles(*spans)) ** 2).mean()),
        "halves: held-out contrast": contrast,
        "halves: held-out likelihood of the background": likelihood,
    }


def judge(pair: LabelledPair) -> dict[str, Any]:
    judge = Judge(pair)
    curves = judge.curves()
    rules: dict[str, float] = {}
    for some in (judge.by_background, judge.by_bound, judge.by_halves_and_data):
        rules.update(some())
    for name in ("raw units", "background units"):
        curve = curves[f"ridge, {name}"]
        for fraction in (0.01, 0.1, 1.0):
            nearest = int(np.abs(np.log(RIDGES / fraction)).argmin())
            rules[f"ridge of {fraction:g} mean variances, {name}"] = curve[nearest]
    for alpha in (1.0, 10**0.5, 10.0):
        nearest = int(np.abs(np.log(ALPHAS / alpha)).argmin())
        rules[f"cPCA at α = {ALPHAS[nearest]:.3g}"] = curves["cpca"][nearest]
    return {
        "name": pair.name,
        "family": pair.family,
        "shape": [len(pair.target), len(pair.background), pair.target.shape[1]],
        "best": max(max(curve) for curve in curves.values()),
        "best_cpca": max(curves["cpca"]),
        "curves": curves,
        "rules": rules,
    }


def summarize(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and worst regret of each rule, the best first."""
    useful = [pair for pair in pairs if pair["best"] >= MIN_BEST]
    families = sorted({pair["family"] for pair in useful})
    found = []
    for rule in useful[0]["rules"]:
        regrets = {pair["name"]: pair["best"] - pair["rules"][rule] for pair in useful}
        by_family = {
            f: float(np.mean([regrets[p["name"]] for p in useful if p["family"] == f]))
            for f in families
        }
        found.append(
            {
                "rule": rule,
                "mean_regret": float(np.mean(list(regrets.values()))),
                "mean_over_families": float(np.mean(list(by_family.values()))),
                "worst": max(regrets.values()),
                "by_family": by_family,
            }
        )
    return sorted(found, key=lambda row: row["mean_regret"])


def as_markdown(results: dict[str, Any]) -> str:
    pairs, summary = results["pairs"], results["summary"]
    useful = [pair for pair in pairs if pair["best"] >= MIN_BEST]
    rules = table(
        ["rule", "mean regret", "mean over families", "worst", *summary[0]["by_family"]],
        [
            [
                row["rule"],
                *(f"{row[key]:.3f}" for key in ("mean_regret", "mean_over_families", "worst")),
                *(f"{value:.2f}" for value in row["by_family"].values()),
            ]
            for row in summary
        ],
    )
    before = "OAS, background units"
    each = table(
        ["pair", "shape", "best by labels", "best cPCA by labels", "OAS alone", "default"],
        [
            [
                pair["name"],
                "{}+{} x {}".format(*pair["shape"]),
                *(f"{pair[key]:.2f}" for key in ("best", "best_cpca")),
                *(f"{pair['rules'][rule]:.2f}" for rule in (before, DEFAULT)),
            ]
            for pair in pairs
        ],
    )
    parts = [
        "# Rules for the loading",
        machine_line(results),
        " ".join(str(__doc__).split("\n\n")[1].split()),
        f"## Regret over {len(useful)} pairs",
        f"Pairs on which even labels reach no {MIN_BEST} are left out here.",
        rules,
        "## Adjusted Rand index of each pair",
        each,
    ]
    return "\n\n".join(parts) + "\n"


def main(progress: Callable[..., None] = print) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    default = Path(__file__).parent / "results" / "loading_rules.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": False,
        "machine": describe_machine(),
        "ridges": RIDGES.tolist(),
        "alphas": ALPHAS.tolist(),
        "pairs": [],
    }
    for pair in labelled_pairs():
        results["pairs"].append(judge(pair))
        progress(pair.name, round(results["pairs"][-1]["rules"][DEFAULT], 3), flush=True)
    results["summary"] = summarize(results["pairs"])
    results["machine"]["load_average_at_end"] = load_average()
    text = as_markdown(results)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    arguments.output.with_suffix(".md").write_text(text)
    progress(text)


if __name__ == "__main__":
    main()
