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
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from _machine import describe_machine
from cpcapp.splicing import SpliceLocalizer, load_model
from cpcapp.splicing.datasets import open_photos
from cpcapp.splicing.datasets.bsds import bsds_sources
from cpcapp.splicing.evaluation.protocols import score_map
from cpcapp.splicing.evaluation.truth import boundary_band
from cpcapp.splicing.evaluation.verdict_scores import PhotoVerdict, VerdictScores
from cpcapp.splicing.photos.jpeg import recompress
from cpcapp.splicing.photos.samples import Sample
from cpcapp.splicing.photos.sources import SourcePhoto, photos_from
from cpcapp.splicing.training.calibrate import calibrate, calibration_photos

Change = Callable[[Any], Any]
Results = dict[str, Any]


def _same(values: Any) -> Any:
    return values


def _smaller(pixels: Any) -> Any:
    flags = cv2.INTER_NEAREST if pixels.dtype == bool else cv2.INTER_AREA
    small = cv2.resize(pixels.astype(np.uint8), None, fx=0.75, fy=0.75, interpolation=flags)
    return small.astype(pixels.dtype)


def _blurred(pixels: Any) -> Any:
    return cv2.GaussianBlur(pixels, (0, 0), 0.7)


# What is done to the photo, and to its mask.
CHANGES: dict[str, tuple[Change, Change]] = {
    "as it is": (_same, _same),
    "JPEG 95": (partial(recompress, quality=95), _same),
    "JPEG 85": (partial(recompress, quality=85), _same),
    "JPEG 75": (partial(recompress, quality=75), _same),
    "75 % of the size": (_smaller, _smaller),
    "blurred (0.7 pixels)": (_blurred, _same),
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


def _look(
    model: SpliceLocalizer, changes: tuple[Change, Change], sample: Sample
) -> tuple[PhotoVerdict, Results | None, Results | None]:
    pixels = np.ascontiguousarray(changes[0](sample.image))
    found = model.localize(pixels)
    judged = PhotoVerdict(
        sample.name, sample.authentic, *pixels.shape[:2], found.score, found.p_value
    )
    if sample.authentic:
        return judged, None, None
    mask = changes[1](sample.mask)
    edge = score_map(found.boundary, mask, ["edge", "edge-fixed"], threshold=model.threshold)
    scores = edge | score_map(found.region, mask, ["surface", "surface-fixed"])
    grey = score_map(
        grey_level_map(pixels, found.edges), mask, ["surface", "surface-fixed", "edge"]
    )
    return judged, scores, grey


def _mean(scores: Sequence[Results], protocol: str, name: str) -> float:
    return round(float(np.mean([getattr(one[protocol], name) for one in scores])), 4)


def score_set(
    model: SpliceLocalizer, samples: Sequence[Sample], changes: tuple[Change, Change], jobs: int
) -> Results:
    """Score a data set after a change."""
    with ThreadPoolExecutor(jobs) as pool:
        looks = list(pool.map(partial(_look, model, changes), samples))
    verdicts = VerdictScores(tuple(look[0] for look in looks)).to_dict()
    verdicts.pop("photos")
    out: Results = {"verdict": verdicts}
    for kind, which in (("cPCA++", 1), ("control: grey level", 2)):
        scores = [look[which] for look in looks if look[which] is not None]
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
    test = _whole(photos_from([data / "bsds500" / "images" / "test"])[:: 2 * every])
    yield "BSDS500 test", model, test
    yield "BSDS500 test, calibrated by UCID alone", _calibrated(model, ucid, jobs), test
    yield "UCID, calibrated by BSDS500 alone", _calibrated(model, bsds, jobs), _whole(ucid[::every])


def _whole(photos: Sequence[SourcePhoto]) -> list[Sample]:
    return [Sample(photo.name, True, photo.read) for photo in photos]


def _calibrated(
    model: SpliceLocalizer, sources: Sequence[SourcePhoto], jobs: int
) -> SpliceLocalizer:
    """Return the model as it judges if it has seen these photos only."""
    other = SpliceLocalizer(model.preset, model.banks, model.threshold, model.facts)
    calibrate(other, calibration_photos(sources, 1200), jobs=jobs)
    return other


def measure(data: Path, every: int, jobs: int, keep: Callable[[Results], None]) -> Results:
    """Measure everything but the places; what is known is kept after each part."""
    model = load_model()
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
    return results


def _places(model: SpliceLocalizer, changes: tuple[Change, Change], sample: Sample) -> Results:
    found = model.localize(np.ascontiguousarray(changes[0](sample.image)))
    places = found.hot_spots
    out: Results = {"authentic": sample.authentic, "shown": bool(places.any())}
    if out["shown"] and not sample.authentic:
        near = boundary_band(changes[1](sample.mask), 12)
        out["true"] = float(near[places].mean())
        out["covered"] = float(places[boundary_band(changes[1](sample.mask), 2)].mean())
    return out


def measure_places(data: Path, every: int, jobs: int) -> Results:
    """Count photos in which places are shown, and how many of them lie at the seam."""
    model = load_model()
    test = _whole(photos_from([data / "bsds500" / "images" / "test"])[:: 2 * every])
    columbia = list(open_photos(data / "columbia_dev"))[::every]
    results: Results = {}
    for name, photos, change in (
        ("Columbia", columbia, "as it is"),
        ("Columbia, JPEG 85", columbia, "JPEG 85"),
        ("BSDS500 test", test, "as it is"),
    ):
        with ThreadPoolExecutor(jobs) as pool:
            looks = list(pool.map(partial(_places, model, CHANGES[change]), photos))
        results[name] = {
            "authentic with places": _share([look["shown"] for look in looks if look["authentic"]]),
            "spliced with places": _share(
                [look["shown"] for look in looks if not look["authentic"]]
            ),
            "of them within 12 pixels of the seam": _share(
                [look["true"] for look in looks if "true" in look]
            ),
            "of the seam covered": _share([look["covered"] for look in looks if "covered" in look]),
        }
        print(name, results[name], flush=True)
    return results


def _share(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


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
            f"{grey['surface']['mcc']:.3f} | {_told(verdict['auc_same_size'])} | "
            f"{_told(verdict['found_of_spliced'])} | {_told(verdict['alarms_on_authentic'])} |"
        )
    if "remark" in report:
        lines += ["", report["remark"]]
    if report.get("authentic"):
        lines += _of_authentic(report["authentic"])
    if "places" in report:
        lines += _of_places(report["places"])
    return "\n".join([*lines, *_targets(report["columbia_dev"]), ""])


def _of_authentic(results: Results) -> list[str]:
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
        lines.append(f"| {name} | {found['n']} | {_told(found['alarms'])} |")
    return lines


def _of_places(results: Results) -> list[str]:
    names = list(next(iter(results.values())))
    lines = [
        "",
        "## Places, at a false discovery rate of 0.05",
        "",
        "| photos | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for name, found in results.items():
        lines.append(f"| {name} | " + " | ".join(_told(found[k]) for k in names) + " |")
    return lines


def _targets(results: Results) -> list[str]:
    lines = ["", "## Targets on Columbia", "", "| | target | measured |", "|---|---|---|"]
    ours = results["as it is"]["cPCA++"]
    for name, (protocol, figure, target) in TARGETS.items():
        lines.append(f"| {name} | {target} | {ours[protocol][figure]:.3f} |")
    auc = results["as it is"]["verdict"]["auc_same_size"]
    lines.append(f"| AUC over pairs of one size | 0.90 | {_told(auc)} |")
    for name, target in (("JPEG 95", 0.76), ("JPEG 85", 0.68)):
        if name in results:
            found = results[name]["cPCA++"]["surface"]["f1"]
            lines.append(f"| surface F1 at {name} | {target} | {found:.3f} |")
    return lines


def _told(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="only every so many photos: a trial")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--only-places", action="store_true", help="measure the places again, keep the rest"
    )
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

    if arguments.only_places:
        report: Results = json.loads(arguments.output.read_text())
    else:
        report = measure(data, arguments.every, arguments.jobs, keep)
    keep(report | {"places": measure_places(data, arguments.every, arguments.jobs)})


if __name__ == "__main__":
    main()
