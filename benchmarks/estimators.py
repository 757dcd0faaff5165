"""Speed and memory of the estimators: against the cost of the mathematics, and against peers.

    python benchmarks/estimators.py [--quick] [--output results.json]

Writes a JSON file and, beside it, the same figures as Markdown. With the environment variable
CPCAPP_DATA set to a folder that holds `mnist`, `grass` and `mice_protein`, those sets are real.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import blas, eigh, eigvalsh
from sklearn.decomposition import PCA

from _data import MNIST_OVER_GRASS, FloatArray, Pair, correlated, table_one
from _machine import describe_machine, load_average
from _memory import memory_map_fit, wide_fit
from _report import as_markdown
from _targets import at_least, at_most
from _timing import Call, Race, race, timed
from cpcapp import CPCA, CPCAPlusPlus
from cpcapp.datasets import synthetic

OURS = "CPCAPlusPlus"
FIT_ONLY = "CPCAPlusPlus, fit only"
FLOOR = "floor"
PCA_EACH = "PCA of each set"
PCA_STACKED = "PCA of both stacked"
TSNE = "t-SNE"
LARGE = 500
WIDE = (300, 300, 20_000)

Method = Callable[[FloatArray, FloatArray], object]
Results = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How often to repeat, and what to leave out."""

    fast_rounds: int
    slow_rounds: int
    wide_rounds: int
    memory_rows: int
    patience: float
    thorough: bool


FULL = Plan(21, 3, 7, 200_000, 30.0, thorough=True)
QUICK = Plan(3, 2, 1, 20_000, 0.0, thorough=False)


# -- methods: each fits both sets and reduces the target to two components --------------------


def ours(X: FloatArray, B: FloatArray) -> object:
    return CPCAPlusPlus(n_components=2, calibrate=False).fit(X, background=B).transform(X)


def our_sweep(X: FloatArray, B: FloatArray) -> object:
    return CPCA().fit(X, background=B).transform(X)


def contrastive_package(X: FloatArray, B: FloatArray) -> object:
    import contrastive

    return contrastive.CPCA().fit_transform(X, B)


def gcpca_package(X: FloatArray, B: FloatArray) -> object:
    from generalized_contrastive_PCA import gcPCA

    model = gcPCA(method="v4")
    model.fit(X, B)
    return X @ model.loadings_[:, :2]


def pca_of_each(X: FloatArray, B: FloatArray) -> object:
    _pca().fit(B)
    return _pca().fit(X).transform(X)


def pca_of_stacked(X: FloatArray, B: FloatArray) -> object:
    return _pca().fit(np.concatenate([X, B])).transform(X)


def _pca() -> PCA:
    return PCA(n_components=2, svd_solver="covariance_eigh")


def tsne(X: FloatArray) -> object:
    from openTSNE import TSNE

    return TSNE(n_jobs=-1, random_state=0).fit(X)


PEERS: dict[str, Method] = {
    "contrastive": contrastive_package,
    "gcPCA v4": gcpca_package,
    "CPCA sweep (ours)": our_sweep,
}


# -- the floor: both covariances, and LAPACK's own solver for the top two ---------------------


def floor_of(pair: Pair) -> Call:
    """Return a call that makes both covariances of centred data and solves for two pairs."""
    X, B = (rows - rows.mean(axis=0) for rows in (pair.target, pair.background))
    m = pair.n_features
    load = 1e-3 if _singular(B) else 0.0

    def floor() -> object:
        r_f, r_b = (blas.dsyrk(1.0 / len(rows), rows.T, lower=1) for rows in (X, B))
        if load:
            r_b[np.diag_indices(m)] += load * r_b.trace() / m
        return eigh(
            r_f,
            r_b,
            lower=True,
            subset_by_index=(m - 2, m - 1),
            driver="gvx",
            overwrite_a=True,
            overwrite_b=True,
            check_finite=False,
        )

    return floor


def _singular(centred: FloatArray) -> bool:
    values = eigvalsh(centred.T @ centred)
    return bool(values[0] <= 10.0 * len(values) * np.finfo(np.float64).eps * values[-1])


