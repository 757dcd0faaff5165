"""Draw the picture of docs/how-many.md, of the mice protein data, and write its figures.

    python docs/make_how_many_pictures.py [-o FOLDER] [--results FILE] [--page FILE]

The sentences with figures stand between comments of the page; everything else stays as it is.
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
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
from marked_parts import replace_part

COLOURS = 64  # keep the file small
HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results" / "how_many.json"
PAGE = HERE / "how-many.md"
PER_MOUSE = 15  # measurements of each mouse, in the order of the table
BLUE, ORANGE = "#0072b2", "#d55e00"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the picture of docs/how-many.md.")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "images")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    figures, picture = measure()
    (arguments.output / "how-many-proteins.png").write_bytes(png(picture))
    arguments.results.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    page = arguments.page.read_text(encoding="utf-8")
    arguments.page.write_text(with_figures(page, figures), encoding="utf-8")
    return 0


def measure() -> tuple[dict[str, Any], Figure]:
    """Return what rows and mice say of the same components, and the picture."""
    from cpcapp import (
        CPCAPlusPlus,
        __version__,
        bootstrap,
        held_out_contrasts,
        permutation_test,
    )
    from cpcapp.datasets import mice_protein

    data = mice_protein(missing="mean")
    assert data.groups is not None
    mice = {
        "groups": data.groups,
        "background_groups": np.arange(len(data.background)) // PER_MOUSE,
    }
    sets = data.target, data.background
    fitted = CPCAPlusPlus(2).fit(data.target, background=data.background)
    figures: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.system(), "cpcapp": __version__, "numpy": np.__version__},
        "bound": fitted.bound_,
        "contrast": fitted.contrast_.tolist(),
    }
    drawn = {}
    for unit, groups in (("rows", {}), ("mice", mice)):
        test = permutation_test(*sets, **groups)
        held_out = held_out_contrasts(fitted, *sets, **groups)
        drawn[unit] = bootstrap(fitted, *sets, **groups)
        figures[unit] = {
            "n_components": test.n_components,
            "p_values": list(test.p_values),
            "largest": test.largest,
            "threshold": test.threshold,
            "held_out": held_out.contrasts.tolist(),
            "held_out_intervals": held_out.intervals.tolist(),
            "median_angle": float(np.median(drawn[unit].angles)),
        }
    return figures, draw_features(drawn, list(data.feature_names))


def with_figures(page: str, figures: dict[str, Any]) -> str:
    """Return the page with its sentences about the mice."""
    rows, mice = figures["rows"], figures["mice"]
    held = {
        unit: f"{figures[unit]['held_out'][0]:.1f} "
        f"(from {figures[unit]['held_out_intervals'][0][0]:.1f} to "
        f"{figures[unit]['held_out_intervals'][0][1]:.1f})"
        for unit in ("rows", "mice")
    }
    parts = {
        "counts": "In the mice protein data each of 27 mice was measured 15 times. Shuffling rows "
        f"counts {rows['n_components']} components: the largest contrast is {rows['largest']:.0f}, "
        f"and chance exceeds {rows['threshold']:.0f} in one of twenty cases. Shuffling mice counts "
        f"{mice['n_components']}: with 18 mice in the target and 9 in the background, chance "
        f"reaches {mice['threshold']:.0f}.",
        "held-out": "The first component of the mice has a contrast of "
        f"{figures['contrast'][0]:.1f} in the fit. If rows are left out it is {held['rows']}, if "
        f"whole mice are left out {held['mice']}.",
        "angles": "If rows of the mice protein data are drawn, the components turn by "
        f"{rows['median_angle']:.0f}° (median). If mice are drawn, by "
        f"{mice['median_angle']:.0f}°:",
    }
    for name, text in parts.items():
        page = replace_part(page, f"mice-{name}", text)
    return page


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
