"""gcPCA's own synthetic example, with its package and with ours.

    python benchmarks/gcpca.py [--quick] [--output results.json]

Needs ``generalized_contrastive_PCA`` (the extra ``bench``). The recipe and the measures are those
of ``cpcapp.experiments.gcpca_example``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import warnings
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from generalized_contrastive_PCA import gcPCA

from _machine import describe_machine, load_average
from _report import machine_line, table
from cpcapp.experiments.gcpca_example import (
    N_REPEATS,
    NO_LOADING,
    SIZES,
    QuietPlane,
    draw_sets,
    our_filters,
    score_filters,
)

Results = dict[str, Any]
# Versions 2 and 3 have the same filters as version 4; 4.1 makes them orthogonal.
SETTINGS = {
    "gcPCA v4, as in its tutorial": ("v4", False),
    "gcPCA v4, default normalization": ("v4", True),
    "gcPCA v4.1, as in its tutorial": ("v4.1", False),
}


def their_filters(sets: QuietPlane) -> dict[str, Any]:
    found = {}
    for name, (method, normalize) in SETTINGS.items():
        model = gcPCA(method=method, normalize_flag=normalize)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            model.fit(sets.target.copy(), sets.background.copy())
        found[name] = model.loadings_[:, :2]
    return found


def measure(repeats: int) -> Results:
    found: Results = {}
    same_plane = 1.0
    for size in SIZES:
        scores: dict[str, list[tuple[float, float, float]]] = {}
        for repeat in range(repeats):
            sets = draw_sets(size, np.random.default_rng([0, repeat]))
            filters = {**our_filters(sets), **their_filters(sets)}
            for name, found_filters in filters.items():
                scores.setdefault(name, []).append(score_filters(found_filters, sets))
            # As scores, because a direction of almost no variance is all rounding.
            outputs = [
                np.linalg.qr(rows - rows.mean(axis=0))[0]
                for rows in (
                    sets.target @ filters[NO_LOADING],
                    sets.target @ filters["gcPCA v4, as in its tutorial"],
                )
            ]
            cosines = np.linalg.svd(outputs[0].T @ outputs[1], compute_uv=False)
            same_plane = min(same_plane, float(cosines.min()))
        found[str(size)] = {
            name: {
                "mean": np.round(np.mean(values, axis=0), 4).tolist(),
                "lowest": np.round(np.min(values, axis=0), 4).tolist(),
            }
            for name, values in scores.items()
        }
        print(size, found[str(size)], flush=True)
    return {"sizes": found, "least_cosine_of_scores_without_loading_and_gcpca_v4": same_plane}


def as_markdown(results: Results) -> str:
    parts = ["# gcPCA's own example", machine_line(results)]
    header = ["method", "first cosine", "second cosine", "factors explained"]
    for size, methods in results["sizes"].items():
        rows = [[name, *(f"{v:.2f}" for v in found["mean"])] for name, found in methods.items()]
        parts += [f"{int(size):,} samples of each set, mean of {results['repeats']} draws:"]
        parts.append(table(header, rows))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two draws instead of ten")
    default = Path(__file__).parent / "results" / "gcpca.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    arguments = parser.parse_args()
    repeats, machine = 2 if arguments.quick else N_REPEATS, describe_machine()
    results = {
        "date": datetime.now(UTC).date().isoformat(),
        "quick": arguments.quick,
        "machine": machine,
        "package": f"generalized_contrastive_PCA {version('generalized_contrastive_PCA')}",
        "repeats": repeats,
        **measure(repeats),
    }
    results["machine"] = {**machine, "load_average_at_end": load_average()}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    arguments.output.with_suffix(".md").write_text(as_markdown(results))


if __name__ == "__main__":
    main()
