"""Draw the pictures of docs/how-many.md, from the mice protein data, and write their figures.

python docs/make_how_many_pictures.py [-o FOLDER] [--results FILE]
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter
from PIL import Image

from cpcapp import CPCAPlusPlus, __version__, bootstrap, permutation_test
from cpcapp.datasets import mice_protein

COLOURS = 64  # keep the files small
HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results" / "how_many.json"
PER_MOUSE = 15  # measurements of each mouse, in the order of the table
BLUE, ORANGE = "#0072b2", "#d55e00"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/how-many.md.")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "images")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    data = mice_protein(missing="mean")
    assert data.groups is not None
    mice = {
        "groups": data.groups,
        "background_groups": np.arange(len(data.background)) // PER_MOUSE,
    }
    figures: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.system(), "cpcapp": __version__, "numpy": np.__version__},
    }
    drawn = {}
    fitted = CPCAPlusPlus(2, calibrate=False).fit(data.target, background=data.background)
    for unit, groups in (("rows", {}), ("mice", mice)):
        test = permutation_test(data.target, data.background, **groups)
        stable = bootstrap(fitted, data.target, data.background, **groups)
        drawn[unit] = stable
        figures[unit] = {
            "n_components": test.n_components,
            "p_value": test.p_value,
            "largest": test.largest,
            "threshold": test.threshold,
            "eigenvalue_intervals": stable.eigenvalue_intervals.tolist(),
            "median_angle": float(np.median(stable.angles)),
        }
    # The plain ratio, which is what rows are shuffled for.
    plain = CPCAPlusPlus(10, loading="likelihood", calibrate=False).fit(
        data.target, background=data.background
    )
    figures["eigenvalues"] = plain.eigenvalues_.tolist()
    pictures = {
        "how-many-eigenvalues": draw_counts(plain.eigenvalues_, figures),
        "how-many-proteins": draw_features(drawn, list(data.feature_names)),
    }
    for name, figure in pictures.items():
        (arguments.output / f"{name}.png").write_bytes(png(figure))
    arguments.results.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def draw_counts(eigenvalues: np.ndarray, figures: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(6.0, 3.4), layout="constrained")
    ax = figure.add_subplot()
    ax.plot(np.arange(1, len(eigenvalues) + 1), eigenvalues, "o-", color=BLUE, markersize=5)
    for unit, colour in (("rows", BLUE), ("mice", ORANGE)):
        ax.axhline(figures[unit]["threshold"], color=colour, linestyle="--", linewidth=1.2)
        label = f"shuffling {unit}: {figures[unit]['n_components']} counted"
        ax.text(
            10.1, figures[unit]["threshold"] * 1.06, label, color=colour, fontsize=9, ha="right"
        )
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.yaxis.set_minor_formatter(ScalarFormatter())
    ax.set_xlabel("component")
    ax.set_ylabel("times the variance of the background")
    return figure


def draw_features(drawn: dict[str, Any], names: list[str]) -> Figure:
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    ax = figure.add_subplot()
    top = np.argsort(-drawn["mice"].top_frequency[0])[:12][::-1]
    for offset, (unit, colour) in zip((0.2, -0.2), (("rows", BLUE), ("mice", ORANGE)), strict=True):
        shares = 100.0 * drawn[unit].top_frequency[0][top]
        ax.barh(np.arange(len(top)) + offset, shares, 0.38, color=colour, label=f"drawing {unit}")
    ax.set_yticks(range(len(top)), [names[i].removesuffix("_N") for i in top], fontsize=8)
    ax.set_xlabel("% of replicates in which it is among the ten largest")
    ax.legend(fontsize=8, loc="lower right")
    return figure


def png(figure: Figure) -> bytes:
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    image = Image.open(drawn).convert("RGB")
    image.quantize(COLOURS, Image.Quantize.MEDIANCUT).save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    sys.exit(main())
