"""Judge rules for the loading by classes that they never see.

Each rule gives two components of each labelled pair, scaled to variance 1. They are clustered by
k-means and compared with the classes (adjusted Rand index), and a 9-nearest-neighbour classifier is
cross-validated on them (accuracy). The regret of a rule is how far it falls short of the best that
labels could choose: any ridge from 1e-4 to 10 of the mean variance, in raw or in background units,
or cPCA at any α from 0.1 to 1000. Rules were decided on one half of the families of pairs; the
other half only reports. Pairs with two Gaussian signals in place of classes are judged by the share
of the signals' variance that the outputs explain.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from _labelled_pairs import FloatArray, LabelledPair, labelled_pairs
from _machine import describe_machine, load_average
from _report import machine_line, table
from _targets import at_least
from cpcapp import CPCA, Moments, solve_contrast
from cpcapp.contrast.loading import BOUNDS, excess_kurtosis

K = 2
RIDGES = 10.0 ** np.arange(-4, 1.1, 0.5)
ALPHAS = np.logspace(-1, 3, 11)
# Below this even the labels find nothing to choose.
MIN_BEST = 0.3
DEFAULT = "the default: bounds 3, 12, 48 by kurtosis, else 12"
FORMER = "the former default: likelihood, loud above 6"
# More features take minutes for each rule.
MOST_FEATURES = 800
HALVES = ("deciding", "reporting")
# What the default has to reach, by the name of a pair or of a family.
NAMED = {
    "Mice protein, as in the paper": 0.78,
    "MNIST 0/1 at .25 over grass, 5000": 0.864,
    "needles": 0.989,
    "synthetic": 0.95,
    "mHealth": 0.95,
}


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
        both = (of_target + of_background) / 2
        self.mean_units = np.where(both > 0, both, 1.0)
        self._bounded: dict[float, tuple[tuple[float, float], float]] = {}

    def outputs(self, filters: FloatArray) -> FloatArray:
        outputs = self.centred @ filters
        deviation = outputs.std(axis=0)
        return outputs / np.where(deviation > 0.0, deviation, 1.0)

    def score(self, filters: FloatArray) -> tuple[float, float]:
        """Return adjusted Rand index and accuracy; of signals twice the share that is explained."""
        outputs, labels = self.outputs(filters), self.pair.labels
        if not self.pair.has_classes:
            q = np.linalg.qr(labels - labels.mean(axis=0)).Q
            share = float(((np.linalg.qr(outputs).Q.T @ q) ** 2).sum() / K)
            return share, share
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

    def rules(self) -> Iterator[tuple[str, tuple[float, float]]]:
        """Yield each rule by name with its scores."""
        pair = self.pair
        found = solve_contrast(pair.target, pair.background, K)
        assert found.bound is not None
        yield DEFAULT, self.score(found.filters)
        n, m = pair.target.shape
        noise = (1.0 + np.sqrt(m / n)) ** 2
        floored = [max(bound, noise) for bound in BOUNDS]
        for bound, own in zip(BOUNDS, floored, strict=True):
            yield f"bound {bound:g} alone", self.bounded(own)[0]
        yield "bound 6 alone", self.bounded(max(6.0, noise))[0]
        yield "least kurtosis, whatever it is", self.choose(floored, floored[1], np.inf)
        yield "one standard error", self.choose(floored, floored[1], -1.0)
        yield "without the floor of noise", self.choose(BOUNDS, 12.0, -2.0)
        four = (1.0, *BOUNDS) if m > n else floored
        usual = 3.0 if m > n else 12.0
        name = "bounds 1, 3, 12, 48 without the floor, one standard error, else 3, if p > n"
        yield name, self.choose(four, usual, -1.0 if m > n else -2.0)
        yield "OAS", self.score(solve_contrast(*self.moments, K, loading="oas").filters)
        yield 'CPCA(alpha="auto")', self.cpca("auto")
        yield "cPCA at α = 10", self.cpca(10.0)

    def bounded(self, bound: float) -> tuple[tuple[float, float], float]:
        """Return the scores at one bound, and the least kurtosis."""
        if bound not in self._bounded:
            values, vectors, inner = self.basis(self.mean_units)
            difference = inner - bound * np.diag(values)
            last = len(values) - 1
            theta = eigh(difference, eigvals_only=True, subset_by_index=(last, last))[0]
            of_noise = 0.1 * len(values) / len(self.pair.background)
            scale = 1.0 / np.sqrt(values + (theta / bound if theta > 0.0 else of_noise))
            u = top(inner * np.multiply.outer(scale, scale))
            filters = vectors @ (scale[:, None] * u) / np.sqrt(self.mean_units)[:, None]
            kurtosis = excess_kurtosis(self.outputs(filters)).min()
            self._bounded[bound] = self.score(filters), float(kurtosis)
        return self._bounded[bound]

    def choose(self, bounds: Sequence[float], usual: float, errors: float) -> tuple[float, float]:
        """Return the scores of the bound of least kurtosis, if that is so low, else the usual."""
        scores, least = min((self.bounded(bound) for bound in bounds), key=lambda found: found[1])
        low = errors * np.sqrt(24.0 / len(self.centred))
        return scores if least < low else self.bounded(usual)[0]

    def cpca(self, alpha: Any) -> tuple[float, float]:
        pair = self.pair
        return self.score(
            CPCA(K, alpha=alpha).fit(pair.target, background=pair.background).components_.T
        )


def top(matrix: FloatArray) -> FloatArray:
    m = len(matrix)
    return np.asarray(eigh(matrix, subset_by_index=(m - K, m - 1))[1][:, ::-1])


def judge(pair: LabelledPair, earlier: dict[str, Any]) -> dict[str, Any]:
    """Return all scores of a pair; the best of fixed settings, and the former's, may be known."""
    judge = Judge(pair)
    best = earlier.get("best"), earlier.get("best_accuracy")
    if None in best:
        best = tuple(np.array(list(judge.fixed())).max(axis=0).tolist())
    rules: dict[str, Sequence[float]] = dict(judge.rules())
    if "former" in earlier:
        rules[FORMER] = earlier["former"]
    return {
        "name": pair.name,
        "family": pair.family,
        "half": pair.half,
        "classes": pair.has_classes,
        "shape": [len(pair.target), len(pair.background), pair.target.shape[1]],
        "best": best[0],
        "best_accuracy": best[1],
        "rules": rules,
    }


