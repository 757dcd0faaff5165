"""Digits under grass: the paper's first real example (Section III-B2)."""

from __future__ import annotations

from dataclasses import replace

from cpcapp.datasets import mnist_over_grass as load
from cpcapp.experiments.comparison import compare
from cpcapp.experiments.figures import image_grid, png_of
from cpcapp.experiments.results import Picture, Progress, Result, Settings, load_data

_QUICK_ROWS = 1500


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on digits 0 and 1 that lie under photos of grass."""
    n = _QUICK_ROWS if settings.quick else 5000
    data = load_data(load, n_target=n, n_background=n, random_state=settings.seed)
    rows = {
        f"digit {digit}": data.target[data.labels == label][:6]
        for label, digit in enumerate(data.label_names)
    }
    examples = Picture(
        "mnist_over_grass-examples",
        png_of(image_grid(rows)),
        alt="Twelve target pictures, six with a faint digit 0 and six with a faint digit 1 over "
        "grass.",
        caption="Some target pictures, as in the paper's figure of six. They are hard to see.",
        shareable=False,
    )
    result = compare(data, settings, progress).result("mnist_over_grass")
    return replace(result, pictures=(examples, *result.pictures))
