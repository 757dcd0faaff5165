"""MFCN, the network that the paper compares cPCA++ with, on spliced photos.

It takes a GPU to train, so its scores come from ``benchmarks/mfcn.py``, and so do its answers for
four photos of Columbia, which are drawn beside those of cPCA++ for whoever has the photos.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cpcapp.experiments._benchmarked import (
    MFCN_COSTS,
    MFCN_MEASURED,
    MFCN_SCORES,
    MFCN_TRAINING,
)
from cpcapp.experiments._results import Cell, PaperSays, Picture, Progress, Result, Settings, Table

if TYPE_CHECKING:
    from cpcapp.splicing.photos.samples import Sample

TITLE = "MFCN, the paper's opponent, on spliced photos"
#: Tables III and IV of the paper: MCC and F1 of the edge on Columbia.
PAPER = {"cPCA++": (0.385, 0.359), "MFCN": (0.329, 0.312)}
SETS = {
    "columbia": "Columbia",
    "casia2": "CASIA 2.0",
    "casia1": "CASIA 1.0",
    "imd2020": "IMD2020",
    "dst": "DST",
}
METHODS = {
    "paper": "cPCA++ as in the paper",
    "filters": "cPCA++, model filters",
    "default": "cPCA++, model default",
    "mfcn": "MFCN",
    "sfcn": "SFCN",
}
_LOGITS = "mfcn_logits.npz"
_COLUMNS = ("photo and truth", "all edges", "paper", "default", "MFCN: edges", "MFCN: part")


def run(settings: Settings, progress: Progress) -> Result:
    """Put the scores beside each other, and draw some photos where they are at hand."""
    pictures = draw_photos(find_columbia(), 1 if settings.quick else 4, progress)
    progress(1.0)
    ours, theirs = (MFCN_SCORES["columbia"][method] for method in ("paper", "mfcn"))
    default = MFCN_SCORES["columbia"]["default"]
    return Result(
        name="mfcn",
        title=TITLE,
        shows="How well each method finds the seam of spliced photos, and the pasted part.",
        look_at="The seam's MCC: 1 is right, 0 is blind. Each map is cut at its best threshold, as "
        "in the paper. MFCN was trained here on splices made of other photos, and from random "
        "weights; the published one began with weights of ImageNet.",
        data=f"114 spliced photos of five sets, from which no method has learned. {MFCN_MEASURED}.",
        findings=(
            f"On Columbia the paper's cPCA++ has an MCC of {ours[0]:.3f} and MFCN {theirs[0]:.3f}; "
            f"the model default has {default[0]:.3f}.",
            f"MFCN was trained for {MFCN_TRAINING['seconds']:,.0f} seconds on one "
            f"{MFCN_TRAINING['card']} and saw {MFCN_TRAINING['splices']:,} splices; the filters of "
            f"the model paper take {MFCN_TRAINING['seconds of paper']:.0f} seconds on two cores. "
            "SFCN saw fewer than half as many splices as MFCN.",
        ),
        paper=(
            PaperSays(
                "On Columbia cPCA++ has an MCC of 0.385 and an F1 of 0.359, MFCN 0.329 and 0.312. "
                "cPCA++ is trained in 1.5 hours on a CPU, MFCN in 11.5 hours on a GPU.",
                "Section V, Tables III and IV",
            ),
        ),
        pictures=pictures,
        tables=(_scores_table(), _costs_table()),
        numbers={"scores": MFCN_SCORES, "costs": MFCN_COSTS, "training": MFCN_TRAINING},
        paper_figure="MCC on Columbia: cPCA++ 0.385, MFCN 0.329",
        found_figure=f"{ours[0]:.3f} and {theirs[0]:.3f}; model default {default[0]:.3f}",
    )


def _scores_table() -> Table:
    rows: list[tuple[Cell, ...]] = [
        (SETS[name], title, *methods[method])
        for name, methods in MFCN_SCORES.items()
        for method, title in METHODS.items()
    ]
    rows += [("Columbia", f"{name}, the paper", *pair, None) for name, pair in PAPER.items()]
    return Table(
        "Scores, means over photos",
        ("photos", "method", "seam MCC", "seam F1", "part F1"),
        rows,
        "The seam is a band of 4 pixels to either side. The paper's rows are of all of Columbia.",
    )


def _costs_table() -> Table:
    rows: list[tuple[Cell, ...]] = [
        (title, *MFCN_COSTS[method]) for method, title in METHODS.items()
    ]
    return Table(
        "What a photo of one megapixel costs on one core",
        ("method", "parameters", "megabytes of its file", "seconds", "megabytes of memory"),
        rows,
    )


# -- pictures ------------------------------------------------------------------------------


def find_columbia() -> Path | None:
    """Return the folder of Columbia's photos in CPCAPP_DATA; None if there is none."""
    home = os.environ.get("CPCAPP_DATA")
    if not home or not Path(home).is_dir():
        return None
    found = sorted(path.parent for path in Path(home).glob("*/4cam_splc"))
    return found[0] if found else None