def summarize(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and worst regrets of each rule on each half, the best first."""
    rows = []
    for rule in {name: None for pair in pairs for name in pair["rules"]}:
        row: dict[str, Any] = {"rule": rule}
        for group, chosen in groups(pairs).items():
            known = [pair for pair in chosen if rule in pair["rules"]]
            useful = [pair for pair in known if pair["best"] >= MIN_BEST]
            if not useful:
                continue
            regrets = [pair["best"] - pair["rules"][rule][0] for pair in useful]
            accuracy = [pair["best_accuracy"] - pair["rules"][rule][1] for pair in known]
            families = {pair["family"] for pair in useful}
            by_family = [
                np.mean([r for r, p in zip(regrets, useful, strict=True) if p["family"] == f])
                for f in families
            ]
            row[group] = {
                "mean_regret": float(np.mean(regrets)),
                "mean_over_families": float(np.mean(by_family)),
                "worst": max(regrets),
                "accuracy_regret": float(np.mean(accuracy)),
                "n_judged": len(useful),
                "n_pairs": len(known),
            }
        rows.append(row)
    rows = [row for row in rows if all(half in row for half in HALVES)]
    return sorted(rows, key=lambda row: float(row["deciding"]["mean_regret"]))


def groups(pairs: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the pairs of each half, and some kinds of them."""
    found = {half: [p for p in pairs if p["half"] == half and p["classes"]] for half in HALVES}
    for half in HALVES:
        found[f"{half}, p > n"] = [p for p in found[half] if p["shape"][2] > p["shape"][0]]
    found["small class"] = [p for p in pairs if p["family"] == "small class"]
    found["signals"] = [p for p in pairs if not p["classes"]]
    return found


def targets(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return whether the default reaches what it has to, at the worst subject and on average."""
    found = []
    for name, limit in NAMED.items():
        scores = [p["rules"][DEFAULT][0] for p in pairs if name in (p["name"], p["family"])]
        if scores:
            value = min(scores) if name == "mHealth" else float(np.mean(scores))
            found.append(at_least(name, value, limit))
    return found


def as_markdown(results: dict[str, Any]) -> str:
    pairs, summary = results["pairs"], results["summary"]
    keys = ("mean_regret", "mean_over_families", "worst", "accuracy_regret")
    parts = [
        "# Rules for the loading",
        machine_line(results),
        " ".join(str(__doc__).split("\n\n")[1].split()),
        "Pairs on which even labels reach no adjusted Rand index of "
        f"{MIN_BEST} count for the accuracy only. A family is a data set or a way to make pairs. "
        f"Pairs have up to {MOST_FEATURES} features. The former default was measured by the "
        "version before this one.",
    ]
    if not results["complete"]:
        parts.append("This run was stopped. The pairs that it did not reach are missing.")
    for group in groups(pairs):
        rows = [row for row in summary if group in row]
        if not rows:
            continue
        counts = next(row[group] for row in rows if row["rule"] == DEFAULT)
        parts += [
            f"## {group}: {counts['n_pairs']} pairs, {counts['n_judged']} with something to lose",
            table(
                ["rule", "mean regret", "mean over families", "worst", "regret of the accuracy"],
                [[row["rule"], *(f"{row[group][key]:.3f}" for key in keys)] for row in rows],
            ),
        ]
    parts += [
        "## What the default has to reach",
        table(
            ["pair or family", "adjusted Rand index", "needed"],
            [[t["name"], f"{t['value']:.3f}", t["limit"]] for t in results["targets"]],
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
                f"{pair['rules'][FORMER][0]:.2f}" if FORMER in pair["rules"] else "",
                f"{pair['rules'][DEFAULT][0]:.2f}",
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
        "machine": describe_machine(),
        "quick": False,
        "ridges": RIDGES.tolist(),
        "alphas": ALPHAS.tolist(),
        "complete": False,
        "pairs": [],
    }
    # What labels could choose does not depend on the rules, and the former default cannot be
    # measured any more: an earlier file's will do.
    earlier: dict[str, dict[str, Any]] = {}
    if arguments.output.is_file():
        content = json.loads(arguments.output.read_text())
        for known in (*content["pairs"], *content.get("not_reached", ())):
            former = known["rules"].get(FORMER)
            earlier[known["name"]] = known | ({} if former is None else {"former": former})
            if arguments.go_on and DEFAULT in known["rules"]:
                results["pairs"].append(known)
    done = {pair["name"] for pair in results["pairs"]}
    results["not_reached"] = [known for name, known in earlier.items() if name not in done]
    for pair in labelled_pairs(arguments.half):
        if pair.name not in done and pair.target.shape[1] <= MOST_FEATURES:
            results["pairs"].append(judge(pair, earlier.get(pair.name, {})))
            left = [known for known in results["not_reached"] if known["name"] != pair.name]
            results["not_reached"] = left
            scores = results["pairs"][-1]["rules"][DEFAULT]
            progress(pair.name, *(round(value, 3) for value in scores), flush=True)
            write(results, arguments.output)
    results["complete"] = arguments.half is None
    if results["complete"]:
        del results["not_reached"]
    write(results, arguments.output)


def write(results: dict[str, Any], output: Path) -> None:
    """Write what is known so far, so that a run that was stopped can go on."""
    results["summary"] = summarize(results["pairs"])
    results["targets"] = targets(results["pairs"])
    results["machine"]["load_average_at_end"] = load_average()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=2) + "\n")
    if results["summary"]:
        output.with_suffix(".md").write_text(as_markdown(results))


if __name__ == "__main__":
    main()
