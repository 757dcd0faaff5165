"""Finding splices: how fast a localizer trains and runs, and how well it scores beside controls.

    CPCAPP_DATA=... python benchmarks/splicing.py [--quick] [--filters MODEL] [--paper MODEL]

Needs the folders bsds500, ucid, columbia_dev, casia2_pairs and nimble_sample. Writes
benchmarks/results/splicing.json and splicing.md.

Two models are trained here, with the settings "paper" and "filters", on made splices of a part of
the photos: BSDS500 train, and four of five of UCID. Splices of the others, BSDS500 val and every
fifth of UCID, show what is left of the scores when seams are soft or photos compressed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image
from scipy.linalg import blas

from _machine import describe_machine, load_average
from _one_core import localize_large, localize_photos
from _splicing_report import as_markdown
from _targets import at_least, at_most
from _timing import race
from cpcapp import Moments
from cpcapp.splicing import (
    PRESETS,
    SpliceLocalizer,
    load_model,
    save_model,
    train_localizer,
)
from cpcapp.splicing.datasets import open_photos
from cpcapp.splicing.datasets.sources import bsds_sources
from cpcapp.splicing.make.splices import SpliceMaker, SpliceOptions, training_splices
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.measure.filters import gather, image_planes
from cpcapp.splicing.photo.pixels import as_unit_float
from cpcapp.splicing.photo.samples import Sample, SampleSet, SourcePhoto, choose_evenly, photos_from
from cpcapp.splicing.score.controls import CONTROLS
from cpcapp.splicing.score.evaluate import evaluate
from cpcapp.splicing.train.train import select_patches

Results = dict[str, Any]

TRAINING_SECONDS = 300.0
MIN_PATCHES = 500_000
SHARE_OF_GEMM = 0.6
TIMES_THE_DIRECT_WAY = 20.0
PHOTO_SECONDS = 1.0
WHOLE_PHOTO_SECONDS = 2.0
PAPER_MCC, PAPER_F1 = 0.385, 0.359
FILTERS_MCC, FILTERS_F1 = 0.46, 0.45
ABOVE_CONTROLS = 0.05
LARGE_SECONDS = 15.0
LARGE_BYTES = 1.5e9

_MOMENTS, _GEMM = "moments", "gemm"
_GROUP, _SIZE = 16, 16
_VARIANT_SEED = 7


@dataclass(frozen=True)
class Plan:
    """How much to do."""

    splices: int
    files: int
    rounds: int
    timed_photos: int
    scored_photos: int | None
    variant_photos: int
    patience: float


FULL = Plan(950, 64, 3, 5, None, 24, 30.0)
QUICK = Plan(48, 16, 1, 1, 6, 4, 0.0)


# -- training --------------------------------------------------------------------------------


class Clock:
    """Takes the time at which all patches were read."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.read = 0.0

    def __call__(self, share: float) -> None:
        if share >= 1.0:
            self.read = self.elapsed()

    def elapsed(self) -> float:
        return time.perf_counter() - self.start


def timed_training(
    samples: Sequence[Sample], preset: str, jobs: int
) -> tuple[SpliceLocalizer, Results]:
    clock = Clock()
    model = train_localizer(samples, preset, jobs=jobs, progress=clock)
    banks = model.facts["banks"]
    patches = [bank["target_patches"] + bank["background_patches"] for bank in banks]
    widths = [bank.options.n_features for bank in model.banks]
    return model, {
        "preset": preset,
        "photos": len(samples),
        "patches": sum(patches),
        "features": widths,
        "operations": sum(2 * n * m * m for n, m in zip(patches, widths, strict=True)),
        "seconds": clock.elapsed(),
        "reading_seconds": clock.read,
        "patches_per_second": sum(patches) / clock.read,
        "subspace_overlap": [bank["subspace_overlap"] for bank in banks],
        "scores_on_training_photos": model.facts["scores"]["edge"],
    }


def gather_group(samples: Sequence[Sample]) -> np.ndarray:
    """Return the patches across seams of one group of photos, as training gathers them."""
    rules, rng = PRESETS["paper"].rules, np.random.default_rng(0)
    blocks = []
    for sample in samples[:_GROUP]:
        pixels = as_unit_float(sample.image)
        target, _ = select_patches(sample.mask, detect_edges(pixels), _SIZE, rules, rng)
        blocks.append(gather(image_planes(pixels, "rgb"), target, _SIZE))
    return np.concatenate(blocks)


