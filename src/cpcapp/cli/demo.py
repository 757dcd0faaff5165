"""``cpcapp demo``: the main job on examples that need no download."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cpcapp.cli._errors import UserError, require
from cpcapp.cli._progress import ProgressLine
from cpcapp.cli._results import Target, printable

if TYPE_CHECKING:
    from cpcapp.datasets import ContrastData
    from cpcapp.moments import FloatArray
    from cpcapp.splicing.localizer import Localization
    from cpcapp.splicing.photos.samples import Sample, SampleSet

_PANEL, _GAP, _TEXT = 360, 8, 17
_TITLES = ("the photo", "what was pasted", "all edges", "the likely seam", "the likely part")


def add_parser(commands: Any) -> None:
    """Add this command to ``cpcapp``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="find the seams in shipped example photos and draw the result",
        description="Look for the seams in four photos that come with the package, three of them "
        "spliced, and write demo.png (photo, truth, edges and result side by side), an overlay "
        "and a map of each. With --contrast instead: contrast the paper's synthetic example and "
        "one shaped like the mice protein experiment with PCA, cPCA and cPCA++, print how well "
        "the hidden classes come apart and write contrast.png. Nothing is downloaded.",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("cpcapp-demo"),
        metavar="DIR",
        help="folder for the pictures, which replace those of an earlier demo "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--contrast", action="store_true", help="contrast two generated data sets instead"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the data of --contrast (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.contrast:
        require("matplotlib", "plot")
    else:
        for module in ("cv2", "PIL", "safetensors"):
            require(module, "splicing")
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed} must be at least 0")
    folder = arguments.output
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"can't make the folder {folder}: {error.strerror}") from error
    if arguments.contrast:
        return _contrast(folder, arguments.seed)
    return _localize(folder)


def _localize(folder: Path) -> int:
    from cpcapp.splicing.examples import example_photos

    photos = example_photos()
    start = time.monotonic()
    try:
        lines = _draw(photos, folder)
    except OSError as error:
        raise UserError(f"can't write to {printable(folder)}: {error.strerror}") from error
    print(
        f"Looked for seams in {len(photos)} photos, {len(photos.spliced)} of them spliced, in "
        f"{time.monotonic() - start:.1f} s. Where a seam is likeliest:"
    )
    print(*lines, sep="\n")
    print(f"pictures in {printable(folder)}:")
    print("  demo.png             photo, what was pasted, edges, likely seam and likely part")
    print("  NAME.overlay.png     one photo with the likely seam; the lighter, the likelier")
    print("  NAME.boundary.png    the map alone, white where a seam is likely")
    print("  NAME.region.png      the part that may come from elsewhere, white")
    print("  NAME.hot_spots.png      squares that stand out even among thousands, white")
    print(
        "Compare the last pictures of each row with the second: a good result follows the outline"
    )
    print("of the pink part. Not every edge is a seam, and not every seam is found.")
    return 0


def _draw(photos: SampleSet, folder: Path) -> list[str]:
    """Write all pictures; return a line about each photo."""
    from cpcapp.cli.localize import open_model, write_pictures, write_png

    model = open_model(None)
    threshold = float(model.threshold)
    lines, rows = [], []
    with ProgressLine("localizing") as progress:
        progress(0.0)
        for done, photo in enumerate(photos, start=1):
            pixels = photo.image
            found = model.localize(pixels)
            target = Target(Path(photo.name), folder, Path(photo.name).stem)
            write_pictures(target, pixels, found, threshold)
            rows.append(_row(photo, found, threshold))
            lines.append(f"  {photo.name:20} {_verdict(photo, found, threshold)}{_judged(found)}")
            progress(done / len(photos))
    write_png(folder / "demo.png", np.vstack([_header(), *rows]))
    return lines


def _verdict(photo: Sample, found: Localization, threshold: float) -> str:
    """Say in words how far the strongest place is from the true seam."""
    import cv2

    from cpcapp.cli.localize import strongest_place

    place = strongest_place(found.boundary, threshold)
    if place is None:
        return "nothing is marked"
    where = f"row {place['row']}, column {place['column']}"
    if photo.authentic:
        if place["strength"] < threshold:
            return f"{where}: below the threshold, rightly, as nothing was pasted"
        return f"{where}: marked, though nothing was pasted"
    mask = photo.mask.astype(np.uint8)
    # Of a pixel's distances to either side, one is 0 and the other that to the seam.
    sides = (cv2.distanceTransform(side, cv2.DIST_L2, 5) for side in (mask, 1 - mask))
    far = max(float(side[place["row"], place["column"]]) for side in sides)
    return f"{where}: on the seam" if far <= 4 else f"{where}: {far:.0f} pixels from the seam"


