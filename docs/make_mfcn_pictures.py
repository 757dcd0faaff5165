"""Draw the pictures of the page about MFCN, from benchmarks/results/mfcn.json.

    CPCAPP_DATA=... python docs/make_mfcn_pictures.py

The maps of four photos are drawn without the photos, which are not ours to publish.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cpcapp.experiments.figures import png_of
from cpcapp.splicing import load_model, open_photos
from cpcapp.splicing.networks.mfcn_localizer import enlarge
from cpcapp.splicing.networks.run import draw_curve
from cpcapp.splicing.score.protocols import boundary_band

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
RESULTS = ROOT / "benchmarks" / "results" / "mfcn.json"
LOGITS = ROOT / "benchmarks" / "results" / "mfcn_logits.npz"
SETS = {
    "columbia": "Columbia",
    "casia2": "CASIA 2.0",
    "casia1": "CASIA 1.0",
    "imd2020": "IMD2020",
    "dst": "DST",
}
COLUMNS = ("true seam", "`paper`", "`default`", "MFCN: edges", "true part", "`default`: part")
LAST = ("MFCN: surface", "MFCN: within edges")


def main() -> int:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    draw_curve(results["training"]["curve"], IMAGES / "mfcn_curve.png")
    (IMAGES / "mfcn_photos.png").write_bytes(photo_scores(results["sets"]))
    folders = sorted(Path(os.environ.get("CPCAPP_DATA", "nowhere")).glob("*/4cam_splc"))
    if not folders:
        sys.exit("no folder of Columbia in CPCAPP_DATA: the maps were not drawn")
    (IMAGES / "mfcn_maps.png").write_bytes(maps(folders[0].parent))
    return 0


def photo_scores(sets: dict[str, Any]) -> bytes:
    """Draw the F1 of each photo by MFCN and by default: seams and parts."""
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    panels = figure.subplots(1, 2)
    for ax, protocol, title in zip(
        panels, ("edge", "surface"), ("F1 of the seam", "F1 of the pasted part"), strict=True
    ):
        for (name, words), marker in zip(SETS.items(), "osv^D", strict=True):
            ours, theirs = (sets[name][m]["photos"][protocol] for m in ("default", "mfcn"))
            x, y = zip(*((theirs[photo], ours[photo]) for photo in ours), strict=True)
            ax.scatter(x, y, s=22, marker=marker, alpha=0.75, label=words)
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), title=title)
        ax.set(xlabel="MFCN", ylabel="model default", aspect="equal")
    panels[0].legend(fontsize=8)
    return png_of(figure)


def maps(folder: Path) -> bytes:
    """Draw what each method says of the four photos whose logits are stored."""
    with np.load(LOGITS, allow_pickle=False) as stored:
        logits = {name: stored[name] for name in stored.files}
    models = [load_model(name) for name in ("paper", "default")]
    samples = [sample for sample in open_photos(folder) if sample.name in logits]
    columns = (*COLUMNS, *LAST)
    figure = Figure(figsize=(1.9 * len(columns), 1.5 * len(samples) + 0.3), layout="constrained")
    grid = figure.subplots(len(samples), len(columns))
    for axes, sample in zip(grid, samples, strict=True):
        mask = sample.mask
        found = [model.localize(sample.photo) for model in models]
        network = enlarge(logits[sample.name], *mask.shape)
        # The square root shows faint seams.
        seams = [
            np.sqrt(np.asarray(seam, np.float32))
            for seam in (boundary_band(mask, 4), *(one.boundary for one in found), network.edges)
        ]
        parts = [mask, found[1].region, network.surface, network.region]
        for ax, panel in zip(axes, [*seams, *parts], strict=True):
            ax.imshow(np.asarray(panel, np.float32), cmap="magma", vmin=0.0, vmax=1.0)
            ax.set_axis_off()
    for ax, title in zip(grid[0], columns, strict=True):
        ax.set_title(title.replace("`", ""), fontsize=9)
    return png_of(figure)


if __name__ == "__main__":
    sys.exit(main())
