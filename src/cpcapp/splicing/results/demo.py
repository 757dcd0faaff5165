"""The example photos that come with the package: pictures, and how near the truth a model is."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from cpcapp._leftovers import remove_leftovers
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.localizer import Localization, SpliceLocalizer
from cpcapp.splicing.photos.pixels import BoolArray
from cpcapp.splicing.photos.samples import Sample
from cpcapp.splicing.pictures.demo_sheet import draw_demo_row, draw_demo_sheet
from cpcapp.splicing.pictures.png import write_png
from cpcapp.splicing.results.entries import write_pictures
from cpcapp.splicing.results.files import ResultFiles
from cpcapp.splicing.results.model_identity import open_model
from cpcapp.splicing.results.seam import find_strongest_seam

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
    """Look for the seams in the example photos, and draw the results.

    Parameters
    ----------
    folder : path
        Of an existing folder. It gets ``demo.png`` and pictures of each photo, which replace
        those of an earlier demo.
    model : SpliceLocalizer, str or path, optional
        A localizer, the name of a model of the package, or the path of a file. Without it, the
        default model.
    progress : callable, optional
        Called with the share done, from 0 to 1.

    Returns
    -------
    list of ExampleResult

    Examples
    --------
    >>> import tempfile
    >>> results = localize_examples(tempfile.mkdtemp(), "filters")
    >>> results[1].photo.name, results[1].found.boundary.shape
    ('cup-in-the-sky.png', (427, 640))
    """
    folder = Path(folder)
    remove_leftovers(folder)
    localizer, _ = open_model(model)
    threshold = float(localizer.threshold)
    photos = example_photos()
    results, rows = [], []
    report = progress or (lambda share: None)
    report(0.0)
    for done, photo in enumerate(photos, start=1):
        read = photo.photo
        found = localizer.localize(read)
        files = ResultFiles(Path(photo.name), folder, Path(photo.name).stem)
        write_pictures(files, read.pixels, found, threshold)
        rows.append(draw_demo_row(photo, found, threshold))
        results.append(_compare_with_truth(photo, found, threshold))
        report(done / len(photos))
    write_png(folder / SHEET_NAME, draw_demo_sheet(rows))
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

    Parameters
    ----------
    mask : ndarray of shape (height, width), bool
    row, column : int

    Returns
    -------
    float

    Examples
    --------
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
