"""Draw the pictures of docs/guide.md and docs/index.md, from the data of their examples.

python docs/make_guide_pictures.py [-o FOLDER]
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from cpcapp import CPCAPlusPlus
from cpcapp.datasets import synthetic
from cpcapp.plotting import loadings, scatter

COLOURS = 64  # keep the files small
HEIGHT = 3.2


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/guide.md.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "images")
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures().items():
        (arguments.output / f"{name}.png").write_bytes(png(figure))
    return 0


def pictures() -> dict[str, Figure]:
    data = synthetic(noise_variance=100.0, random_state=0)
    pca = CPCAPlusPlus().fit(data.target)
    contrast = CPCAPlusPlus().fit(data.target, background=data.background)
    both = Figure(figsize=(7.5, HEIGHT), layout="constrained")
    for ax, (name, model) in zip(
        both.subplots(1, 2), (("PCA", pca), ("cPCA++", contrast)), strict=True
    ):
        scatter(ax, model.transform(data.target), data.labels, title=name)
    atoms = Figure(figsize=(7.5, HEIGHT), layout="constrained")
    names = [f"feature {i}" for i in range(30)]
    for ax, row, number in zip(atoms.subplots(1, 2), contrast.atoms_, (1, 2), strict=True):
        loadings(ax, row, names, top=12)
        ax.set_title(f"atom {number}", fontsize=10)
        ax.tick_params(labelsize=7)
    return {"guide-scatter": both, "guide-atoms": atoms}


def png(figure: Figure) -> bytes:
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    image = Image.open(drawn).convert("RGB")
    image.quantize(COLOURS, Image.Quantize.MEDIANCUT).save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    sys.exit(main())
