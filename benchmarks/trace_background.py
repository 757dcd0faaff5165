"""How much of the background of the traces should be the photo's own.

    python benchmarks/trace_background.py GENUINE [--photos N] [--jobs N]

GENUINE is what `calibration_photos.py` wrote. Made splices of two of its photos, half of them saved
again at 65 to 95, and as many of its photos as they are, are cut by the default model: with weights
of the traces from 0 to .05, and backgrounds from what was learned alone to mostly the photo's own.
``region``: F1 of the part on the side that is called pasted;
``best``: at the best threshold, better side; ``cut``: share of genuine photos in which anything is
cut out; ``sides``: AUC of the evidence of the two sides, splices against genuine photos. Writes
benchmarks/results/trace_background.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from sklearn.metrics import roc_auc_score

from _machine import describe_machine
from cpcapp._io.threads import map_threads
from cpcapp.splicing import SpliceLocalizer, load_model
from cpcapp.splicing.decide.region import ExtractedBorders, extract_borders, which_side
from cpcapp.splicing.decide.verdict import cut_features
from cpcapp.splicing.make.cuts import SpliceOptions
from cpcapp.splicing.make.splices import make_splice
from cpcapp.splicing.measure.measure import measure
from cpcapp.splicing.photo.files import image_files
from cpcapp.splicing.photo.jpeg import encode_jpeg
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.read import ReadImage, read_image

RESULTS = Path(__file__).parent / "results" / "trace_background.json"
LEARNED_ALONE = 1 << 30
OWN_PIXELS = (LEARNED_ALONE, 1_000_000, 100_000, 20_000)
WEIGHTS = (0.0, 0.01, 0.02, 0.05)
# Larger photos are cropped: splices of photos of one size.
MOST = 900
OPTIONS = SpliceOptions(
    area=(0.01, 0.35), camera_share=0, jpeg_share=0, host_jpeg_share=0, donor_jpeg_share=0
)


class Seen(NamedTuple):
    """What cuts of a photo need, and how many pixels of each superpixel were pasted."""

    borders: ExtractedBorders
    pasted: np.ndarray


def _photo(files: list[Path], number: int) -> tuple[ReadImage, np.ndarray]:
    """Return a made splice for an even number, and a genuine photo for an odd one."""
    rng = np.random.default_rng([7, number])
    host, donor = rng.choice(len(files), 2, replace=False)
    if number % 2:
        photo = read_image(files[host])
        return photo, np.zeros(photo.pixels.shape[:2], bool)
    pixels = [as_bytes(read_image(files[i]).pixels)[:MOST, :MOST] for i in (host, donor)]
    made = make_splice(*pixels, rng, OPTIONS)
    quality = int(rng.integers(65, 96)) if rng.random() < 0.5 else None
    source = made.image if quality is None else encode_jpeg(made.image, quality)
    return read_image(source), made.mask


def see(model: SpliceLocalizer, files: list[Path], number: int) -> Seen | None:
    """Measure a photo; None if a splice can't be made of the two that were drawn."""
    try:
        photo, mask = _photo(files, number)
    except ValueError:
        return None
    if photo.pixels[..., 0].size > 2_000_000 or min(mask.shape) < 64:
        return None
    borders = extract_borders(measure(photo, model), model.preset.regions)
    size = borders.labels.shape[::-1]
    small = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    return Seen(borders, np.bincount(borders.labels.ravel(), small.ravel(), len(borders.area)))


def judge(model: SpliceLocalizer, options: Any, seen: Seen) -> tuple[float, float, float, bool]:
    """Return both scores of the cut, the evidence of its sides, and whether anything is cut."""
    assert model.calibration is not None
    borders, pasted = seen
    cut, _, _ = borders.find_cut(model.calibration.table, model.calibration.traces, options)
    evidence = cut_features(cut, borders.area.sum())[1]
    if not cut.side.any():
        return 0.0, 0.0, evidence, False
    inside, _ = which_side(cut.side, borders, options)
    scores = [
        2.0 * pasted[part].sum() / max(borders.area[part].sum() + pasted.sum(), 1.0)
        for part in (cut.side == inside, cut.side != inside)
    ]
    return scores[0], max(scores), evidence, True


def trials() -> Iterator[tuple[int, float]]:
    """Yield backgrounds and weights."""
    yield LEARNED_ALONE, 0.0
    for own in OWN_PIXELS:
        for weight in WEIGHTS[1:]:
            yield own, weight


def main() -> None:
    """Score the backgrounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("genuine", type=Path)
    parser.add_argument("--photos", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    model = load_model()
    files = [f for d in sorted(arguments.genuine.iterdir()) for f in image_files([d])]
    numbers = range(arguments.photos)
    found = list(map_threads(partial(see, model, files), numbers, jobs=arguments.jobs))
    photos = [seen for seen in found if seen is not None]
    spliced = np.array([bool(seen.pasted.any()) for seen in photos])
    rows = []
    for own, weight in trials():
        options = replace(model.preset.regions, own_pixels=own, trace_weight=weight)
        judged = map_threads(partial(judge, model, options), photos, jobs=arguments.jobs)
        region, best, sides, cut = np.array(list(judged), dtype=float).T
        row = {
            "own_pixels": None if own == LEARNED_ALONE else own,
            "trace_weight": weight,
            "region": round(float(region[spliced].mean()), 4),
            "best": round(float(best[spliced].mean()), 4),
            "cut": round(float(cut[~spliced].mean()), 4),
            "sides": round(float(roc_auc_score(spliced, sides)), 4),
        }
        print(row, flush=True)
        rows.append(row)
    results = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "made_by": "benchmarks/trace_background.py",
        "spliced": int(spliced.sum()),
        "genuine": int((~spliced).sum()),
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
