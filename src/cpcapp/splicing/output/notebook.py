"""What was found in a photo, for a notebook."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.files import make_folder
from cpcapp.reports import data_uri, render
from cpcapp.reports.pictures import encode_png
from cpcapp.splicing.decide.words import format_verdict, verdict_sentence
from cpcapp.splicing.output.overlays import (
    Finding,
    draw_localization,
    draw_part,
    draw_pictures,
)
from cpcapp.splicing.output.png import write_png
from cpcapp.splicing.photo.pixels import as_unit_float

# Pixels: as wide as the column of a notebook.
_MAX_SIDE = 800
_INCHES = 4.5


def plot_finding(image: NDArray[Any], found: Finding, threshold: float) -> Any:
    """Draw the photo, the likely seam and the likely part beside each other.

    Parameters
    ----------
    image : ndarray of shape (height, width, 3), uint8 or uint16
    found : Localization
        Of this image.
    threshold : float
        Of the model.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "a plot needs matplotlib; install it with: pip install 'cpcapp[plot]'"
        ) from error
    panels = [
        ("the photo", as_unit_float(image)),
        ("the likely seam", draw_localization(image, found, threshold)),
    ]
    if found.mask is not None and found.mask.any():
        panels.append(("the likely part", draw_part(image, found.mask)))
    height, width = image.shape[:2]
    size = (_INCHES * len(panels), _INCHES * min(height / width, 3.0) + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(format_verdict(found.verdict, found.p_value))
    for axes, (title, picture) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        axes.imshow(picture)
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
    return figure


def save_pictures(
    folder: str | os.PathLike[str],
    name: str,
    image: NDArray[Any],
    found: Finding,
    threshold: float,
) -> list[Path]:
    """Write the pictures of a photo to a folder, and return their paths.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    name : str
        What the names of the files begin with.
    image : ndarray of shape (height, width, 3), uint8 or uint16
    found : Localization
        Of this image.
    threshold : float
        Of the model.
    """
    if not name or Path(name).name != name:
        raise ValueError(f"name={name!r} must be a name of a file, without a folder")
    folder = make_folder(folder)
    written = []
    for kind, picture in draw_pictures(image, found, threshold):
        if picture is not None:
            written.append(folder / f"{name}.{kind}.png")
            write_png(written[-1], picture)
    return written


def finding_png(image: NDArray[Any], found: Finding, threshold: float) -> bytes:
    """Return the photo with the likely seam as PNG, in the size of a notebook."""
    return encode_png(draw_localization(image, found, threshold), _MAX_SIDE).content


def finding_html(image: NDArray[Any], found: Finding, threshold: float) -> str:
    """Return the photo with the likely seam and the verdict below it as HTML."""
    return render(
        "figure.html",
        address=data_uri(finding_png(image, found, threshold)),
        alt="the photo with the likely seam in colours",
        caption=verdict_sentence(found),
    )


def check_pixels(pixels: NDArray[np.uint8] | NDArray[np.uint16] | None) -> NDArray[Any]:
    """Return the pixels of a photo, or say that there are none."""
    if pixels is None:
        raise ValueError(
            "pixels=None: there is no photo to draw on; use what SpliceLocalizer.localize returns"
        )
    return pixels
