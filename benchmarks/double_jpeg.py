"""Traces of double compression: fit their constants on made splices, and check them on others.

    CPCAPP_DATA=... python benchmarks/double_jpeg.py [--every N]

Hosts and pasted parts are training photos of BSDS500. A host is cropped off its own grid and saved
with quality q1. An ellipse of another photo is pasted, which was resized ("resized") or saved with
q1 and cropped to another grid ("cropped"). The result is saved with q2. The logistic curve of
`cpcapp.splicing.measure.jpeg_traces` is fitted to one half of the photos and checked on the other.
Only blocks completely inside or outside count. Thresholds and the form of the curve were chosen
with both halves in view, so "check_unseen" repeats the check on validation photos, which were used
for nothing else.

Writes benchmarks/results/double_jpeg.json.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from _machine import describe_machine
from cpcapp.splicing import read_image
from cpcapp.splicing.measure import jpeg_traces
from cpcapp.splicing.photo import jpeg
from cpcapp.splicing.photo.jpeg import luminance
from cpcapp.splicing.photo.read import read_coefficients

FIRST, LAST = (60, 70, 80, 85), (75, 85, 90, 95)
RESULTS = Path(__file__).parent / "results" / "double_jpeg.json"

Bytes = NDArray[np.uint8]


def read_lying(path: Path) -> Bytes:
    """Return a photo, turned if it is upright, so that any two are of one size."""
    pixels = read_image(path).pixels
    return np.ascontiguousarray(
        pixels if pixels.shape[1] > pixels.shape[0] else pixels.swapaxes(0, 1)
    )


def encode(pixels: Bytes, quality: int) -> bytes:
    """As Pillow saves it: colours at half the size up to quality 95, as most editors do."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def compress(pixels: Bytes, quality: int) -> Bytes:
    return np.asarray(Image.open(io.BytesIO(encode(pixels, quality))).convert("RGB"))


def shrink(pixels: Bytes) -> Bytes:
    return np.asarray(cv2.resize(pixels, None, fx=0.85, fy=0.85, interpolation=cv2.INTER_AREA))


def splice(
    host: Bytes, donor: Bytes, first: int, kind: str, seed: int
) -> tuple[Bytes, NDArray[np.bool_]]:
    """Return a splice that was not saved yet, and its mask."""
    rng = np.random.default_rng(seed)
    spliced = compress(host[3:, 5:], first).copy()
    part = shrink(donor) if kind == "resized" else compress(donor, first)[3:, 2:]
    height, width = (min(a, b) for a, b in zip(spliced.shape[:2], part.shape[:2], strict=True))
    drawn = np.zeros((height, width), np.uint8)
    down, across = rng.uniform(0.15, 0.35, 2) * (height, width)
    centre = (rng.uniform(across, width - across), rng.uniform(down, height - down))
    cv2.ellipse(
        drawn,
        (int(centre[0]), int(centre[1])),
        (int(across), int(down)),
        *(rng.uniform(0, 180), 0, 360, 1, -1),
    )
    mask = np.zeros(spliced.shape[:2], dtype=bool)
    mask[:height, :width] = drawn > 0
    spliced[mask] = part[:height, :width][mask[:height, :width]]
    return spliced, mask


