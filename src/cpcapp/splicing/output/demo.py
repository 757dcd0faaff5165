"""The example photos that come with the package: pictures, and how near the truth a model is."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from cpcapp._io.files import remove_leftovers
from cpcapp.reports.pdf import has_reportlab
from cpcapp.splicing.examples import example_photos, read_example
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.output.demo_sheet import draw_demo_row, draw_demo_sheet
from cpcapp.splicing.output.entries import write_result
from cpcapp.splicing.output.files import ResultFiles
from cpcapp.splicing.output.folder import check_overviews
from cpcapp.splicing.output.index_page import write_index
from cpcapp.splicing.output.model_identity import open_model
from cpcapp.splicing.output.png import write_png
from cpcapp.splicing.output.report import PhotoReport
from cpcapp.splicing.output.seam import find_strongest_seam
from cpcapp.splicing.output.summary import read_results, write_summary
from cpcapp.splicing.photo.pixels import BoolArray
from cpcapp.splicing.photo.samples import Sample
from cpcapp.splicing.result import Localization

SHEET_NAME = "demo.png"


@dataclass(frozen=True)
class ExampleResult:
    """What a model found in an example photo.

    Attributes
    ----------
    photo : Sample
    found : Localization
    seam : dict or None
        Where the boundary map is highest; see `find_strongest_seam`.
    reaches_threshold : bool
        Whether it is at least the model's threshold there.
    distance : float or None
        From there to the true seam, in pixels. None if there is no true seam, or nothing marked.
    """

    photo: Sample
    found: Localization = field(repr=False)
    seam: dict[str, Any] | None
    reaches_threshold: bool
    distance: float | None


def localize_examples(
    folder: str | os.PathLike[str],
    model: SpliceLocalizer | str | os.PathLike[str] | None = None,
    *,
    progress: Callable[[float], None] | None = None,
) -> list[ExampleResult]:
    """Look for the seams in the example photos, and write the results.

    ``folder``: of an existing folder. It gets ``demo.png``, and what
    `cpcapp.splicing.localize_files` writes with a report for each photo; the PDF only where
    reportlab is installed. It all replaces what an earlier demo wrote.

    ``model``: A localizer, the name of a model of the package, or the path of a file. Without it,
    the default model.

    >>> import tempfile
    >>> results = localize_examples(tempfile.mkdtemp(), "filters")
    >>> results[1].photo.name, results[1].found.boundary.shape
    ('cup-in-the-sky.png', (427, 640))
    """
    folder = Path(folder)
    remove_leftovers(folder)
    check_overviews(folder, "choose another {folder}")
    localizer, identity = open_model(model)
    pdf = has_reportlab()
    threshold = float(localizer.threshold)
    photos = example_photos()
    results, rows = [], []
    report = progress or (lambda share: None)
    report(0.0)
    for done, photo in enumerate(photos, start=1):
        data, read = read_example(photo.name), photo.photo
        found = localizer.localize(read)
        files = ResultFiles(Path(photo.name), folder, Path(photo.name).stem)
        origin = {"sha256": hashlib.sha256(data).hexdigest(), "model": identity}
        made = PhotoReport.build(read, data, found, identity, name=photo.name)
        write_result(files, read, found, threshold=threshold, origin=origin, report=made, pdf=pdf)
        rows.append(draw_demo_row(photo, found, threshold))
        results.append(_compare_with_truth(photo, found, threshold))
        report(done / len(photos))
    write_png(folder / SHEET_NAME, draw_demo_sheet(rows))
    entries = read_results(folder, ())
    write_summary(folder, entries)
    write_index(folder, entries)
    return results


def _compare_with_truth(photo: Sample, found: Localization, threshold: float) -> ExampleResult:
    seam = find_strongest_seam(found.boundary, threshold)
    strength = 0.0 if seam is None else float(seam["strength"])
    distance = None
    if seam is not None and not photo.authentic:
        distance = measure_distance_to_seam(photo.mask, seam["row"], seam["column"])
    return ExampleResult(photo, found, seam, strength >= threshold, distance)


def measure_distance_to_seam(mask: BoolArray, row: int, column: int) -> float:
    """Return the distance of a pixel to where both sides of a mask meet, in pixels.

    >>> import numpy as np
    >>> mask = np.zeros((9, 30), dtype=bool)
    >>> mask[:, 20:] = True
    >>> measure_distance_to_seam(mask, 4, 10), measure_distance_to_seam(mask, 4, 20)
    (10.0, 1.0)
    """
    plane = mask.astype(np.uint8)
    # Of a pixel's distances to either side, one is 0 and the other that to the seam.
    sides = (cv2.distanceTransform(side, cv2.DIST_L2, 5) for side in (plane, 1 - plane))
    return max(float(side[row, column]) for side in sides)