# -- measurements -----------------------------------------------------------------------------


def measure_shape(pair: Pair, plan: Plan) -> Results:
    X, B = pair.target, pair.background
    calls: dict[str, Call] = {
        OURS: lambda: ours(X, B),
        FIT_ONLY: lambda: CPCAPlusPlus(n_components=2, calibrate=False).fit(X, background=B),
        FLOOR: floor_of(pair),
        PCA_EACH: lambda: pca_of_each(X, B),
        PCA_STACKED: lambda: pca_of_stacked(X, B),
    }
    found = race(calls, plan.fast_rounds, patience=plan.patience)
    pcas = (PCA_EACH, PCA_STACKED)
    result: Results = {
        "name": pair.name,
        "shape": pair.shape,
        "n_target": len(X),
        "n_background": len(B),
        "n_features": pair.n_features,
        "data": pair.source,
        "seconds": {name: found.median(name) for name in calls},
        "rounds": dict.fromkeys(calls, _rounds(found)),
        "times_ours": {name: found.ratio(name, OURS) for name in pcas},
        "times_ours_quartiles": {name: found.quartiles(name, OURS) for name in pcas},
        "fit_over_floor": found.ratio(FIT_ONLY, FLOOR),
        "fit_over_floor_quartiles": found.quartiles(FIT_ONLY, FLOOR),
        "errors": {},
    }
    for name, method in PEERS.items():
        measure_peer(name, method, pair, plan, result)
    if plan.thorough:
        measure_tsne(X, result)
    return result


def _rounds(found: Race) -> Results:
    return {"kept": found.rounds, "disturbed": found.disturbed, "dropped": found.dropped}


def measure_peer(name: str, method: Method, pair: Pair, plan: Plan, result: Results) -> None:
    X, B = pair.target, pair.background
    large = pair.n_features >= LARGE
    if large and not plan.thorough:
        return
    rounds = plan.slow_rounds if large else plan.fast_rounds
    calls: dict[str, Call] = {OURS: lambda: ours(X, B), name: lambda: method(X, B)}
    try:
        found = race(calls, rounds, warm_up=not large, patience=plan.patience)
    except Exception as error:
        result["errors"][name] = f"{type(error).__name__}: {error}"
        return
    result["seconds"][name] = found.median(name)
    result["rounds"][name] = _rounds(found)
    result["times_ours"][name] = found.ratio(name, OURS)
    result["times_ours_quartiles"][name] = found.quartiles(name, OURS)


def measure_tsne(X: FloatArray, result: Results) -> None:
    try:
        seconds = timed(lambda: tsne(X))
    except Exception as error:
        result["errors"][TSNE] = f"{type(error).__name__}: {error}"
        return
    result["seconds"][TSNE] = seconds
    result["rounds"][TSNE] = {"kept": 1, "disturbed": None, "dropped": 0}
    result["times_ours"][TSNE] = seconds / result["seconds"][OURS]


def measure_far_from_zero(pair: Pair, plan: Plan) -> Results:
    """Compare with the floor where ours can't leave the centring out."""
    moved = pair.far_from_zero()
    X, B = moved.target, moved.background
    calls: dict[str, Call] = {
        FIT_ONLY: lambda: CPCAPlusPlus(n_components=2, calibrate=False).fit(X, background=B),
        FLOOR: floor_of(moved),
    }
    found = race(calls, plan.fast_rounds, patience=plan.patience)
    return {
        "name": moved.name,
        "shape": moved.shape,
        "seconds": {name: found.median(name) for name in calls},
        "rounds": _rounds(found),
        "fit_over_floor": found.ratio(FIT_ONLY, FLOOR),
        "fit_over_floor_quartiles": found.quartiles(FIT_ONLY, FLOOR),
    }


