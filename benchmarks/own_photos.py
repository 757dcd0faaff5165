"""Does `cpcapp train` on photos of one kind help on other photos of that kind?

    CPCAPP_DATA=... python benchmarks/own_photos.py [--kinds NAME...] [--splices N] [--photos N]

The photos are of grass (the folder grass): all texture, small, saved as JPEG. None of them was
used for a model of the package. There are two kinds: in colour as they are, and in black and white,
as in an archive of the press. Every second photo trains a model with the package's network, as
``cpcapp train`` does; splices and genuine photos made from the others are scored with that model
and with the package's. Writes benchmarks/results/own_photos.json; kinds that are not named keep
their figures.
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

from PIL import Image

from _machine import describe_machine
from cpcapp.splicing import evaluate_localizer, load_model, train_from_folders
from cpcapp.splicing.make.calibration_photos import calibration_photos
from cpcapp.splicing.photo.samples import photos_from
from cpcapp.splicing.score.report import METHOD

RESULTS = Path(__file__).parent / "results"
SEED = 17
KINDS = ("colour", "black and white")


def copy_photo(path: Path, folder: Path, kind: str) -> None:
    """Copy a photo, in black and white if so asked."""
    if kind == "colour":
        (folder / path.name).write_bytes(path.read_bytes())
    else:
        Image.open(path).convert("L").save(folder / path.name, quality=92)


def figures(report: Any) -> dict[str, Any]:
    """Return the scores of a model by protocol, and how often it is right and wrong."""
    scores = {
        name: {"f1": round(found.mean.f1, 4), "mcc": round(found.mean.mcc, 4)}
        for name, found in report.evaluation.scores[METHOD].items()
    }
    verdict = {k: v for k, v in report.verdicts.to_dict().items() if k != "photos"}
    return {**scores, "verdict": verdict}


def compare(kind: str, n_splices: int, n_photos: int, jobs: int) -> dict[str, Any]:
    """Train on one half of the photos; score both models on splices of the other."""
    grass = sorted((Path(os.environ["CPCAPP_DATA"]) / "grass").iterdir())
    package = load_model("default")
    with TemporaryDirectory() as folder:
        halves = [Path(folder) / name for name in ("mine", "kept-back")]
        for start, half in enumerate(halves):
            half.mkdir()
            for path in grass[start::2]:
                copy_photo(path, half, kind)
        start_time = time.process_time()
        training = train_from_folders(
            [halves[0]], "default", n_splices=n_splices, network=package.network, jobs=jobs
        )
        results: dict[str, Any] = {
            "splices": n_splices,
            "photos": n_photos,
            "training_processor_seconds": round(time.process_time() - start_time, 1),
        }
        test = calibration_photos(photos_from([halves[1]]), n_photos, seed=SEED)
        for name, model in (("default", package), ("own", training.localizer)):
            report = evaluate_localizer(test, model, controls=False, jobs=jobs)
            results[name] = figures(report)
            print(kind, name, json.dumps(results[name]), flush=True)
    return results


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--splices", type=int, default=300)
    parser.add_argument("--photos", type=int, default=160)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    file = RESULTS / "own_photos.json"
    results = json.loads(file.read_text()) if file.is_file() else {}
    for kind in arguments.kinds:
        found = compare(kind, arguments.splices, arguments.photos, arguments.jobs)
        results[kind] = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": describe_machine(),
            **found,
        }
        file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