def measure_moments(samples: Sequence[Sample], plan: Plan) -> Results:
    """Race the moments of patches against one float32 product with as many operations.

    The product is ``ZᵀZ`` without using that it is symmetric: 2 M² operations for each patch.
    """
    rows = gather_group(samples)
    n, m = rows.shape
    moments = Moments(form="scatter")
    calls: dict[str, Callable[[], object]] = {
        _MOMENTS: lambda: moments.update(rows),
        _GEMM: lambda: blas.sgemm(1.0, rows.T, rows.T, trans_b=1),
    }
    found = race(calls, 4 * plan.rounds + 1, patience=plan.patience)
    return {
        "patches_at_once": n,
        "features": m,
        "patches_per_second": n / found.median(_MOMENTS),
        "gemm_patches_per_second": n / found.median(_GEMM),
        "gemm_gflops": 2 * m * m * n / found.median(_GEMM) / 1e9,
        "share_of_gemm": found.ratio(_GEMM, _MOMENTS),
        "share_of_gemm_quartiles": found.quartiles(_GEMM, _MOMENTS),
        "rounds_disturbed": found.disturbed,
    }


def measure_training(samples: SampleSet, plan: Plan, jobs: int) -> tuple[SpliceLocalizer, Results]:
    results: Results = {"jobs": jobs, "moments": measure_moments(samples, plan)}
    with TemporaryDirectory() as folder:
        for sample in samples[: plan.files]:
            for kind, pixels in (("images", sample.image), ("masks", 255 * np.uint8(sample.mask))):
                path = Path(folder) / kind / f"{sample.name}.png"
                path.parent.mkdir(exist_ok=True)
                Image.fromarray(pixels).save(path, compress_level=1)
        _, results["from_files"] = timed_training(open_photos(folder, "pairs"), "paper", jobs)
    model, results["from_splices"] = timed_training(samples, "paper", jobs)
    for found in (results["from_files"], results["from_splices"]):
        rate = found["operations"] / found["reading_seconds"] / 1e9
        found["share_of_gemm"] = rate / results["moments"]["gemm_gflops"]
    return model, results


# -- localizing ------------------------------------------------------------------------------


