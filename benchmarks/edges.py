"""Edges on the 200 test photos of BSDS500: ours, Canny's and a gradient's; and how fast ours are.

    CPCAPP_DATA=... python benchmarks/edges.py

Writes benchmarks/results/edges.json, edges.md and edges.png.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import cv2
import numpy as np
from matplotlib.figure import Figure

from _edge_scores import Counts, EdgeScores, count_correspondences, summarize
from _machine import describe_machine
from cpcapp.splicing.datasets.sources import BSDSPhoto, bsds_photos
from cpcapp.splicing.measure.edges import EdgeDetector, thin_edges

TARGET_ODS = 0.72
TARGET_SPEED = 3.0
RESULTS = Path(__file__).parent / "results"


def ours(image: Any, detector: EdgeDetector) -> Any:
    return thin_edges(detector.detect(image), border=5)


def ours_multiscale(image: Any, detector: EdgeDetector) -> Any:
    return thin_edges(detector.detect(image, scales=(0.5, 1.0, 2.0)), border=5)


def canny(image: Any, detector: EdgeDetector) -> Any:
    """Canny's strength at a pixel: the highest of 99 thresholds that keeps it."""
    grey = cv2.GaussianBlur(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (0, 0), 2.0)
    grey = np.round(grey * 255).astype(np.uint8)
    strength = np.zeros(grey.shape, dtype=np.float32)
    for level in range(1, 100):
        high = 2.0 * level
        kept = cv2.Canny(grey, 0.4 * high, high, L2gradient=True) > 0
        strength[kept] = level / 100.0
    return strength


def gradient(image: Any, detector: EdgeDetector) -> Any:
    """Length of the grey gradient after a Gaussian, thinned by the same code as ours."""
    grey = cv2.GaussianBlur(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (0, 0), 2.0)
    length = np.hypot(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
    return thin_edges(np.clip(length, 0.0, 1.0), border=5)


METHODS: dict[str, Callable[[Any, EdgeDetector], Any]] = {
    "ours": ours,
    "ours, three scales": ours_multiscale,
    "Canny": canny,
    "gradient": gradient,
}


def score_photo(job: tuple[BSDSPhoto, str | None]) -> dict[str, Counts]:
    photo, forest = job
    cv2.setNumThreads(1)
    detector = _detector(forest)
    image, truths = photo.image(), photo.boundaries()
    return {
        name: count_correspondences(method(image, detector), truths)
        for name, method in METHODS.items()
    }


_DETECTORS: dict[str | None, EdgeDetector] = {}


def _detector(forest: str | None) -> EdgeDetector:
    if forest not in _DETECTORS:
        _DETECTORS[forest] = EdgeDetector(forest)
    return _DETECTORS[forest]


def measure_speed(photos: list[BSDSPhoto], forest: str | None) -> dict[str, float]:
    """Megapixels per second on one core: BSDS photos, and one photo of two megapixels."""
    cv2.setNumThreads(1)
    detector = _detector(forest)
    images = [photo.image() for photo in photos[:20]]
    large = cv2.resize(images[0], (1732, 1155), interpolation=cv2.INTER_CUBIC).clip(0, 1)
    out = {}
    for name, group in (("BSDS photos", images), ("two megapixels", [large])):
        rates = []
        for _ in range(5):
            start = time.perf_counter()
            for image in group:
                detector.detect(image)
            seconds = time.perf_counter() - start
            rates.append(sum(i.shape[0] * i.shape[1] for i in group) / 1e6 / seconds)
        out[name] = round(median(rates), 2)
    return out


def draw(scores: dict[str, EdgeScores], path: Path) -> None:
    figure = Figure(figsize=(5, 5), layout="constrained")
    ax = figure.add_subplot()
    for f in (0.5, 0.6, 0.7, 0.8):
        recall = np.linspace(f / 2 + 1e-3, 1, 200)
        ax.plot(recall, f * recall / (2 * recall - f), color="0.85", linewidth=0.8)
    colours = ("#0072B2", "#009E73", "#D55E00", "#CC79A7")
    for (name, score), colour in zip(scores.items(), colours, strict=True):
        curve = score.curve
        shown = curve.detected > 0
        ax.plot(
            curve.recall[shown],
            curve.precision[shown],
            color=colour,
            label=f"{name}: ODS {score.ods:.3f}",
        )
    ax.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(fontsize=8, loc="lower left")
    figure.savefig(path, dpi=120)


def as_markdown(result: dict[str, Any]) -> str:
    speed = result["megapixels_per_second_on_one_core"]
    lines = [
        "# Edges",
        "",
        f"{result['photos']}, {result['date']}.",
        "",
        "| | ODS | OIS | AP |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['ODS']:.3f} | {row['OIS']:.3f} | {row['AP']:.3f} |"
        for name, row in result["scores"].items()
    ]
    lines += [
        "",
        f"Speed on one core: {speed['BSDS photos']} megapixels/s (BSDS photos), "
        f"{speed['two megapixels']} (a photo of two megapixels).",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forest", help="another forest than the one of the package")
    parser.add_argument("--split", default="test", choices=("val", "test"))
    parser.add_argument("--every", type=int, default=1, help="score every n-th photo only")
    parser.add_argument("--output", type=Path, default=RESULTS / "edges.json")
    parser.add_argument(
        "--speed-only", action="store_true", help="measure the speed again, keep the scores"
    )
    arguments = parser.parse_args()
    if "CPCAPP_DATA" not in os.environ:
        parser.error("set CPCAPP_DATA to the folder that holds bsds500")
    folder = Path(os.environ["CPCAPP_DATA"]) / "bsds500"
    photos = bsds_photos(folder, [arguments.split])[:: arguments.every]
    speed = measure_speed(photos, arguments.forest)
    if arguments.speed_only:
        result = json.loads(arguments.output.read_text())
        result["megapixels_per_second_on_one_core"] = speed
    else:
        scores = score_all(photos, arguments.forest)
        draw(scores, arguments.output.with_suffix(".png"))
        result = {
            "date": date.today().isoformat(),
            "machine": describe_machine(),
            "photos": f"{len(photos)} of BSDS500 {arguments.split}",
            "scores": {
                name: {
                    "ODS": round(s.ods, 4),
                    "threshold": s.ods_threshold,
                    "OIS": round(s.ois, 4),
                    "AP": round(s.ap, 4),
                }
                for name, s in scores.items()
            },
            "megapixels_per_second_on_one_core": speed,
            "targets": {"ODS": TARGET_ODS, "megapixels_per_second": TARGET_SPEED},
        }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n")
    arguments.output.with_suffix(".md").write_text(as_markdown(result))
    print(as_markdown(result), end="")


def score_all(photos: list[BSDSPhoto], forest: str | None) -> dict[str, EdgeScores]:
    with ProcessPoolExecutor() as pool:
        counts = list(pool.map(score_photo, [(p, forest) for p in photos], chunksize=4))
    return {name: summarize(c[name] for c in counts) for name in METHODS}


if __name__ == "__main__":
    main()
