"""Make the package's default model: the filters of ``filters``, a network, and what decides.

    CPCAPP_DATA=... python benchmarks/default_model.py [NETWORK] -o MODEL [--photos N] [--jobs N]

NETWORK is what ``cpcapp train-network`` wrote, trained on bsds500, ucid and photos_web; without it
the network of the package's default model is taken. Everything that decides is learned on photos
that the network did not see in its training. A stopped run goes on from MODEL.checkpoint.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from functools import partial
from pathlib import Path

from cpcapp import __version__
from cpcapp._io.threads import map_threads
from cpcapp.splicing import PRESETS, SpliceLocalizer, load_model, save_model
from cpcapp.splicing.datasets.sources import open_sources
from cpcapp.splicing.make.calibration_photos import calibration_photos
from cpcapp.splicing.measure.network import TraceMeter
from cpcapp.splicing.model import load_network
from cpcapp.splicing.photo.pixels import BoolArray, FloatMap
from cpcapp.splicing.photo.samples import Sample
from cpcapp.splicing.train.calibrate import calibrate
from cpcapp.splicing.train.checkpoint import Checkpoint
from cpcapp.splicing.train.train import choose_threshold

FOLDERS = ("bsds500", "ucid", "photos_web")
SEED = 0
PHOTOS = 600
PHOTOS_FOR_THRESHOLD = 60


def _boundary(model: SpliceLocalizer, sample: Sample) -> tuple[FloatMap, BoolArray]:
    return model.localize(sample.photo).boundary, sample.mask


def _fingerprint(network: TraceMeter, n_photos: int) -> str:
    """Return a hash of what decides the measured photos."""
    graphs = [hashlib.sha256(graph).hexdigest() for graph in network.stages.values()]
    content = [__version__, PRESETS["default"].to_dict(), n_photos, SEED, graphs]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def main() -> None:
    """Make the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", type=Path, nargs="?")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--photos", type=int, default=PHOTOS)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    data = Path(os.environ["CPCAPP_DATA"])
    filters = load_model("filters")
    network = load_network(arguments.network) if arguments.network else load_model().network
    assert network is not None
    held_out = set(network.facts["training"]["held_out_photos"])
    sources = [
        s for s in open_sources([data / f for f in FOLDERS]) if Path(s.name).stem in held_out
    ]
    print(f"{len(sources)} photos that the network has not seen", flush=True)
    preset = PRESETS["default"]
    bare = SpliceLocalizer(preset, filters.banks, network=network)
    photos = calibration_photos(sources, arguments.photos, seed=SEED, as_they_are=len(sources))
    checkpoint = Checkpoint(
        arguments.output.with_name(arguments.output.name + ".checkpoint"),
        _fingerprint(network, arguments.photos),
    )
    calibration = calibrate(bare, photos, jobs=arguments.jobs, checkpoint=checkpoint)
    assert calibration is not None
    print(calibration.evidence.to_dict() | {"tables": "..."}, flush=True)
    judging = SpliceLocalizer(preset, filters.banks, calibration=calibration, network=network)
    spliced = [sample for sample in photos if not sample.authentic][:PHOTOS_FOR_THRESHOLD]
    choice = choose_threshold(
        map_threads(partial(_boundary, judging), spliced, jobs=arguments.jobs)
    )
    assert choice is not None
    facts = {
        "data": list(FOLDERS),
        "kind": "made splices of photos that the network was not trained on",
        "banks": filters.facts["banks"],
        "filters": "those of the model filters",
        "cpcapp": __version__,
        "seed": SEED,
        "photos": {"used": len(photos), "given": len(photos)},
        "problems": [],
        "scores": {
            "on": f"{choice.n_photos} of the photos of calibration",
            "edge": {"f1": round(choice.f1, 4), "mcc": round(choice.mcc, 4)},
        },
    }
    model = SpliceLocalizer(preset, filters.banks, choice.threshold, calibration, facts, network)
    save_model(model, arguments.output)
    checkpoint.remove()
    print(f"{arguments.output}: threshold {choice.threshold:.3f}, {facts['scores']}", flush=True)


if __name__ == "__main__":
    main()
