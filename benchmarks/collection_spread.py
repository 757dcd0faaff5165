"""How often do genuine photos raise an alarm when their whole collection is unknown to the model?

    CPCAPP_DATA=... python benchmarks/collection_spread.py

Takes the scores of genuine photos that the default model was calibrated by. Each photo that was
left as it is gets a p-value from the photos of the other collections (bsds500, ucid, photos_web),
for a grid of `VerdictOptions.collection_spread`. The smallest one is named with which at most 5 %
of such photos raise an alarm, at 80 % confidence (Clopper and Pearson). Writes
benchmarks/results/collection_spread.json.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from _machine import describe_machine
from cpcapp.splicing import load_model
from cpcapp.splicing.datasets.sources import open_sources
from cpcapp.splicing.decide.verdict import Calibration, PhotoFeatures, student_tail
from cpcapp.splicing.make.calibration_photos import authentic_source
from cpcapp.splicing.photo.samples import SourcePhoto
from default_model import FOLDERS, PHOTOS, SEED

RESULTS = Path(__file__).parent / "results"
SPREADS = np.arange(1.0, 1.55, 0.05).round(2)
RATE, CONFIDENCE = 0.05, 0.8


def sources_by_collection(data: Path, held_out: set[str]) -> list[tuple[str, SourcePhoto]]:
    """Return the photos that the network has not seen, each with the name of its collection."""
    return [
        (folder, source)
        for folder in FOLDERS
        for source in open_sources([data / folder])
        if Path(source.name).stem in held_out
    ]


def z_scores_elsewhere(calibration: Calibration, collections: list[str]) -> list[float]:
    """Return the z-score of each genuine photo among those of the other collections."""
    known = calibration.authentic
    assert known is not None and len(known) == len(collections)
    of = np.array(collections)
    found = []
    for (mean, level, compression, score), collection in zip(known, collections, strict=True):
        others = replace(calibration, authentic=known[of != collection])
        features = PhotoFeatures(0.0, mean, level, 0.0, compression)
        similar = others.similar_photos(features)
        found.append(float("nan") if similar is None else float(similar.z_scores(score)))
    return found


def highest_rate(n_alarms: int, n: int) -> float:
    """Return the upper limit of the rate of alarms, by Clopper and Pearson."""
    return float(beta.ppf(CONFIDENCE, n_alarms + 1, n - n_alarms))


def main() -> None:
    """Run the benchmark."""
    model = load_model("default")
    assert model.network is not None and model.calibration is not None
    held_out = set(model.network.facts["training"]["held_out_photos"])
    sources = sources_by_collection(Path(os.environ["CPCAPP_DATA"]), held_out)
    only = [source for _, source in sources]
    name_of = {id(source): folder for folder, source in sources}
    made = [name_of[id(authentic_source(only, number, SEED))] for number in range(1, PHOTOS, 2)]
    z_scores = np.array(z_scores_elsewhere(model.calibration, made + [f for f, _ in sources]))
    kinds = {"as they are": z_scores[len(made) :], "made": z_scores[: len(made)]}
    rows: list[dict[str, Any]] = []
    for spread in SPREADS:
        row: dict[str, Any] = {"spread": float(spread)}
        for kind, scores in kinds.items():
            p_values = np.array([student_tail(z / spread) for z in scores])
            n_alarms = int((p_values <= RATE).sum())
            row[kind] = {
                "photos": len(scores),
                "alarms": n_alarms,
                "weak": int((p_values <= 0.15).sum()),
                "rate_at_most": round(highest_rate(n_alarms, len(scores)), 4),
            }
        rows.append(row)
    fitting = [row["spread"] for row in rows if row["as they are"]["rate_at_most"] <= RATE]
    results = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "rate": RATE,
        "confidence": CONFIDENCE,
        "smallest": fitting[0],
        "spreads": rows,
    }
    (RESULTS / "collection_spread.json").write_text(json.dumps(results, indent=1) + "\n")
    for row in rows:
        print(json.dumps(row))
    print(f"smallest: {fitting[0]:g}")


if __name__ == "__main__":
    main()
