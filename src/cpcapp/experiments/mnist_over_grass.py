"""Digits under grass: the paper's first real example (Section III-B2)."""

from __future__ import annotations

from dataclasses import replace

from cpcapp.datasets import mnist_over_grass as load
from cpcapp.experiments.comparison import RULE_NOTE, compare
from cpcapp.experiments.figures import image_grid, png_of
from cpcapp.experiments.results import PaperSays, Picture, Progress, Result, Settings, load_data

TITLE = "MNIST over grass: digits that one can hardly see"
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
    comparison = compare(data, settings, progress)
    result = Result(
        **comparison.parts("mnist_over_grass", TITLE),
        shows="Pictures of the handwritten digits 0 and 1 are added, faintly, to pieces of photos "
        "of grass. The background is grass alone. The question is which method tells the two "
        "digits apart, though grass is most of what a picture shows.",
        findings=(comparison.sentence(), RULE_NOTE),
        paper=(
            PaperSays(
                "PCA and t-SNE “have difficulty clustering the two digits”; cPCA and cPCA++ "
                "“achieve some separation between the two digits, although in both cases there is "
                "some overlap”. No numbers are given.",
                "Section III-B2",
            ),
            PaperSays("N_f = 5000, N_b = 5000, M = 784", "Table I"),
        ),
    )
    return replace(result, pictures=(examples, *result.pictures))
