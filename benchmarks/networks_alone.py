"""Score trace networks alone, without the contrast that decides, on photos of several sets.

    CPCAPP_DATA=... python benchmarks/networks_alone.py NAME=FILE... -o FILE [--sets NAME...]

FILE is what ``cpcapp train-network`` writes, or ``default`` for the network of the package. The map
of the region is scored at its best threshold (``surface``), the pasted side at one half
(``surface-fixed``), and the seam at its best threshold (``edge``); means over the spliced photos.
These photos are for scoring: nothing is chosen by them, and every look is one.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from cpcapp.splicing import load_model
from cpcapp.splicing.measure.network import TraceMeter
from cpcapp.splicing.model import load_network
from cpcapp.splicing.photo.samples import Sample
from cpcapp.splicing.score.protocols import score_map
from models import open_set

SETS = ("columbia", "casia2", "casia1", "imd2020", "dst")


def score_photo(network: TraceMeter, sample: Sample) -> dict[str, float]:
    """Return the F1 of each map of a photo."""
    mask = sample.mask
    found = network.measure(sample.photo.pixels, *sample.photo.grid[:2])
    rows, columns = found.block_of(*(np.arange(side) for side in mask.shape))
    maps = {
        "surface": found.region[rows[:, None], columns],
        # Above one half where the odds are above even.
        "surface-fixed": (found.pasted > 0).astype(float)[rows[:, None], columns],
        "edge": found.seam,
    }
    return {name: score_map(map_, mask, [name])[name].f1 for name, map_ in maps.items()}


def main() -> None:
    """Score the networks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    data = Path(os.environ["CPCAPP_DATA"])
    networks = {}
    for name, file in (given.split("=", 1) for given in arguments.networks):
        networks[name] = load_model().network if file == "default" else load_network(file)
    results: dict[str, Any] = {}
    for chosen in arguments.sets:
        figures: dict[str, dict[str, list[float]]] = {n: defaultdict(list) for n in networks}
        for sample in open_set(chosen, data):
            if sample.authentic:
                continue
            for name, network in networks.items():
                assert network is not None
                for map_name, f1 in score_photo(network, sample).items():
                    figures[name][map_name].append(round(f1, 4))
        results[chosen] = {
            name: {key: round(float(np.mean(values)), 4) for key, values in found.items()}
            | {"photos": dict(found)}
            for name, found in figures.items()
        }
        for name, found in results[chosen].items():
            print(chosen, name, {k: v for k, v in found.items() if k != "photos"}, flush=True)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
