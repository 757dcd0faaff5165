"""Judge rules for the loading by classes that they never see.

Each rule gives two components of each labelled pair, scaled to variance 1. They are clustered by
k-means and compared with the classes (adjusted Rand index), and a 9-nearest-neighbour classifier is
cross-validated on them (accuracy). The regret of a rule is how far it falls short of the best that
labels could choose: any ridge from 1e-4 to 10 of the mean variance, in raw or in background units,
or cPCA at any α from 0.1 to 1000. Rules were decided on one half of the families of pairs; the
other half only reports. The pairs of texts came after that: in either half they decided nothing.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from cpcapp.estimators._alpha import bound_alpha
from scipy.linalg import eigh
from scipy.stats import kurtosis
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from _labelled_pairs import FloatArray, LabelledPair, labelled_pairs
from _machine import describe_machine, load_average
from _nonlinear_shrinkage import nonlinear_shrinkage
from _report import machine_line, table
from cpcapp import CPCA, Contrast, Moments, ViewsDisagreeWarning, loading, solve_contrast

K = 2
RIDGES = 10.0 ** np.arange(-4, 1.1, 0.5)
ALPHAS = np.logspace(-1, 3, 11)
# Below this even the labels find nothing to choose.
MIN_BEST = 0.3
DEFAULT = "the default: likelihood, loud above 6, within two standard errors below"
FORMER = "OAS, bound 6, all or nothing at c/3 (the former default)"
# Variants, marked by a star, are left out where there are more features: they take minutes.
MOST_SWEPT = 150
HALVES = ("deciding", "reporting")


class Judge:
    """One pair, and the rules' scores on it."""

    def __init__(self, pair: LabelledPair) -> None:
        self.pair = pair
        self.centred = pair.target - pair.target.mean(axis=0)
        self.moments = Moments.of(pair.target), Moments.of(pair.background)
        self.raw = np.ones(pair.target.shape[1])
        of_background, of_target = pair.background.var(axis=0), pair.target.var(axis=0)
        gone = of_background <= 1e-12 * of_background.max()
        self.units = np.where(gone, np.where(of_target > 0, of_target, 1.0), of_background)
        self.mean_units = np.where(of_target + of_background > 0, of_target + of_background, 2) / 2

    def outputs(self, filters: FloatArray) -> FloatArray:
        outputs = self.centred @ filters
        deviation = outputs.std(axis=0)
        return outputs / np.where(deviation > 0.0, deviation, 1.0)

    def score(self, filters: FloatArray) -> tuple[float, float]:
        """Return adjusted Rand index and accuracy."""
        outputs, labels = self.outputs(filters), self.pair.labels
        clusters = KMeans(len(np.unique(labels)), n_init=10, random_state=0)
        agreement = adjusted_rand_score(labels, clusters.fit_predict(outputs))
        neighbours = KNeighborsClassifier(min(9, len(labels) // 5))
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        accuracy = cross_val_score(neighbours, outputs, labels, cv=folds).mean()
        return float(agreement), float(accuracy)

    def basis(self, units: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return eigenvalues and vectors of ``R_b`` in units, and ``R_f`` in their basis."""
        root = np.sqrt(units)
        r_f, r_b = (m.covariance() / np.multiply.outer(root, root) for m in self.moments)
        values, vectors = eigh(r_b)
        return np.maximum(values, 0.0), vectors, vectors.T @ r_f @ vectors

    def fixed(self) -> Iterator[tuple[float, float]]:
        """Yield the scores of each fixed setting."""
        for units in (self.raw, self.units):
            values, vectors, inner = self.basis(units)
            for fraction in RIDGES:
                scale = 1.0 / np.sqrt(values + fraction * values.mean())
                u = top(inner * np.multiply.outer(scale, scale))
                yield self.score(vectors @ (scale[:, None] * u) / np.sqrt(units)[:, None])
            if units is self.raw:
                for alpha in ALPHAS:
                    yield self.score(vectors @ top(inner - alpha * np.diag(values)))

    def rules(self) -> Iterator[tuple[str, FloatArray]]:
        """Yield each rule by name with its filters."""
        found = solve_contrast(*self.moments, K)
        rare = found.rare or solve_contrast(*self.moments, K, loading="likelihood")
        yield DEFAULT, found.filters
        yield "likelihood, unsteered (the rare view)", rare.filters
        yield "the view of least kurtosis", self.least_kurtosis(found, rare)
        yield "OAS, unsteered", solve_contrast(*self.moments, K, loading="oas").filters
        yield FORMER, self.steered_oas()
        yield from self.nonlinear()
        for alpha in (3.0, 10.0):
            yield f"cPCA at α = {alpha:g}", self.cpca(alpha)
        yield 'CPCA(alpha="auto"): 6, or noise', self.cpca(bound_alpha(self.moments[0]))
        if len(self.raw) <= MOST_SWEPT:
            yield from self.variants()

    def variants(self) -> Iterator[tuple[str, FloatArray]]:
        """Yield other constants, and other choices of α."""
        for name, changed in (
            ("the default with bound 3", {"LARGEST_CONTRAST": 3.0}),
            ("the default with bound 12", {"LARGEST_CONTRAST": 12.0}),
            ("the default with a kept share of 1/3", {"KEPT_CONTRAST": 1.0 / 3.0}),
            ("the default with a kept share of 1", {"KEPT_CONTRAST": 1.0}),
            ("the default with no standard errors", {"STANDARD_ERRORS": 0.0}),
        ):
            with constants(**changed):
                yield f"{name} *", solve_contrast(*self.moments, K).filters
        for choice in ("uca", "clustering"):
            yield f'CPCA(alpha="{choice}") *', self.cpca(choice)

    def least_kurtosis(self, loud: Contrast, rare: Contrast) -> FloatArray:
        views = loud.filters, rare.filters
        return min(views, key=lambda filters: kurtosis(self.outputs(filters)).sum())

    def steered_oas(self) -> FloatArray:
        plain = solve_contrast(*self.moments, K, loading="oas")
        assert plain.loading is not None
        sigma = plain.loading.weight * self.moments[1].covariance()
        sigma += np.diag(plain.loading.diagonal)
        steered = self.steer(self.moments[0].covariance(), sigma)
        return plain.filters if steered is None or steered[0][-1] < 2.0 else steered[1]

    def steer(self, r_f: FloatArray, sigma: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Return contrasts and filters with the largest contrast brought down to the bound."""
        m, root = len(r_f), np.sqrt(self.mean_units)
        bound = loading.contrast_bound(len(self.centred), m)
        difference = (r_f - bound * sigma) / np.multiply.outer(root, root)
        ridge = eigh(difference, eigvals_only=True, subset_by_index=(m - 1, m - 1))[0] / bound
        if ridge <= 0.0:
            return None
        values, vectors = eigh(
            r_f, sigma + ridge * np.diag(self.mean_units), subset_by_index=(m - K, m - 1)
        )
        return values[::-1], vectors[:, ::-1]

    def nonlinear(self) -> Iterator[tuple[str, FloatArray]]:
        values, vectors, inner = self.basis(self.units)
        shrunk = nonlinear_shrinkage(values, len(self.pair.background))
        root = np.sqrt(self.units)[:, None]
        scale = 1.0 / np.sqrt(shrunk)
        rare = vectors @ (scale[:, None] * top(inner * np.multiply.outer(scale, scale))) / root
        yield "nonlinear Ledoit-Wolf, unsteered", rare
        sigma = (root * vectors * shrunk) @ (root * vectors).T
        steered = self.steer(self.moments[0].covariance(), sigma)
        loud = rare if steered is None else steered[1]
        views = sorted((loud, rare), key=lambda f: kurtosis(self.outputs(f)).sum())
        yield "nonlinear Ledoit-Wolf, bound 6, no guard", loud
        yield "nonlinear Ledoit-Wolf, the view of least kurtosis", views[0]

    def cpca(self, alpha: Any) -> FloatArray:
        return CPCA(K, alpha=alpha).fit_moments(*self.moments).components_.T


def top(matrix: FloatArray) -> FloatArray:
    m = len(matrix)
    return np.asarray(eigh(matrix, subset_by_index=(m - K, m - 1))[1][:, ::-1])


@contextmanager
def constants(**changed: float) -> Iterator[None]:
    """Change constants of the rule for a while."""
    before = {name: getattr(loading, name) for name in changed}
    try:
        for name, value in changed.items():
            setattr(loading, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(loading, name, value)


def judge(pair: LabelledPair, best: tuple[float, float] | None = None) -> dict[str, Any]:
    """Return all scores of a pair; the best of fixed settings may be known."""
    judge = Judge(pair)
    best = best or tuple(np.array(list(judge.fixed())).max(axis=0).tolist())
    return {
        "name": pair.name,
        "family": pair.family,
        "half": pair.half,
        "shape": [len(pair.target), len(pair.background), pair.target.shape[1]],
        "best": best[0],
        "best_accuracy": best[1],
        "rules": {name: judge.score(filters) for name, filters in judge.rules()},
    }


def summarize(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and worst regrets of each rule on each half, the best first."""
    rows = []
    for rule in {name: None for pair in pairs for name in pair["rules"]}:
        row: dict[str, Any] = {"rule": rule}
        for half in HALVES:
            of_half = [p for p in pairs if p["half"] == half and rule in p["rules"]]
            if not any(pair["best"] >= MIN_BEST for pair in of_half):
                continue
            useful = [pair for pair in of_half if pair["best"] >= MIN_BEST]
            agreement = [pair["best"] - pair["rules"][rule][0] for pair in useful]
            accuracy = [pair["best_accuracy"] - pair["rules"][rule][1] for pair in of_half]
            families = {pair["family"] for pair in useful}
            by_family = [
                np.mean([a for a, p in zip(agreement, useful, strict=True) if p["family"] == f])
                for f in families
            ]
            row[half] = {
                "mean_regret": float(np.mean(agreement)),
                "mean_over_families": float(np.mean(by_family)),
                "worst": max(agreement),
                "accuracy_regret": float(np.mean(accuracy)),
                "n_judged": len(useful),
                "n_pairs": len(of_half),
            }
        rows.append(row)
    rows = [row for row in rows if all(half in row for half in HALVES)]
    return sorted(rows, key=lambda row: float(row["deciding"]["mean_regret"]))


def as_markdown(results: dict[str, Any]) -> str:
    pairs, summary = results["pairs"], results["summary"]
    keys = ("mean_regret", "mean_over_families", "worst", "accuracy_regret")
    parts = [
        "# Rules for the loading",
        machine_line(results),
        " ".join(str(__doc__).split("\n\n")[1].split()),
        "Pairs on which even labels reach no adjusted Rand index of "
        f"{MIN_BEST} count for the accuracy only. A family is a data set or a way to make pairs. "
        f"Rules with a star were tried on pairs of up to {MOST_SWEPT} features only.",
    ]
    if not results["complete"]:
        parts.append("This run was stopped. The pairs that it did not reach are missing.")
    for half in HALVES:
        n = next(row[half] for row in summary if row["rule"] == DEFAULT)
        parts += [
            f"## The {half} half: {n['n_pairs']} pairs, {n['n_judged']} with a Rand index to lose",
            table(
                ["rule", "mean regret", "mean over families", "worst", "regret of the accuracy"],
                [[row["rule"], *(f"{row[half][key]:.3f}" for key in keys)] for row in summary],
            ),
        ]
    each = table(
        ["pair", "half", "shape", "best by labels", "former default", "default"],
        [
            [
                pair["name"],
                pair["half"],
                "{}+{} x {}".format(*pair["shape"]),
                f"{pair['best']:.2f}",
                *(f"{pair['rules'][rule][0]:.2f}" for rule in (FORMER, DEFAULT)),
            ]
            for pair in pairs
        ],
    )
    return "\n\n".join([*parts, "## Adjusted Rand index of each pair", each]) + "\n"


def main(progress: Callable[..., None] = print) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    default = Path(__file__).parent / "results" / "loading_rules.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    parser.add_argument(
        "--go-on", action="store_true", help="keep the pairs that the file has already"
    )
    parser.add_argument("--half", choices=HALVES, help="judge the pairs of one half only")
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": False,
        "machine": describe_machine(),
        "ridges": RIDGES.tolist(),
        "alphas": ALPHAS.tolist(),
        "complete": False,
        "pairs": [],
    }
    best: dict[str, tuple[float, float]] = {}
    if arguments.go_on and arguments.output.is_file():
        # What labels could choose does not depend on the rules, so an earlier version's will do.
        earlier = json.loads(arguments.output.read_text())["pairs"]
        best = {pair["name"]: (pair["best"], pair["best_accuracy"]) for pair in earlier}
        results["pairs"] = [pair for pair in earlier if DEFAULT in pair["rules"]]
    known = {pair["name"] for pair in results["pairs"]}
    warnings.simplefilter("ignore", ViewsDisagreeWarning)
    for pair in labelled_pairs(arguments.half):
        if pair.name not in known:
            results["pairs"].append(judge(pair, best.get(pair.name)))
            score = results["pairs"][-1]["rules"][DEFAULT]
            progress(pair.name, *(round(value, 3) for value in score), flush=True)
            write(results, arguments.output)
    results["complete"] = arguments.half is None
    write(results, arguments.output)


def write(results: dict[str, Any], output: Path) -> None:
    """Write what is known so far, so that a run that was stopped can go on."""
    results["summary"] = summarize(results["pairs"])
    results["machine"]["load_average_at_end"] = load_average()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=2) + "\n")
    if results["summary"]:
        output.with_suffix(".md").write_text(as_markdown(results))


if __name__ == "__main__":
    main()