def read_logits() -> dict[str, Any]:
    """Return what MFCN says of four photos, by their names: logits of squares of 8 x 8 pixels.

    Examples
    --------
    >>> sorted(logits.shape[0] for logits in read_logits().values())
    [2, 2, 2, 2]
    """
    with files("cpcapp.experiments").joinpath(_LOGITS).open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        return {name: stored[name] for name in stored.files}


def draw_photos(folder: Path | None, n: int, progress: Progress) -> tuple[Picture, ...]:
    """Draw photos with what each method says of them, a row each, as the paper does.

    Parameters
    ----------
    folder : Path or None
        With Columbia's photos.
    n : int
        Photos at most.
    progress : callable

    Returns
    -------
    tuple of Picture
        Empty without photos, or without the extra ``splicing``.
    """
    try:
        from cpcapp.splicing.datasets.opening import open_photos
    except ImportError:
        return ()
    if folder is None:
        return ()
    logits = read_logits()
    samples = [sample for sample in open_photos(folder) if sample.name in logits][:n]
    if not samples:
        return ()
    rows = []
    for done, sample in enumerate(samples):
        rows.append(_panels(sample, logits[sample.name]))
        progress((done + 1) / (len(samples) + 1))
    return (
        Picture(
            "mfcn-photos",
            _draw(rows),
            "Rows of spliced photos; beside each the maps of all edges, of two models of cPCA++ "
            "and of MFCN.",
            "The seam is outlined in pink in the photo. Bright is likely; of seams the square root "
            "is drawn.",
            shareable=False,
        ),
    )


def _panels(sample: Sample, logits: Any) -> list[Any]:
    from cpcapp.splicing.evaluation.truth import boundary_band
    from cpcapp.splicing.model_file import load_model
    from cpcapp.splicing.networks.mfcn_maps import enlarge
    from cpcapp.splicing.photos.pixels import as_bytes

    photo, mask = sample.photo, sample.mask
    outlined = as_bytes(photo.pixels).copy()
    outlined[boundary_band(mask, 2)] = (255, 0, 200)
    found = [load_model(model).localize(photo) for model in ("paper", "default")]
    maps = enlarge(logits, *mask.shape)
    assert maps.edges is not None
    # The square root shows faint seams.
    seams = [np.sqrt(seam) for seam in (*(one.boundary for one in found), maps.edges)]
    return [outlined, found[0].edges, *seams, maps.region]


def _draw(rows: list[list[Any]]) -> bytes:
    from matplotlib.figure import Figure

    from cpcapp.experiments.figures import png_of

    figure = Figure(figsize=(2.3 * len(_COLUMNS), 1.9 * len(rows) + 0.3), layout="constrained")
    grid = figure.subplots(len(rows), len(_COLUMNS), squeeze=False)
    for axes, panels in zip(grid, rows, strict=True):
        for ax, panel in zip(axes, panels, strict=True):
            ax.imshow(panel, cmap="magma", vmin=0.0, vmax=1.0)
            ax.set_axis_off()
    for ax, title in zip(grid[0], _COLUMNS, strict=True):
        ax.set_title(title, fontsize=10)
    return png_of(figure)