def label_blocks(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return 1 for blocks that were pasted, 0 for the host's, NaN for those on the outline."""
    rows, cols = (n // 8 for n in mask.shape)
    share = mask[: 8 * rows, : 8 * cols].reshape(rows, 8, cols, 8).mean(axis=(1, 3))
    return np.where(share == 1.0, 1.0, np.where(share == 0.0, 0.0, np.nan))


def pairs(photos: list[Path]) -> Iterator[tuple[int, Bytes, Bytes]]:
    for number, path in enumerate(photos):
        other = photos[(number + len(photos) // 2) % len(photos)]
        yield number, read_lying(path), read_lying(other)


def evidences(photos: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the evidence and labels of the blocks of splices."""
    for number, host, donor in pairs(photos):
        for first, last in product(FIRST, LAST):
            kind = ("resized", "cropped")[(number + first // 5) % 2]
            pixels, mask = splice(host, donor, first, kind, seed=number)
            found = read_coefficients(encode(pixels, last))
            compared = jpeg_traces.compare_histories(found)
            label = label_blocks(mask)
            sure = ~np.isnan(label)
            yield {
                "pair": f"{first} then {last}",
                "kind": kind,
                "shows": bool(compared.first_table.any()),
                "evidence": compared.evidence()[sure],
                "middle": np.full(int(sure.sum()), compared.middle()),
                "label": label[sure],
            }


def join(found: list[dict[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what the curve depends on, (n_blocks, 2), and the labels."""
    values = [np.stack([one["evidence"], one["middle"]], axis=1) for one in found]
    return np.concatenate(values), np.concatenate([one["label"] for one in found])


def fit(photos: list[Path]) -> dict[str, Any]:
    kept = [one for one in evidences(photos) if one["shows"]]
    values, labels = join(kept)
    curve = LogisticRegression(C=1e6).fit(values, labels)
    said = curve.predict_proba(values)[:, 1]
    bins = reliability(said, labels)
    return {
        "slope": round(float(curve.coef_[0, 0]), 3),
        "centre": round(float(curve.coef_[0, 1]), 3),
        "offset": round(float(curve.intercept_[0]), 3),
        # Photos differ more than a logistic curve has it: what held of what the curve said.
        "said": [one["mean_probability"] for one in bins],
        "held": np.maximum.accumulate([one["single_compressed"] for one in bins]).tolist(),
        "splices": len(kept),
        "blocks": len(labels),
        "pasted": round(float(labels.mean()), 3),
    }


def reliability(probability: NDArray[np.float64], labels: NDArray[np.float64]) -> list[Any]:
    """Return how many blocks were pasted of those with a probability, for ten ranges of it."""
    bins = []
    for low in np.arange(10) / 10:
        chosen = (probability >= low) & (probability < low + 0.1 + 1e-9 * (low >= 0.9))
        bins.append(
            {
                "blocks": int(chosen.sum()),
                "mean_probability": mean(probability[chosen]),
                "single_compressed": mean(labels[chosen]),
            }
        )
    return bins


def check(photos: list[Path], fitted: dict[str, Any]) -> dict[str, Any]:
    """Return areas under the curve by pair of qualities, and how often a probability holds."""
    found = list(evidences(photos))
    scores: dict[str, Any] = {}
    for pair in dict.fromkeys(one["pair"] for one in found):
        same = [one for one in found if one["pair"] == pair]
        scores[pair] = {
            "block_auc": mean(roc_auc_score(one["label"], one["evidence"]) for one in same),
            "shows": mean(one["shows"] for one in same),
        }
    kept = [one for one in found if one["shows"]]
    values, labels = join(kept)
    log_odds = values @ [fitted["slope"], fitted["centre"]] + fitted["offset"]
    probability = 1.0 / (1.0 + np.exp(-log_odds))
    held = np.interp(probability, [0.0, *fitted["said"], 1.0], [0.0, *fitted["held"], 1.0])
    return {"by_qualities": scores, "reliability": reliability(held, labels)}


def mean(values: Any) -> float | None:
    known = list(values)
    return round(float(np.mean(known)), 4) if known else None


def check_once(photos: list[Path]) -> dict[str, Any]:
    """Return how often a photo that was saved once seems to have been saved twice."""
    found: dict[str, Any] = {}
    for last in (*LAST, 98):
        aligned, shifted, scores = [], [], []
        for path in photos:
            data = encode(shrink(read_lying(path)), last)
            trace = jpeg_traces.double_jpeg_trace(read_coefficients(data))
            aligned.append(trace.first_table.any())
            shifted.append(trace.offset is not None)
            coefficients = read_coefficients(data)
            plane = coefficients.plane.astype(np.float32)
            scores.append(jpeg_traces.find_shift(plane, coefficients.table)[1])
        found[str(last)] = {
            "aligned": mean(aligned),
            "shifted": mean(shifted),
            "shift_score_quantile_95": round(float(np.quantile(scores, 0.95)), 2),
        }
    return found


def check_shifted(photos: list[Path]) -> dict[str, Any]:
    """Return how often an earlier grid is found, and how well its blocks are."""
    found: dict[str, Any] = {}
    for first, last, place in product((60, 80), LAST, ("host", "pasted")):
        right, areas, scores = [], [], []
        for number, host, donor in pairs(photos):
            host, donor = shrink(host), shrink(donor)
            rng = np.random.default_rng(number)
            row, column = (int(n) for n in divmod(rng.integers(1, 64), 8))
            mask = np.zeros(host.shape[:2], np.uint8)
            cv2.ellipse(mask, (190, 130), (100, 80), 0.0, 0, 360, 1, -1)
            old = np.roll(
                compress(host if place == "host" else donor, first), (row, column), (0, 1)
            )
            new = donor if place == "host" else host
            inside = old if place == "pasted" else new
            pixels = np.where(mask[..., None] > 0, inside, old if place == "host" else new)
            coefficients = read_coefficients(encode(pixels, last))
            trace = jpeg_traces.double_jpeg_trace(coefficients)
            plane = coefficients.plane.astype(np.float32)
            scores.append(jpeg_traces.find_shift(plane, coefficients.table)[1])
            right.append(trace.offset == (row, column))
            label = label_blocks(mask > 0)
            sure = ~np.isnan(label)
            if right[-1]:
                sign = 1.0 if place == "pasted" else -1.0
                areas.append(roc_auc_score(label[sure], sign * trace.shifted[sure]))
        found[f"{first} then {last}, {place}"] = {
            "found": mean(right),
            "block_auc_if_found": mean(areas),
            "median_score": round(float(np.median(scores)), 2),
        }
    return found


def check_near_zeros(photos: list[Path]) -> dict[str, Any]:
    """Return the block AUC of near-zeros in photos that are saved without loss, by window."""
    kept = jpeg._WINDOW
    found: dict[str, Any] = {}
    try:
        for window, first in product((1, 3, 5, 7), (60, 80, 90, 95)):
            jpeg._WINDOW = window
            areas = []
            for number, host, donor in pairs(photos):
                pixels, mask = splice(host, donor, first, "resized", seed=number)
                label = label_blocks(mask)
                sure = ~np.isnan(label)
                values = jpeg.near_zeros(luminance(pixels))
                areas.append(roc_auc_score(label[sure], -values[sure]))
            found.setdefault(f"window {window}", {})[f"JPEG {first}"] = mean(areas)
    finally:
        jpeg._WINDOW = kept
    return found


def seconds_per_megapixel(photos: list[Path]) -> dict[str, float]:
    """On a sheet of photos of about four megapixels; the best of three."""
    sheet = np.tile(np.concatenate([read_lying(path) for path in photos[:6]]), (1, 4, 1))
    coefficients = read_coefficients(encode(sheet, 90))
    plane = luminance(sheet)
    works = {
        "double_jpeg_trace": lambda: jpeg_traces.double_jpeg_trace(coefficients),
        "near_zeros": lambda: jpeg.near_zeros(plane),
        "grid_offset": lambda: jpeg.grid_offset(plane),
        "read_coefficients": lambda: read_coefficients(encode(sheet, 90)),
    }
    found = {}
    for name, work in works.items():
        times = []
        for _ in range(3):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        found[name] = round(min(times) / plane.size * 1e6, 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="use every so many photos")
    arguments = parser.parse_args()
    folder = Path(os.environ["CPCAPP_DATA"]) / "bsds500" / "images" / "train"
    photos = sorted(folder.glob("*.jpg"))[:: arguments.every]
    fitted_on, others = photos[::2], photos[1::2]
    unseen = sorted((folder.parent / "val").glob("*.jpg"))[:: 2 * arguments.every]
    fitted = fit(fitted_on)
    results = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": describe_machine(),
        "photos": {"fitted": len(fitted_on), "checked": len(others), "unseen": len(unseen)},
        "fit": fitted,
        "check": check(others, fitted),
        "check_unseen": check(unseen, fitted),
        "once": check_once(others),
        "shifted": check_shifted(others[::2]),
        "near_zeros": check_near_zeros(others[::2]),
        "seconds_per_megapixel": seconds_per_megapixel(others),
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps({key: results[key] for key in results if key != "machine"}, indent=1))


if __name__ == "__main__":
    main()
