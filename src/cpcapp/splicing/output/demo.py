"""The example photos that come with the package: pictures, and how near the truth a model is."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from cpcapp._io.files import atomic_write, remove_leftovers
from cpcapp.reports.pdf import has_reportlab
from cpcapp.splicing.decide.words import FADING, format_verdict
from cpcapp.splicing.examples import example_photos, read_example
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.output.batch import open_model
from cpcapp.splicing.output.draw import (
    Picture,
    draw_boundary,
    draw_localization,
    draw_part,
    encode_png,
)
from cpcapp.splicing.output.folder import (
    REPORTS,
    ResultFiles,
    check_overviews,
    make_result,
    write_overviews,
    write_result,
)
from cpcapp.splicing.output.panels import write_text
from cpcapp.splicing.photo.pixels import BoolArray
from cpcapp.splicing.photo.samples import Sample
from cpcapp.splicing.result import Localization

# Pixels of the sheet, chosen by eye, and what its columns show.
_PANEL, _GAP, _TEXT, _LINE = 360, 8, 17, 25
_TITLES = ("The photo", "What was pasted", "All edges", "The likely seam", "The likely part")


@dataclass(frozen=True)
class ExampleResult:
    """What a model found in an example photo.

    ``seam`` is where the boundary map is highest, as in the JSON file. ``distance`` is from there
    to the true seam, in pixels; None if there is no true seam, or nothing marked.
    """

    photo: Sample
    found: Localization = field(repr=False)
    seam: dict[str, Any] | None
    distance: float | None


def localize_examples(
    folder: str | os.PathLike[str],
    model: SpliceLocalizer | str | os.PathLike[str] | None = None,
    *,
    progress: Callable[[float], None] | None = None,
) -> list[ExampleResult]:
    """Look for the seams in the example photos, and write the results to a folder that exists.

    It gets ``demo.png``, and what `cpcapp.splicing.localize_files` writes with a report for each
    photo; the PDF only where reportlab is installed. It all replaces what an earlier demo wrote.
    """
    folder = Path(folder)
    remove_leftovers(folder)
    check_overviews(folder, "choose another {folder}")
    localizer, identity = open_model(model)
    reports = REPORTS if has_reportlab() else REPORTS[:1]
    photos, results = example_photos(), []
    for done, photo in enumerate(photos):
        if progress is not None:
            progress(done / len(photos))
        data, image = read_example(photo.name), replace(photo.photo, name=photo.name)
        found = localizer.localize(image)
        files = ResultFiles(Path(photo.name), folder, Path(photo.name).stem)
        origin = {"sha256": hashlib.sha256(data).hexdigest(), "model": identity}
        entry, contents = make_result(files, image, data, found, origin, reports=reports)
        write_result(files, entry, contents)
        seam, distance = entry["seam"], None
        if seam is not None and not photo.authentic:
            distance = measure_distance_to_seam(photo.mask, seam["row"], seam["column"])
        results.append(ExampleResult(photo, found, seam, distance))
    with atomic_write(folder / "demo.png") as file:
        file.write(encode_png(_draw_sheet(results)))
    write_overviews(folder)
    if progress is not None:
        progress(1.0)
    return results


def measure_distance_to_seam(mask: BoolArray, row: int, column: int) -> float:
    """Return the distance of a pixel to where both sides of a mask meet, in pixels."""
    plane = mask.astype(np.uint8)
    # Of a pixel's distances to either side, one is 0 and the other that to the seam.
    sides = (cv2.distanceTransform(side, cv2.DIST_L2, 5) for side in (plane, 1 - plane))
    return max(float(side[row, column]) for side in sides)


def _draw_sheet(results: Sequence[ExampleResult]) -> Picture:
    """Return all photos, and what was found in them, on one white sheet.

    A row of a photo: the photo, the truth, all edges, the likely seam and the likely part. The
    verdict is written below the last two. Without signs the last one is the photo as it is.
    """
    width = len(_TITLES) * (_PANEL + _GAP) + _GAP
    header = np.full((2 * _TEXT + _LINE, width, 3), 255, dtype=np.uint8)
    header = write_text(header, FADING, (_GAP, _TEXT // 3), _TEXT)
    for column, title in enumerate(_TITLES):
        header = write_text(header, title, (_left(column), _LINE + _TEXT // 3), _TEXT)
    return np.vstack([header, *(_draw_row(one.photo, one.found, width) for one in results)])


def _draw_row(photo: Sample, result: Localization, width: int) -> Picture:
    pixels, mask = photo.read()
    panels = [
        pixels,
        draw_part(pixels, mask),
        np.repeat(draw_boundary(result.edges)[..., None], 3, axis=2),
        draw_localization(pixels, result, result.threshold, line=False),
        pixels if result.mask is None or not result.mask.any() else draw_part(pixels, result.mask),
    ]
    height = round(_PANEL * pixels.shape[0] / pixels.shape[1])
    row = np.full((height + _LINE + _GAP, width, 3), 255, dtype=np.uint8)
    for column, panel in enumerate(panels):
        small = cv2.resize(panel, (_PANEL, height), interpolation=cv2.INTER_AREA)
        row[:height, _left(column) :][:, :_PANEL] = small
    if photo.authentic:
        row = write_text(row, "nothing", (_PANEL + 3 * _GAP, _GAP), _TEXT, "white")
    verdict = format_verdict(result.verdict, result.p_value)
    return write_text(row, verdict, (_left(3), height + _TEXT // 4), _TEXT)


def _left(column: int) -> int:
    return _GAP + column * (_PANEL + _GAP)
