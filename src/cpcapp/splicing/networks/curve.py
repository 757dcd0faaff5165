"""The curve of a training as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cpcapp._io.files import atomic_write

# All else of an entry of a curve is a score.
_LOSS = "loss_"
_PLACE = ("seconds", "step")


def draw_curve(curve: Sequence[dict[str, float]], path: str | os.PathLike[str]) -> None:
    """Draw losses, and scores on splices of held-out photos, over the seconds of a training."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    seconds = [entry["seconds"] for entry in curve]
    losses = [name for name in curve[0] if name.startswith(_LOSS)]
    scores = [name for name in curve[0] if name not in (*losses, *_PLACE)]
    for panel, names, title in zip(
        panels,
        (losses, scores),
        ("loss on made splices", "score on held-out photos"),
        strict=True,
    ):
        for name in names:
            label = name.removeprefix(_LOSS).replace("_", " ")
            panel.plot(seconds, [entry[name] for entry in curve], label=label)
        panel.set_xlabel("seconds of training")
        panel.set_title(title)
        panel.legend()
        panel.grid(alpha=0.3)
    panels[0].set_yscale("log")
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=110)
