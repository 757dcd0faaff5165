"""What was found in a photo, for a notebook."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cpcapp._io.files import atomic_write, make_folder
from cpcapp.reports import data_uri, render
from cpcapp.reports.pictures import encode_png as encode_small_png
from cpcapp.splicing.decide.words import format_verdict, verdict_sentence
from cpcapp.splicing.output.draw import draw_localization, draw_part, draw_pictures, encode_png
from cpcapp.splicing.photo.pixels import as_unit_float
from cpcapp.splicing.result import Localization

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Pixels: as wide as the column of a notebook.
_MAX_SIDE = 800
_INCHES = 4.5


def plot_localization(result: Localization) -> Figure:
    """Draw the photo, the likely seam and the likely part beside each other; see its method."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "a plot needs matplotlib; install it with: pip install 'cpcapp[plot]'"
        ) from error
    image = _pixels(result)
    panels = [
        ("The photo", as_unit_float(image)),
        (result.display.seam_title, draw_localization(image, result, result.threshold)),
    ]
    if result.mask is not None and result.mask.any():
        panels.append(("The likely part", draw_part(image, result.mask)))
    height, width = image.shape[:2]
    size = (_INCHES * len(panels), _INCHES * min(height / width, 3.0) + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(format_verdict(result.verdict, result.p_value))
    for axes, (title, picture) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        axes.imshow(picture)
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
    return figure


def save_localization(
    result: Localization, folder: str | os.PathLike[str], name: str = "photo"
) -> list[Path]:
    """Write the pictures of a photo to a folder, and return their paths; see its method."""
    if not name or Path(name).name != name:
        raise ValueError(f"name={name!r} must be a name of a file, without a folder")
    image, folder = _pixels(result), make_folder(folder)
    written = []
    for kind, picture in draw_pictures(image, result):
        written.append(folder / f"{name}.{kind}.png")
        with atomic_write(written[-1]) as file:
            file.write(encode_png(picture))
    return written


def localization_png(result: Localization) -> bytes | None:
    """Return the photo with the likely seam as PNG, in the size of a notebook."""
    if result.pixels is None:
        return None
    picture = draw_localization(result.pixels, result, result.threshold)
    return encode_small_png(picture, _MAX_SIDE).content


def localization_html(result: Localization) -> str | None:
    """Return the photo with the likely seam and the verdict below it as HTML."""
    png = localization_png(result)
    if png is None:
        return None
    alt = f"The photo. {result.display.seam_title}."
    return render("figure.html", address=data_uri(png), alt=alt, caption=verdict_sentence(result))


def _pixels(result: Localization) -> NDArray[Any]:
    if result.pixels is None:
        raise ValueError(
            "pixels=None: there is no photo to draw on; use what SpliceLocalizer.localize returns"
        )
    return result.pixels