def measure_localizing(models: Mapping[str, str | Path], data: Path, plan: Plan) -> Results:
    photos = sorted((data / "columbia_dev" / "4cam_splc").glob("*.tif"))
    some = photos[:: max(1, len(photos) // plan.timed_photos)][: plan.timed_photos]
    return {
        name: {
            "columbia": localize_photos(path, some, plan.rounds, plan.patience),
            "large": localize_large(path),
        }
        for name, path in models.items()
    }


# -- scores ----------------------------------------------------------------------------------


def variants(sources: Sequence[SourcePhoto], n: int) -> dict[str, SampleSet]:
    """Return splices of the same photos with exact masks, harder and harder to see."""
    hard = SpliceOptions.hard()
    options = {
        "hard": hard,
        "feathered (σ 1.5)": replace(hard, hard_share=0.0, feather=(1.5, 1.5)),
        "hard, JPEG 95": replace(hard, jpeg_share=1.0, jpeg=(95, 95)),
        "hard, JPEG 85": replace(hard, jpeg_share=1.0, jpeg=(85, 85)),
    }
    return {
        name: SpliceMaker(sources, chosen, _VARIANT_SEED).samples(n)
        for name, chosen in options.items()
    }


def data_sets(data: Path, n: int | None) -> dict[str, SampleSet]:
    opened = {
        "Columbia": open_photos(data / "columbia_dev", "columbia"),
        "CASIA v2.0": open_photos(data / "casia2_pairs", "casia"),
        "Nimble WEB": open_photos(data / "nimble_sample", "nimble", collection="Nimble-WEB"),
    }
    return {
        name: SampleSet(photos.name, choose_evenly(photos.spliced.samples, n))
        for name, photos in opened.items()
    }


def measure_scores(
    sets: Mapping[str, SampleSet], models: Mapping[str, SpliceLocalizer], jobs: int
) -> Results:
    methods = dict(models)
    results: Results = {}
    for name, photos in sets.items():
        print(f"  {name} ...", flush=True)
        found = evaluate(photos, methods, controls=CONTROLS, protocols=["edge"], jobs=jobs)
        means = {method: scores["edge"].mean for method, scores in found.scores.items()}
        results[name] = {
            "photos": found.n_scored,
            "problems": [str(problem) for problem in found.problems],
            "edge": {method: {"f1": mean.f1, "mcc": mean.mcc} for method, mean in means.items()},
        }
    return results


# -- all together ----------------------------------------------------------------------------


def split_sources(data: Path) -> tuple[list[SourcePhoto], list[SourcePhoto]]:
    """Return photos to train on, and others to make the variants of."""
    ucid = photos_from([data / "ucid"])
    seen = bsds_sources(data / "bsds500", ["train"]) + [p for i, p in enumerate(ucid) if i % 5]
    return seen, bsds_sources(data / "bsds500", ["val"]) + ucid[::5]


def measure(plan: Plan, data: Path, arguments: argparse.Namespace) -> Results:
    jobs: int = arguments.jobs
    results: Results = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": plan is QUICK,
        "machine": describe_machine(),
    }
    seen, unseen = split_sources(data)
    samples = training_splices(seen, plan.splices)
    print("training, paper ...", flush=True)
    paper, results["training"] = measure_training(samples, plan, jobs)
    names = {"shipped": "filters", "paper": "paper, trained here"}
    if arguments.paper is not None:
        paper, names["paper"] = load_model(arguments.paper), "paper, given"
    shipped = load_model(arguments.filters)
    fresh = {names["paper"]: paper}
    if not arguments.no_own:
        print("training, filters ...", flush=True)
        own, results["training"]["filters"] = timed_training(samples, "filters", jobs)
        fresh = {"filters, trained here": own, **fresh}
    print("localizing ...", flush=True)
    with TemporaryDirectory() as folder:
        save_model(paper, Path(folder) / "paper")
        files = {names["shipped"]: arguments.filters, names["paper"]: Path(folder) / "paper"}
        results["localizing"] = measure_localizing(files, data, plan)
    print("scores ...", flush=True)
    everyone = {names["shipped"]: shipped, **fresh}
    results["scores"] = measure_scores(data_sets(data, plan.scored_photos), everyone, jobs)
    # The shipped model has seen all photos that there are, with other splices.
    methods = everyone if arguments.no_own else fresh
    results["variants"] = measure_scores(variants(unseen, plan.variant_photos), methods, jobs)
    given = [names["paper"]] if arguments.paper is not None else []
    results["variants_seen_by"] = given + ([names["shipped"]] if arguments.no_own else [])
    results["machine"]["load_average_at_end"] = load_average()
    results["targets"] = targets(results)
    return results


def targets(results: Results) -> list[Results]:
    training = results["training"]["from_splices"]
    found = [
        at_least("training: patches", training["patches"], MIN_PATCHES),
        at_most("training: seconds", training["seconds"], TRAINING_SECONDS),
    ]
    for name, part in (("moments alone", "moments"), ("with making splices", "from_splices")):
        share = results["training"][part]["share_of_gemm"]
        found.append(at_least(f"training, {name}: share of gemm", share, SHARE_OF_GEMM))
    for name, figures in results["localizing"].items():
        photo, large = figures["columbia"], figures["large"]
        ratios = {
            "pixel by pixel": photo["plain"]["over_ours"],
            "per patch with NumPy": photo["direct_over_ours"],
        }
        found += [
            at_most(f"Columbia photo: seconds, {name}", photo["seconds"], PHOTO_SECONDS),
            at_most(
                f"Columbia photo: seconds with region and verdict, {name}",
                photo["seconds_with_region_and_verdict"],
                WHOLE_PHOTO_SECONDS,
            ),
            *(
                at_least(f"Columbia photo: direct, {way} / ours, {name}", r, TIMES_THE_DIRECT_WAY)
                for way, r in ratios.items()
            ),
            at_most(f"12 megapixels: seconds, {name}", large["seconds"], LARGE_SECONDS),
            at_most(f"12 megapixels: bytes, {name}", large["peak_bytes"], LARGE_BYTES),
        ]
    return found + score_targets(results["scores"])


def score_targets(scores: Results) -> list[Results]:
    columbia, casia = scores["Columbia"]["edge"], scores["CASIA v2.0"]["edge"]
    paper = next(name for name in columbia if name.startswith("paper"))
    found = []
    for kind, method, mcc, f1 in (
        ("paper", paper, PAPER_MCC, PAPER_F1),
        ("filters", "filters", FILTERS_MCC, FILTERS_F1),
    ):
        found += [
            at_least(f"Columbia: MCC, {kind}", columbia[method]["mcc"], mcc),
            at_least(f"Columbia: F1, {kind}", columbia[method]["f1"], f1),
        ]
    for measure in ("mcc", "f1"):
        best = max(columbia[control][measure] for control in CONTROLS)
        margin = columbia["filters"][measure] - best
        name = f"Columbia: {measure.upper()} of filters above the best control"
        found.append(at_least(name, margin, ABOVE_CONTROLS))
    gain = casia["filters"]["mcc"] - casia[paper]["mcc"]
    found.append(at_least("CASIA: MCC of filters above paper", gain, 0.0))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few photos, one round: a trial")
    shipped = "a model to score: a name or a path (default: %(default)s)"
    parser.add_argument("--filters", default="filters", help=shipped)
    parser.add_argument("--paper", type=Path, help="a model of the preset paper, to score it too")
    parser.add_argument(
        "--no-own",
        action="store_true",
        help="train no such model here; the variants are then scored with the shipped one, "
        "which has seen their photos",
    )
    parser.add_argument("--jobs", type=int, default=2, help="photos at once (not on one core)")
    default = Path(__file__).parent / "results" / "splicing.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    arguments = parser.parse_args()
    if "CPCAPP_DATA" not in os.environ:
        parser.error("set CPCAPP_DATA to the folder that holds the data sets")
    data = Path(os.environ["CPCAPP_DATA"])
    results = measure(QUICK if arguments.quick else FULL, data, arguments)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    table = as_markdown(results)
    arguments.output.with_suffix(".md").write_text(table)
    print()
    print(table)


if __name__ == "__main__":
    main()
