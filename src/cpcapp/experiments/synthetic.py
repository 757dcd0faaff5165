"""The paper's synthetic example: four classes under ten noisy features (Section III-B1)."""

from __future__ import annotations

from functools import partial

from cpcapp.datasets import synthetic as draw
from cpcapp.experiments.comparison import LOOK_AT, compare, describe_data
from cpcapp.experiments.results import PaperSays, Progress, Result, Settings

TITLE = "Synthetic data: four classes under noise"
PAPER_ALPHA = 2.7
# The paper's text says 10, where PCA finds the classes as well; 100 is where its claim holds.
_VARIANCES = (10, 100)


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods at the noise the paper states, and at a louder one."""

    def half(done: int, share: float) -> None:
        progress((done + share) / 2)

    sets = [draw(noise_variance=v, random_state=settings.seed) for v in _VARIANCES]
    comparisons = {
        f"noise of variance {variance}": compare(data, settings, partial(half, i))
        for i, (variance, data) in enumerate(zip(_VARIANCES, sets, strict=True))
    }
    pictures = [
        picture
        for (name, comparison), variance in zip(comparisons.items(), _VARIANCES, strict=True)
        for picture in comparison.pictures(f"synthetic-{variance}", name.capitalize(), PAPER_ALPHA)
    ]
    return Result(
        name="synthetic",
        title=TITLE,
        shows="Four classes differ in the first twenty of thirty features. The other ten are "
        "noise, in the target and in the background alike. The question is which method ignores "
        "the noise and shows the four classes.",
        look_at=LOOK_AT,
        data=describe_data(sets[0]),
        findings=(
            *(f"With {name}. {found.sentence()}" for name, found in comparisons.items()),
            "With noise of variance 10, as the paper's text has it, the two directions that make "
            "the classes also have the largest variance (91 and 23.5 by its Appendix A, against "
            "10), so PCA and t-SNE find them too. Where the noise is louder, as the paper's figure "
            "suggests, they do not. The report shows both.",
        ),
        paper=(
            PaperSays(
                "cPCA++ “obtains the ideal clustering without a parameter sweep”; for cPCA “a "
                "contrast factor for α = 2.7 is ideal, but must be found by sweeping α”; PCA and "
                "t-SNE fail.",
                "Section III-B1, figure of the synthetic data",
            ),
            PaperSays("N_f = 400, N_b = 400, M = 30", "Table I"),
        ),
        pictures=tuple(pictures),
        tables=tuple(t for name, found in comparisons.items() for t in found.tables(f", {name}")),
        numbers={name: comparison.numbers() for name, comparison in comparisons.items()},
    )
