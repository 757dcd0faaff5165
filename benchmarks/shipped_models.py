"""Make what decides in the package's models: evidence, score, and the scores of genuine photos.

    CPCAPP_DATA=... python benchmarks/shipped_models.py GENUINE -o FOLDER
        [--network NETWORK] [--models NAME...] [--photos N] [--jobs N]

GENUINE is what `calibration_photos.py` wrote. NETWORK is what ``cpcapp train-network`` wrote;
without it the network of the package's default model is taken. The filters of ``filters`` and
``paper``, and how they find regions, stay as they are: ``make train-filters`` makes them. Scores
are learned on made splices, and on the photos that they were made of, none of which the network
saw in its training. Writes NAME.safetensors for each model, and to
benchmarks/results/comparison_photos.json how many genuine photos of a collection reach a p of .05
and .15 when the whole collection is left out. A stopped run goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from _machine import describe_machine
from cpcapp import __version__
from cpcapp._io.threads import map_threads
from cpcapp.splicing import PRESETS, SpliceLocalizer, load_model, read_image, save_model
from cpcapp.splicing.datasets.sources import open_sources
from cpcapp.splicing.make.calibration_photos import calibration_photos
from cpcapp.splicing.model import load_network
from cpcapp.splicing.photo.files import image_files
from cpcapp.splicing.photo.samples import Sample
from cpcapp.splicing.train.calibrate import (
    compare_with,
    learn_calibration,
    learn_score,
    measure_photos,
)
from cpcapp.splicing.train.checkpoint import Checkpoint
from cpcapp.splicing.train.train import choose_threshold

FOLDERS = ("bsds500", "ucid", "photos_web")
RESULTS = Path(__file__).parent / "results" / "comparison_photos.json"
SEED = 0
PHOTOS = 600
PHOTOS_FOR_THRESHOLD = 60
LEVELS = (0.05, 0.15)


def genuine_photos(folder: Path) -> dict[str, list[Sample]]:
    """Return the photos of each collection."""
    return {
        collection.name: [
            Sample.of_photo(path.name, partial(read_image, path))
            for path in image_files([collection])
        ]
        for collection in sorted(path for path in folder.iterdir() if path.is_dir())
    }


def alarms_left_out(model: SpliceLocalizer) -> dict[str, Any]:
    """Return for each collection how many of its photos reach p when it is left out."""
    calibration = model.calibration
    assert calibration is not None
    found: dict[str, Any] = {}
    for name, scores in calibration.genuine.items():
        others = {n: s for n, s in calibration.genuine.items() if n != name}
        judge = replace(calibration, genuine=others)
        p = np.array([judge.rank(score).p_value for score in scores])
        found[name] = {"photos": len(p)} | {
            f"p {x}": round(float((p <= x).mean()), 3) for x in LEVELS
        }
    means = {
        f"p {x}": round(float(np.mean([f[f"p {x}"] for f in found.values()])), 3) for x in LEVELS
    }
    return {"collections": found, "mean": means}


def make(name: str, arguments: argparse.Namespace, genuine: Mapping[str, list[Sample]]) -> None:
    """Make a model."""
    data, shipped, preset = Path(os.environ["CPCAPP_DATA"]), load_model(name), PRESETS[name]
    network = shipped.network
    if preset.network and arguments.network:
        network = load_network(arguments.network)
    meter = network or load_model().network
    assert meter is not None
    held_out = set(meter.facts["training"]["held_out_photos"])
    sources = [
        s for s in open_sources([data / f for f in FOLDERS]) if Path(s.name).stem in held_out
    ]
    bare = SpliceLocalizer(preset, shipped.banks, network=network)
    photos = calibration_photos(sources, arguments.photos, seed=SEED, as_they_are=len(sources))
    output = arguments.output / f"{name}.safetensors"
    graphs = (
        [hashlib.sha256(graph).hexdigest() for graph in network.stages.values()] if network else []
    )
    content = [__version__, preset.to_dict(), arguments.photos, SEED, graphs]
    checkpoint = Checkpoint(
        output.with_name(output.name + ".checkpoint"),
        hashlib.sha256(json.dumps(content).encode()).hexdigest(),
    )
    measured = measure_photos(bare, photos, jobs=arguments.jobs, checkpoint=checkpoint)
    if preset.network:
        calibration = learn_calibration(measured, preset)
    else:
        assert shipped.calibration is not None
        calibration = learn_score(shipped.calibration, measured, preset)
    assert calibration is not None
    print(name, "weights", calibration.weights, flush=True)
    calibration = compare_with(bare, calibration, genuine, jobs=arguments.jobs)
    facts, threshold = shipped.facts, shipped.threshold
    if preset.network:
        judging = SpliceLocalizer(preset, (), calibration=calibration, network=network)
        spliced = [sample for sample in photos if not sample.authentic][:PHOTOS_FOR_THRESHOLD]
        choice = choose_threshold(
            map_threads(
                lambda sample: (judging.localize(sample.photo).boundary, sample.mask),
                spliced,
                jobs=arguments.jobs,
            )
        )
        assert choice is not None
        threshold = choice.threshold
        facts = {
            "data": list(FOLDERS),
            "kind": "made splices of photos that the network was not trained on",
            "cpcapp": __version__,
            "seed": SEED,
            "photos": {"used": len(measured), "given": len(photos)},
            "problems": [],
            "scores": {
                "on": f"{choice.n_photos} of the photos of calibration",
                "edge": {"f1": round(choice.f1, 4), "mcc": round(choice.mcc, 4)},
            },
        }
    model = SpliceLocalizer(preset, shipped.banks, threshold, calibration, facts, network)
    save_model(model, output)
    checkpoint.remove()
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"models": {}}
    results |= {"date": datetime.now(UTC).isoformat(timespec="seconds")}
    results |= {"machine": describe_machine(), "made_by": "benchmarks/shipped_models.py"}
    results["models"][name] = alarms_left_out(model)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{output}: threshold {threshold:.3f}, left out: {results['models'][name]}", flush=True)


def main() -> None:
    """Make the models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("genuine", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--network", type=Path)
    parser.add_argument("--models", nargs="+", default=list(PRESETS), choices=list(PRESETS))
    parser.add_argument("--photos", type=int, default=PHOTOS)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    genuine = genuine_photos(arguments.genuine)
    for name in arguments.models:
        make(name, arguments, genuine)


if __name__ == "__main__":
    main()
