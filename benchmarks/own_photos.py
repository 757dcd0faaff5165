"""Does `cpcapp train` on photos of one kind help on other photos of that kind?

    CPCAPP_DATA=... python benchmarks/own_photos.py [--splices N] [--photos N] [--jobs N]

The kind is photos of grass (the folder grass): all texture, small, saved as JPEG. None of them was
used for a model of the package. Every second one trains a model with the package's network, as
``cpcapp train`` does; splices and genuine photos made from the others are scored with that model
and with the package's. Writes benchmarks/results/own_photos.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _machine import describe_machine
from cpcapp.splicing import evaluate_localizer, load_model, train_from_folders
from cpcapp.splicing.evaluation.report import METHOD
from cpcapp.splicing.making.calibration_photos import calibration_photos
from cpcapp.splicing.photos.sources import photos_from

RESULTS = Path(__file__).parent / "results"
SEED = 17


def figures(report: Any) -> dict[str, Any]:
    """Return the scores of a model by protocol, and how often it is right and wrong."""
    scores = {
        name: {"f1": round(found.mean.f1, 4), "mcc": round(found.mean.mcc, 4)}
        for name, found in report.evaluation.scores[METHOD].items()
    }
    verdict = {k: v for k, v in report.verdicts.to_dict().items() if k != "photos"}
    return {**scores, "verdict": verdict}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splices", type=int, default=300)
    parser.add_argument("--photos", type=int, default=160)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    grass = sorted((Path(os.environ["CPCAPP_DATA"]) / "grass").iterdir())
    package = load_model("default")
    with TemporaryDirectory() as folder:
        halves = [Path(folder) / name for name in ("mine", "kept-back")]
        for start, half in enumerate(halves):
            half.mkdir()
            for path in grass[start::2]:
                (half / path.name).write_bytes(path.read_bytes())
        start_time = time.monotonic()
        training = train_from_folders(
            [halves[0]],
            "default",
            n_splices=arguments.splices,
            network=package.network,
            jobs=arguments.jobs,
        )
        seconds = time.monotonic() - start_time
        test = calibration_photos(photos_from([halves[1]]), arguments.photos, seed=SEED)
        results: dict[str, Any] = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": describe_machine(),
            "splices": arguments.splices,
            "photos": arguments.photos,
            "training_seconds": round(seconds, 1),
        }
        for name, model in (("default", package), ("own", training.localizer)):
            report = evaluate_localizer(test, model, controls=False, jobs=arguments.jobs)
            results[name] = figures(report)
            print(name, json.dumps(results[name]), flush=True)
    (RESULTS / "own_photos.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