def _judged(found: Localization) -> str:
    """Say what the model makes of the whole photo."""
    if found.p_value is None:
        return ""
    return f"; {found.verdict}, p = {found.p_value:.2g}"


def _header() -> NDArray[np.uint8]:
    line = np.full((2 * _TEXT, len(_TITLES) * (_PANEL + _GAP) + _GAP, 3), 255, dtype=np.uint8)
    for i, title in enumerate(_TITLES):
        line = _written(line, title, (_GAP + i * (_PANEL + _GAP), _TEXT // 3), "black")
    return line


def _written(
    picture: NDArray[np.uint8], text: str, place: tuple[int, int], colour: str
) -> NDArray[np.uint8]:
    from PIL import Image, ImageDraw, ImageFont

    canvas = Image.fromarray(picture)
    ImageDraw.Draw(canvas).text(place, text, fill=colour, font=ImageFont.load_default(_TEXT))
    return np.asarray(canvas)


def _row(photo: Sample, found: Localization, threshold: float) -> NDArray[np.uint8]:
    """Return photo, truth, edges and result beside each other, on white."""
    import cv2

    from cpcapp.cli.localize import lightest_of
    from cpcapp.splicing.pictures.overlays import boundary_picture, overlay
    from cpcapp.splicing.pictures.panels import PINK

    pixels = photo.image
    truth = overlay(pixels, np.zeros(pixels.shape[:2]))
    truth[photo.mask] = np.rint(0.4 * truth[photo.mask] + 0.6 * np.array(PINK))
    edges = np.repeat(boundary_picture(found.edges)[..., None], 3, axis=2)
    lightest = lightest_of(found.boundary, threshold)
    part = overlay(pixels, np.zeros(pixels.shape[:2]))
    if found.region is not None:
        inside = found.region > 0.5
        part[inside] = np.rint(0.4 * part[inside] + 0.6 * np.array(PINK))
    panels = [pixels, truth, edges, overlay(pixels, found.boundary, white=lightest), part]
    height = round(_PANEL * pixels.shape[0] / pixels.shape[1])
    row = np.full((height + _GAP, len(_TITLES) * (_PANEL + _GAP) + _GAP, 3), 255, dtype=np.uint8)
    for i, panel in enumerate(panels):
        left = _GAP + i * (_PANEL + _GAP)
        row[:height, left : left + _PANEL] = cv2.resize(
            panel, (_PANEL, height), interpolation=cv2.INTER_AREA
        )
    if photo.authentic:
        row = _written(row, "nothing", (_PANEL + 3 * _GAP, _GAP), "white")
    return row


def _contrast(folder: Path, seed: int) -> int:
    from cpcapp.datasets import mice_like, synthetic
    from cpcapp.plotting import scatter_grid

    examples = {
        "synthetic (400 + 400 samples, 30 features)": synthetic(
            noise_variance=100.0, random_state=seed
        ),
        "mice-like (270 + 135 samples, 77 features)": mice_like(random_state=seed),
    }
    rows = []
    for title, data in examples.items():
        print(title)
        rows.append((title.partition(" (")[0], data.labels, _views(data)))
    picture = folder / "contrast.png"
    try:
        scatter_grid(rows).savefig(picture, dpi=110)
    except OSError as error:
        raise UserError(f"can't write {picture}: {error.strerror}") from error
    print(f"picture: {picture}")
    return 0


def _views(data: ContrastData) -> list[tuple[str, FloatArray]]:
    """Return the target as each method shows it, and print how well its classes come apart."""
    from cpcapp.estimators import CPCA, CPCAPlusPlus

    methods = {"PCA": CPCAPlusPlus(), "cPCA": CPCA(), "cPCA++": CPCAPlusPlus()}
    views = []
    for name, method in methods.items():
        background = None if name == "PCA" else data.background
        start = time.perf_counter()
        scores = method.fit(data.target, background=background).transform(data.target)
        seconds = time.perf_counter() - start
        ari = _agreement(scores, data.labels)
        print(f"  {name:7} adjusted Rand index {ari:5.2f}   {1e3 * seconds:7.1f} ms")
        chosen = f" (α = {method.alpha_:.3g})" if isinstance(method, CPCA) else ""
        views.append((f"{name}{chosen}   ARI {ari:.2f}", scores))
    count = CPCAPlusPlus("auto").fit(data.target, background=data.background).n_components_
    print(f"  components above sampling noise: {count}")
    return views


def _agreement(scores: FloatArray, labels: Any) -> float:
    """Return the adjusted Rand index of k-means on the scores and the true classes."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    scores = scores / scores.std(axis=0)
    clusters = KMeans(len(np.unique(labels)), n_init=10, random_state=0).fit_predict(scores)
    return float(adjusted_rand_score(labels, clusters))
