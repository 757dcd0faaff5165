"""Regions and verdicts: how well they hold, and how often authentic photos raise an alarm.

    CPCAPP_DATA=... python benchmarks/verdicts.py [--every N] [--jobs N]

Needs the folders columbia_dev, casia2_pairs, bsds500 and ucid. Writes
benchmarks/results/verdicts.json and verdicts.md. Nothing is chosen here: Columbia, CASIA and the
test photos of BSDS500 are scored, once each.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from _machine import describe_machine
from cpcapp._io.threads import map_threads
from cpcapp.splicing import SpliceLocalizer, load_model
from cpcapp.splicing.datasets import open_photos
from cpcapp.splicing.datasets.sources import bsds_sources
from cpcapp.splicing.make.calibration_photos import calibration_photos
from cpcapp.splicing.photo.jpeg import recompress
from cpcapp.splicing.photo.samples import Sample, SourcePhoto, photos_from
from cpcapp.splicing.score.controls import grey_level_map
from cpcapp.splicing.score.evaluate import PhotoVerdict, VerdictScores
from cpcapp.splicing.score.protocols import score_map
from cpcapp.splicing.train.calibrate import calibrate

Change = Callable[[Any], Any]
Results = dict[str, Any]


def _keep(values: Any) -> Any:
    return values


def _shrink(pixels: Any) -> Any:
    flags = cv2.INTER_NEAREST if pixels.dtype == bool else cv2.INTER_AREA
    small = cv2.resize(pixels.astype(np.uint8), None, fx=0.75, fy=0.75, interpolation=flags)
    return small.astype(pixels.dtype)


def _blur(pixels: Any) -> Any:
    return cv2.GaussianBlur(pixels, (0, 0), 0.7)


# What is done to the photo, and to its mask.
CHANGES: dict[str, tuple[Change, Change]] = {
    "as it is": (_keep, _keep),
    "JPEG 95": (partial(recompress, quality=95), _keep),
    "JPEG 85": (partial(recompress, quality=85), _keep),
    "JPEG 75": (partial(recompress, quality=75), _keep),
    "75 % of the size": (_shrink, _shrink),
    "blurred (0.7 pixels)": (_blur, _keep),
}
PROTOCOLS = ("edge", "edge-fixed", "surface", "surface-fixed")
FIGURES = {"edge": ("f1", "mcc"), "surface": ("f1", "mcc"), "surface-fixed": ("f1",)}
TARGETS = {
    "surface F1": ("surface", "f1", 0.88),
    "surface MCC": ("surface", "mcc", 0.85),
    "surface F1 at 0.5": ("surface-fixed", "f1", 0.78),
    "edge MCC": ("edge", "mcc", 0.57),
    "edge F1": ("edge", "f1", 0.56),
}


def _score_photo(
    model: SpliceLocalizer, changes: tuple[Change, Change], sample: Sample
) -> tuple[PhotoVerdict, Results | None, Results | None]:
    pixels = np.ascontiguousarray(changes[0](sample.image))
    found = model.localize(pixels)
    verdict = PhotoVerdict.from_maps(sample.name, sample.authentic, found)
    if sample.authentic:
        return verdict, None, None
    mask = changes[1](sample.mask)
    edge = score_map(found.boundary, mask, ["edge", "edge-fixed"], threshold=model.threshold)
    scores = edge | score_map(found.region, mask, ["surface", "surface-fixed"])
    grey = score_map(
        grey_level_map(pixels, found.edges), mask, ["surface", "surface-fixed", "edge"]
    )
    return verdict, scores, grey


def _mean(scores: Sequence[Results], protocol: str, name: str) -> float:
    return round(float(np.mean([getattr(one[protocol], name) for one in scores])), 4)


def score_set(
    model: SpliceLocalizer, samples: Sequence[Sample], changes: tuple[Change, Change], jobs: int
) -> Results:
    """Score a data set after a change."""
    photos = list(map_threads(partial(_score_photo, model, changes), samples, jobs=jobs))
    verdicts = VerdictScores(tuple(photo[0] for photo in photos)).to_dict()
    verdicts.pop("photos")
    out: Results = {"verdict": verdicts}
    for kind, which in (("cPCA++", 1), ("control: grey level", 2)):
        scores = [photo[which] for photo in photos if photo[which] is not None]
        if scores:
            out[kind] = {
                protocol: {name: _mean(scores, protocol, name) for name in names}
                for protocol, names in FIGURES.items()
            }
    return out


def authentic_sources(
    model: SpliceLocalizer, data: Path, every: int, jobs: int
) -> Iterator[tuple[str, SpliceLocalizer, list[Sample]]]:
    """Yield authentic photos, none of which the model that they are judged by was calibrated by."""
    bsds, ucid = bsds_sources(data / "bsds500"), photos_from([data / "ucid"])
    test = _as_authentic(photos_from([data / "bsds500" / "images" / "test"])[:: 2 * every])
    yield "BSDS500 test", model, test
    n = max(80, 1200 // every)
    by_ucid, by_bsds = (_calibrate_anew(model, sources, n, jobs) for sources in (ucid, bsds))
    yield "BSDS500 test, calibrated by UCID alone", by_ucid, test
    yield "UCID, calibrated by BSDS500 alone", by_bsds, _as_authentic(ucid[::every])


def _as_authentic(photos: Sequence[SourcePhoto]) -> list[Sample]:
    return [Sample(photo.name, True, photo.read) for photo in photos]


def _calibrate_anew(
    model: SpliceLocalizer, sources: Sequence[SourcePhoto], n: int, jobs: int
) -> SpliceLocalizer:
    """Return the model as it judges if it has seen these photos only."""
    calibration = calibrate(model, calibration_photos(sources, n), jobs=jobs)
    return SpliceLocalizer(model.preset, model.banks, model.threshold, calibration, model.facts)


def measure(data: Path, every: int, jobs: int, keep: Callable[[Results], None]) -> None:
    """Measure everything; what is known is kept after each part."""
    model = load_model("filters")
    columbia = list(open_photos(data / "columbia_dev"))
    spliced = [s for s in columbia if not s.authentic][::every]
    authentic = [s for s in columbia if s.authentic][::every]
    results: Results = {"columbia_dev": {}, "authentic": {}}
    for name, changes in CHANGES.items():
        results["columbia_dev"][name] = score_set(model, spliced + authentic, changes, jobs)
        print(name, json.dumps(results["columbia_dev"][name]), flush=True)
        keep(results)
    casia = list(open_photos(data / "casia2_pairs"))[::every]
    results["casia2_pairs"] = score_set(model, casia, CHANGES["as it is"], jobs)
    print("CASIA", json.dumps(results["casia2_pairs"]), flush=True)
    keep(results)
    for source, judge, photos in authentic_sources(model, data, every, jobs):
        for name in ("as it is", "JPEG 95", "JPEG 85"):
            found = score_set(judge, photos, CHANGES[name], jobs)
            results["authentic"][f"{source}, {name}"] = {
                "n": found["verdict"]["n_authentic"],
                "alarms": found["verdict"]["alarms_on_authentic"],
            }
            print(source, name, results["authentic"][f"{source}, {name}"], flush=True)
            keep(results)


def as_markdown(report: Results) -> str:
    """Return the tables."""
    lines = [
        "# Regions and verdicts",
        "",
        f"Measured {report['date']} on {report['machine']['processor']} by "
        "`benchmarks/verdicts.py`, which chooses nothing. Means over photos; protocols as in "
        "`cpcapp evaluate`.",
        "",
        "## Columbia (`columbia_dev`)",
        "",
        "| photo | edge F1 | edge MCC | surface F1 | surface MCC | F1 at 0.5 | grey level: surface "
        "F1, MCC | AUC, pairs of one size | signs in spliced | alarms on authentic |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    sets = dict(report["columbia_dev"])
    if "casia2_pairs" in report:
        sets["CASIA pairs"] = report["casia2_pairs"]
    for name, found in sets.items():
        ours, grey, verdict = (found[k] for k in ("cPCA++", "control: grey level", "verdict"))
        lines.append(
            f"| {name} | {ours['edge']['f1']:.3f} | {ours['edge']['mcc']:.3f} | "
            f"{ours['surface']['f1']:.3f} | {ours['surface']['mcc']:.3f} | "
            f"{ours['surface-fixed']['f1']:.3f} | {grey['surface']['f1']:.3f}, "
            f"{grey['surface']['mcc']:.3f} | {_figure(verdict['auc_same_size'])} | "
            f"{_figure(verdict['found_of_spliced'])} | {_figure(verdict['alarms_on_authentic'])} |"
        )
    if "remark" in report:
        lines += ["", report["remark"]]
    if report.get("authentic"):
        lines += _authentic_table(report["authentic"])
    return "\n".join([*lines, *_targets_table(report["columbia_dev"]), ""])


def _authentic_table(results: Results) -> list[str]:
    lines = [
        "",
        "## Authentic photos at p ≤ 0.05",
        "",
        "The model that is shipped was calibrated by photos of UCID and of the other parts of "
        "BSDS500.",
        "",
        "| photos | n | alarms |",
        "|---|---|---|",
    ]
    for name, found in results.items():
        lines.append(f"| {name} | {found['n']} | {_figure(found['alarms'])} |")
    return lines


def _targets_table(results: Results) -> list[str]:
    lines = ["", "## Targets on Columbia", "", "| | target | measured |", "|---|---|---|"]
    ours = results["as it is"]["cPCA++"]
    for name, (protocol, figure, target) in TARGETS.items():
        lines.append(f"| {name} | {target} | {ours[protocol][figure]:.3f} |")
    auc = results["as it is"]["verdict"]["auc_same_size"]
    lines.append(f"| AUC over pairs of one size | 0.90 | {_figure(auc)} |")
    for name, target in (("JPEG 95", 0.76), ("JPEG 85", 0.68)):
        if name in results:
            found = results[name]["cPCA++"]["surface"]["f1"]
            lines.append(f"| surface F1 at {name} | {target} | {found:.3f} |")
    return lines


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="only every so many photos: a trial")
    parser.add_argument("--jobs", type=int, default=2)
    default = Path(__file__).parent / "results" / "verdicts.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file to write")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    data = Path(os.environ["CPCAPP_DATA"])
    about = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": describe_machine()}

    def keep(results: Results) -> None:
        report = about | results
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")
        arguments.output.with_suffix(".md").write_text(as_markdown(report))

    measure(data, arguments.every, arguments.jobs, keep)


if __name__ == "__main__":
    main()