def measure_wide(plan: Plan) -> Results:
    """Far fewer samples than features: against the two thin SVDs that hold the same information."""
    n, n_background, m = WIDE
    rng = np.random.default_rng(0)
    X, B = correlated(n, m, rng, signal=True), correlated(n_background, m, rng)
    centred = [rows - rows.mean(axis=0) for rows in (X, B)]
    dual, svds = "CPCAPlusPlus, dual", "two thin SVDs"
    calls: dict[str, Call] = {
        dual: lambda: CPCAPlusPlus(2, solver="dual", calibrate=False).fit(X, background=B),
        svds: lambda: [np.linalg.svd(rows, full_matrices=False) for rows in centred],
    }
    found = race(calls, plan.wide_rounds, patience=plan.patience)
    return {
        "shape": f"{n}+{n_background} x {m}",
        "seconds": {name: found.median(name) for name in calls},
        "rounds": _rounds(found),
        "fit_over_svds": found.ratio(dual, svds),
        "fit_over_svds_quartiles": found.quartiles(dual, svds),
        "memory": wide_fit(n, n_background, m),
    }


def warm_up_peers(plan: Plan) -> None:
    """Pay for imports outside of any timing; what fails here fails again where it is recorded."""
    data = synthetic(random_state=0)
    methods = [*PEERS.values()]
    if plan.thorough:
        methods.append(lambda X, B: tsne(X))
    for method in methods:
        try:
            race({"": lambda method=method: method(data.target, data.background)}, 1, warm_up=False)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    # The collection before each timed call need not walk through all those modules.
    gc.collect()
    gc.freeze()


# -- targets ----------------------------------------------------------------------------------


def targets(results: Results) -> list[Results]:
    shapes = results["shapes"]
    found = [
        at_most(f"fit over floor, {s['name']}", s["fit_over_floor"], 1.2)
        for s in shapes
        if s["n_features"] >= LARGE
    ]
    speed_ups = {s["name"]: s["times_ours"].get("contrastive") for s in shapes}
    known = [value for value in speed_ups.values() if value is not None]
    average = float(np.mean(known)) if len(known) == len(shapes) else None
    found.append(at_least("contrastive over ours, average of five", average, 51.0))
    grass = speed_ups.get(MNIST_OVER_GRASS)
    found.append(at_least(f"contrastive over ours, {MNIST_OVER_GRASS}", grass, 60.0))
    found += [
        at_least(f"{PCA_EACH} over ours, {s['name']}", s["times_ours"][PCA_EACH], 1.0)
        for s in shapes
    ]
    memory, wide = results["memory"], results["wide"]
    matrices = memory["matrices_beyond_chunk"]
    found.append(at_most("memory map: matrices beyond one chunk", matrices, 3.0))
    found.append(at_most("p >> n: fit over two thin SVDs", wide["fit_over_svds"], 3.0))
    share = wide["memory"]["share_of_matrix"]
    found.append(at_most("p >> n: peak as a share of one M x M matrix", share, 0.1))
    return found


# -- all together -----------------------------------------------------------------------------


def measure(plan: Plan) -> Results:
    results: Results = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": plan is QUICK,
        "machine": describe_machine(),
        "shapes": [],
        "far_from_zero": [],
    }
    warm_up_peers(plan)
    for pair in table_one():
        print(f"{pair.name}, {pair.shape} ({pair.source}) ...", flush=True)
        results["shapes"].append(measure_shape(pair, plan))
        if pair.n_features >= LARGE and plan.thorough:
            results["far_from_zero"].append(measure_far_from_zero(pair, plan))
    print("p >> n ...", flush=True)
    results["wide"] = measure_wide(plan)
    print("memory map ...", flush=True)
    results["memory"] = memory_map_fit(plan.memory_rows, plan.memory_rows // 10)
    results["machine"]["load_average_at_end"] = load_average()
    results["targets"] = targets(results)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer repeats, no t-SNE, slow peers on small sets only",
    )
    default = Path(__file__).parent / "results" / "estimators.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    arguments = parser.parse_args()
    results = measure(QUICK if arguments.quick else FULL)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    table = as_markdown(results)
    arguments.output.with_suffix(".md").write_text(table)
    print()
    print(table)


if __name__ == "__main__":
    main()
