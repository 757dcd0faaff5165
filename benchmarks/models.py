"""The package's models side by side on photos of many kinds, with simple maps as controls.

    CPCAPP_DATA=... python benchmarks/models.py [--models NAME...] [--sets NAME...] [--jobs N]

Needs the folders bsds500, columbia_dev, casia2_pairs and real_dev. Writes
benchmarks/results/models.json and models.md; sets and models that are not named keep the figures
that stand there. Nothing is chosen here. Each run is counted in the file: these photos are for
scoring, and every look at them is one.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from _machine import describe_machine
from cpcapp.splicing import load_model
from cpcapp.splicing.datasets import open_photos
from cpcapp.splicing.datasets.sources import bsds_sources
from cpcapp.splicing.make.splices import SpliceMaker, SpliceOptions
from cpcapp.splicing.photo.jpeg import encode_jpeg
from cpcapp.splicing.photo.pixels import as_bytes
from cpcapp.splicing.photo.read import ReadImage, read_image
from cpcapp.splicing.photo.samples import Sample, photos_from
from cpcapp.splicing.score.controls import CONTROLS
from cpcapp.splicing.score.evaluate import Case, PhotoVerdict, VerdictScores, evaluate, judge_photos
from cpcapp.splicing.score.protocols import PROTOCOLS

Results = dict[str, Any]
MODELS = ("paper", "filters", "default")
RESULTS = Path(__file__).parent / "results"
# Of the spliced photos of CASIA and IMD2020 that are JPEGs: authentic photos are saved again at it.
SAVED_AGAIN = 91


def _saved(quality: int, sample: Sample) -> ReadImage:
    return read_image(encode_jpeg(as_bytes(sample.image), quality))


def _smaller(sample: Sample) -> ReadImage:
    pixels = as_bytes(sample.image)
    return read_image(cv2.resize(pixels, None, fx=0.75, fy=0.75, interpolation=cv2.INTER_AREA))


def _smaller_mask(sample: Sample) -> Any:
    mask = sample.mask.astype(np.uint8)
    small = cv2.resize(mask, None, fx=0.75, fy=0.75, interpolation=cv2.INTER_NEAREST)
    return small.astype(bool)


def changed(
    samples: Sequence[Sample],
    change: Callable[[Sample], ReadImage],
    change_mask: Callable[[Sample], Any] | None = None,
) -> list[Sample]:
    """Return photos after a change, and their masks."""
    out = []
    for sample in samples:
        mask = sample.read_mask if change_mask is None else partial(change_mask, sample)
        mask = None if sample.authentic else mask
        out.append(Sample.of_photo(sample.name, partial(change, sample), mask))
    return out


def _authentic(folder: Path) -> list[Sample]:
    sources = photos_from([folder])
    return [Sample(source.name, True, source.read) for source in sources]


def _files(folder: Path) -> list[Sample]:
    """Return all photos of a folder as authentic ones, with what their files say."""
    return [
        Sample.of_photo(path.name, partial(read_image, path))
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".tif", ".tiff")
    ]


def open_set(name: str, data: Path) -> list[Sample]:
    """Return the photos of a set by its name."""
    real = data / "real_dev"
    if name.startswith("columbia"):
        columbia = list(open_photos(data / "columbia_dev"))
        if name == "columbia":
            return columbia
        if name == "columbia-smaller":
            return changed(columbia, _smaller, _smaller_mask)
        return changed(columbia, partial(_saved, int(name.rsplit("jpeg", 1)[1])))
    if name == "casia2":
        return list(open_photos(data / "casia2_pairs"))
    if name == "casia2-saved-again":
        casia = list(open_photos(data / "casia2_pairs"))
        authentic = [s for s in casia if s.authentic]
        spliced = [s for s in casia if not s.authentic]
        return spliced + changed(authentic, partial(_saved, SAVED_AGAIN))
    if name == "imd2020":
        spliced = list(open_photos(real / "imd2020"))
        return spliced + _files(real / "authentic" / "imd2020")
    if name == "imd2020-saved-again":
        spliced = list(open_photos(real / "imd2020"))
        again = changed(_files(real / "authentic" / "imd2020"), partial(_saved, SAVED_AGAIN))
        return spliced + again
    if name == "cameras":
        return _files(real / "authentic" / "cameras")
    if name == "bsds-test":
        return _files(data / "bsds500" / "images" / "test")[::2]
    if name == "feathered":
        # No photo that the network was trained on.
        network = load_model("default").network
        assert network is not None
        held_out = set(network.facts["training"]["held_out_photos"])
        sources = [s for s in bsds_sources(data / "bsds500") if Path(s.name).stem in held_out]
        options = SpliceOptions(hard_share=0.0, jpeg_share=0.0)
        return list(SpliceMaker(sources, options, seed=7).samples(40))
    return list(open_photos(real / name))


SETS = (
    *("columbia", "columbia-jpeg85", "columbia-jpeg75", "columbia-jpeg70", "columbia-smaller"),
    *("casia2", "casia2-saved-again", "casia1", "imd2020", "imd2020-saved-again", "dst"),
    *("cameras", "bsds-test", "feathered"),
)


def score(samples: Sequence[Sample], model: str, jobs: int) -> Results:
    """Score a model, or the controls, on a set."""
    spliced = [s for s in samples if not s.authentic]
    authentic = [s for s in samples if s.authentic]
    verdicts: list[PhotoVerdict] = []
    masks: list[float] = []
    start = time.monotonic()

    def note(case: Case) -> None:
        found: Any = case.maps["model"]
        verdicts.append(PhotoVerdict.from_maps(case.sample.name, False, found))
        if found.mask is not None:
            both = max(int(found.mask.sum()) + int(case.mask.sum()), 1)
            masks.append(2.0 * int((found.mask & case.mask).sum()) / both)

    if model == "controls":
        done = evaluate(spliced, {}, protocols=list(PROTOCOLS), controls=CONTROLS, jobs=jobs)
        return {name: _figures(scores) for name, scores in done.scores.items()}
    localizer = load_model(model)
    out: Results = {}
    if spliced:
        thresholds = {"model": localizer.threshold}
        done = evaluate(
            spliced,
            {"model": localizer},
            protocols=list(PROTOCOLS),
            thresholds=thresholds,
            on_case=note,
            jobs=jobs,
        )
        out |= _figures(done.scores["model"])
        if masks:  # what people get: empty without signs
            out["mask"] = {"f1": round(float(np.mean(masks)), 4)}
    judged, problems = judge_photos(authentic, localizer, jobs=jobs)
    whole = VerdictScores((*verdicts, *judged)).to_dict()
    photos = whole.pop("photos")
    out["verdict"] = whole
    out["p_values"] = {photo["name"]: photo["p_value"] for photo in photos}
    out["problems"] = [str(problem) for problem in problems]
    out["seconds_a_photo"] = round((time.monotonic() - start) / max(len(samples), 1), 2)
    return out


def _figures(scores: Any) -> Results:
    return {
        protocol: {"f1": round(found.mean.f1, 4), "mcc": round(found.mean.mcc, 4)}
        for protocol, found in scores.items()
        if found.images
    }


def as_markdown(results: Results) -> str:
    """Return tables of the figures."""
    lines = ["# Models side by side", ""]
    lines += [f"Measured by `benchmarks/models.py`; looks at these photos: {results['looks']}.", ""]
    head = "| set | model | surface F1 / MCC | surface-fixed F1 | mask F1 | edge F1 / MCC "
    head += "| AUC (same size) | signs | alarms | alarms, weak ones too |"
    lines += [head, "|---" * 10 + "|"]
    for name, models in results["sets"].items():
        for model, found in models.items():
            if model == "controls":
                continue
            verdict = found["verdict"]
            lines.append(
                f"| {name} | {model} | {_pair(found, 'surface')} | {_one(found, 'surface-fixed')} "
                f"| {_one(found, 'mask')} | {_pair(found, 'edge')} | {_figure(verdict['auc'])} "
                f"({_figure(verdict['auc_same_size'])}) | {_figure(verdict['found_of_spliced'])} | "
                f"{_figure(verdict['alarms_on_authentic'])} | {_figure(_at_least_weak(verdict))} |"
            )
        for control, found in models.get("controls", {}).items():
            lines.append(
                f"| {name} | control: {control} | {_pair(found, 'surface')} | "
                f"{_one(found, 'surface-fixed')} | | {_pair(found, 'edge')} | | | | |"
            )
    return "\n".join(lines) + "\n"


def _at_least_weak(verdict: Results) -> float | None:
    strong, weak = verdict["alarms_on_authentic"], verdict["weak_on_authentic"]
    return None if strong is None or weak is None else float(strong + weak)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _pair(found: Results, protocol: str) -> str:
    one = found.get(protocol)
    return "–" if one is None else f"{one['f1']:.3f} / {one['mcc']:.3f}"


def _one(found: Results, protocol: str) -> str:
    one = found.get(protocol)
    return "–" if one is None else f"{one['f1']:.3f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=[*MODELS, "controls"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    data = Path(os.environ["CPCAPP_DATA"])
    file = RESULTS / "models.json"
    results: Results = {"looks": 0, "sets": {}}
    if file.is_file():
        results = json.loads(file.read_text())
    results["looks"] += 1
    for name in arguments.sets:
        samples = open_set(name, data)
        for model in arguments.models:
            if model == "controls" and all(sample.authentic for sample in samples):
                continue
            found = score(samples, model, arguments.jobs)
            results["sets"].setdefault(name, {})[model] = found
            shown = {k: v for k, v in found.items() if k not in ("p_values", "problems")}
            print(name, model, json.dumps(shown), flush=True)
            results["machine"] = describe_machine()
            results["date"] = datetime.now(UTC).date().isoformat()
            file.write_text(json.dumps(results, indent=1) + "\n")
            (RESULTS / "models.md").write_text(as_markdown(results))


if __name__ == "__main__":
    main()
