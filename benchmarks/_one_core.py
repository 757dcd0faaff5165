"""Localizing on one core: each figure from a process of its own, which has a single thread.

The process is this file, with what to do as JSON; it prints what it found as JSON.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from _timing import race
from cpcapp.splicing import FilterBank, SpliceLocalizer, load_model
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.measure.filters import image_planes, starts
from cpcapp.splicing.measure.measure import filter_boundary
from cpcapp.splicing.photo.pixels import as_unit_float
from cpcapp.splicing.photo.read import read_image

Results = dict[str, Any]

LARGE = (3000, 4000)
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_OURS, _DIRECT, _EDGES = "ours", "direct", "edges"
_WHOLE = "with region and verdict"
# Rows of the photo that the way pixel by pixel is timed on: more than one row of patches, so
# that the share of pixels in it that few patches cover is small.
_STRIP = 64


def localize_photos(
    model: str | Path, photos: Sequence[Path], rounds: int, patience: float
) -> Results:
    """Return the seconds that photos take, ours and by the direct way."""
    return _in_new_process(
        job="photos", model=model, photos=list(photos), rounds=rounds, patience=patience
    )


def localize_large(model: str | Path) -> Results:
    """Return the seconds and the memory that a photo of 12 megapixels takes."""
    return _in_new_process(job="large", model=model)


def _in_new_process(**task: Any) -> Results:
    environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1")}
    command = [sys.executable, __file__, json.dumps(task, default=str)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: Results = json.loads(done.stdout)
    return found


# -- in the new process ------------------------------------------------------------------------


class DirectBank(FilterBank):
    """The paper's steps one after the other, a patch at a time, each step in NumPy."""

    def map(self, image: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        options, size = self.options, self.options.size
        planes = image_planes(image, options.channels)
        places = [
            (slice(None), slice(row, row + size), slice(col, col + size))
            for row in starts(image.shape[0], size, options.stride)
            for col in starts(image.shape[1], size, options.stride)
        ]
        filters = self.filters.T.astype(np.float64)
        if options.weights == "excess":
            filters *= np.sqrt(np.maximum(1.0 - 1.0 / self.eigenvalues, 0.0))[:, None]
        mean = np.zeros(options.n_features)
        for place in places:
            mean += planes[place].ravel()
        mean /= len(places)
        power = np.empty(len(places))
        for number, place in enumerate(places):
            z = planes[place].ravel()
            y = filters @ (z - mean)
            power[number] = y @ y
            if options.variance_exponent:
                variance = z.var(dtype=np.float64) + 1e-6
                power[number] /= variance**options.variance_exponent
        largest = float(power.max())
        power /= largest
        profile = np.ones(size)
        if options.window == "gaussian":
            profile = np.exp(-0.5 * ((np.arange(size) - (size - 1) / 2) / (size / 5)) ** 2)
        window = np.multiply.outer(profile, profile)
        total, weight = np.zeros((2, *image.shape[:2]))
        for value, (_, rows, cols) in zip(power, places, strict=True):
            total[rows, cols] += window * value
            weight[rows, cols] += window
        return (total / weight).astype(np.float32), largest


class PlainBank(FilterBank):
    """The paper's steps as the tests write them: a patch and a pixel at a time, in plain loops."""

    def map(self, image: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        options, size = self.options, self.options.size
        planes = image_planes(image, options.channels).astype(np.float64)
        places = [
            (int(top), int(left))
            for top in starts(image.shape[0], size, options.stride)
            for left in starts(image.shape[1], size, options.stride)
        ]
        inside = [(row, col) for row in range(size) for col in range(size)]
        columns = [
            np.array([plane[top + row, left + col] for plane in planes for row, col in inside])
            for top, left in places
        ]
        mean = sum(columns) / len(columns)
        weights = np.ones(options.n_filters)
        if options.weights == "excess":
            weights = np.maximum(1.0 - 1.0 / self.eigenvalues, 0.0)
        filters = self.filters.T.astype(np.float64)
        power = []
        for z in columns:
            y = [float(f @ (z - mean)) for f in filters]
            v = sum(w * value**2 for w, value in zip(weights, y, strict=True))
            if options.variance_exponent:
                centre = z.mean()
                variance = sum((value - centre) ** 2 for value in z) / len(z)
                v /= (variance + 1e-6) ** options.variance_exponent
            power.append(v)
        largest = max(power)
        total, weight = np.zeros((2, *image.shape[:2]))
        for (top, left), v in zip(places, power, strict=True):
            for row, col in inside:
                seen = 1.0
                if options.window == "gaussian":
                    off = (row - (size - 1) / 2) ** 2 + (col - (size - 1) / 2) ** 2
                    seen = math.exp(-off / (2 * (size / 5) ** 2))
                total[top + row, left + col] += seen * v / largest
                weight[top + row, left + col] += seen
        return (total / weight).astype(np.float32), largest


def _with(model: SpliceLocalizer, kind: type[FilterBank]) -> SpliceLocalizer:
    banks = [kind(bank.options, bank.filters, bank.eigenvalues) for bank in model.banks]
    return SpliceLocalizer(model.preset, banks, model.threshold)


def _pixel_by_pixel(model: SpliceLocalizer, pixels: NDArray[Any]) -> Results:
    """Time the plain loops on a strip across the middle, and what they would take for all of it.

    The work is the same for each patch, so it grows with their number.
    """
    plain = _with(model, PlainBank)
    top = (len(pixels) - _STRIP) // 2
    strip = as_unit_float(pixels[top : top + _STRIP])
    edges = detect_edges(strip)
    start = time.perf_counter()
    found = filter_boundary(strip, edges, plain).map
    seconds = time.perf_counter() - start
    ours = filter_boundary(strip, edges, model).map
    # Banks of one size and one stride have as many patches each.
    sizes = {(bank.options.size, bank.options.stride) for bank in model.banks}
    grown = [
        len(starts(len(pixels), size, stride)) / len(starts(_STRIP, size, stride))
        for size, stride in sizes
    ]
    return {
        "strip_rows": _STRIP,
        "strip_seconds": seconds,
        "seconds_without_edges": seconds * sum(grown) / len(grown),
        "largest_difference": float(np.abs(found - ours).max()),
    }


def _photos(model: SpliceLocalizer, photos: list[str], rounds: int, patience: float) -> Results:
    # The boundary map alone is what the direct way makes too.
    whole, model, direct = model, _with(model, FilterBank), _with(model, DirectBank)
    seconds: dict[str, list[float]] = {_OURS: [], _DIRECT: [], _EDGES: [], _WHOLE: []}
    ratios, maps, difference, sizes, plain = [], [], 0.0, [], []
    for photo in photos:
        pixels = read_image(photo).pixels
        sizes.append(pixels.shape[0] * pixels.shape[1] / 1e6)
        a, b = (one.localize(photo).boundary for one in (model, direct))
        difference = max(difference, float(np.abs(a - b).max()))
        calls = {
            _OURS: lambda photo=photo: model.localize(photo),
            _DIRECT: lambda photo=photo: direct.localize(photo),
            _EDGES: lambda pixels=pixels: detect_edges(pixels),
            _WHOLE: lambda photo=photo: whole.localize(photo),
        }
        found = race(calls, rounds, warm_up=False, patience=patience)
        for name, values in seconds.items():
            values.append(found.median(name))
        ratios.append(found.ratio(_DIRECT, _OURS))
        maps.append((seconds[_DIRECT][-1] - seconds[_EDGES][-1]) / _rest(seconds))
        plain.append(_pixel_by_pixel(model, pixels))
    loops = [one["seconds_without_edges"] for one in plain]
    each = list(zip(seconds[_OURS], seconds[_EDGES], loops, strict=True))
    return {
        "photos": len(photos),
        "megapixels": median(sizes),
        "seconds": median(seconds[_OURS]),
        "seconds_with_region_and_verdict": median(seconds[_WHOLE]),
        "of_which_edges": median(seconds[_EDGES]),
        "direct_seconds": median(seconds[_DIRECT]),
        "direct_over_ours": median(ratios),
        "direct_over_ours_without_edges": median(maps),
        "largest_difference": difference,
        "plain": {
            "strip_rows": _STRIP,
            "seconds": median(loop + edges for _, edges, loop in each),
            "over_ours": median((loop + edges) / own for own, edges, loop in each),
            "over_ours_without_edges": median(
                loop / max(own - edges, 1e-3) for own, edges, loop in each
            ),
            "largest_difference": max(one["largest_difference"] for one in plain),
        },
    }


def _rest(seconds: dict[str, list[float]]) -> float:
    return max(seconds[_OURS][-1] - seconds[_EDGES][-1], 1e-3)


def _large(model: SpliceLocalizer) -> Results:
    photo = _synthetic(LARGE)
    model.localize(photo[:96, :96])  # loads the forest of edges
    before = _peak_bytes()
    start, start_cpu = time.perf_counter(), time.process_time()
    found = model.localize(photo)
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    assert found.boundary.shape == LARGE
    return {
        "megapixels": LARGE[0] * LARGE[1] / 1e6,
        "seconds": seconds,
        "processor_seconds": cpu,
        "peak_bytes": _peak_bytes(),
        "peak_bytes_before": before,
    }


def _synthetic(shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Return a large photo of blurred blocks and noise, made in strips."""
    rng = np.random.default_rng(0)
    height, width = shape
    blocks = rng.integers(0, 256, (height // 25, width // 25, 3), dtype=np.uint8)
    photo = cv2.resize(blocks, (width, height), interpolation=cv2.INTER_CUBIC)
    for top in range(0, height, 100):
        strip = photo[top : top + 100]
        noise = rng.integers(-6, 7, strip.shape, dtype=np.int16)
        strip[...] = np.clip(strip + noise, 0, 255)
    return np.asarray(photo)


def _peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    task = json.loads(sys.argv[1])
    cv2.setNumThreads(1)
    model = load_model(task["model"])
    if task["job"] == "large":
        found = _large(model)
    else:
        found = _photos(model, task["photos"], task["rounds"], task["patience"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
