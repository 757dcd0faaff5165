"""The paper's synthetic example: four classes under ten noisy features (Section III-B1)."""

from __future__ import annotations

from cpcapp.datasets import ContrastData
from cpcapp.datasets import synthetic as synthetic_data
from cpcapp.experiments._comparison import Comparison, compare
from cpcapp.experiments._contrast_report import (
    LOOK_AT,
    ari_figure,
    ari_sentence,
    pictures,
    tables,
)
from cpcapp.experiments._data_sets import describe_data
from cpcapp.experiments._results import PaperSays, Picture, Progress, Result, Settings, Table

TITLE = "Synthetic data: four classes under noise"
PAPER_ALPHA = 2.7
# The paper's text says 10, where PCA finds the classes as well; 100 is where its claim holds.
_VARIANCES = (10.0, 100.0)


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods at the noise the paper states, and at a louder one."""
    found: list[Comparison] = []
    for i, variance in enumerate(_VARIANCES):
        data = _data(variance, settings)
        found.append(compare(data, settings, lambda share, i=i: progress((i + share) / 2)))  # type: ignore[misc]
    names = [f"noise of variance {variance:.0f}" for variance in _VARIANCES]
    drawn: list[Picture] = []
    tabled: list[Table] = []
    for variance, name, comparison in zip(_VARIANCES, names, found, strict=True):
        title = name[0].upper() + name[1:]
        drawn += pictures(f"synthetic-{variance:.0f}", title, comparison, PAPER_ALPHA)
        tabled += tables(comparison, f", {name}")
    return Result(
        name="synthetic",
        title=TITLE,
        shows="Four classes differ in the first twenty of thirty features. The other ten are "
        "noise, in the target and in the background alike. The question is which method ignores "
        "the noise and shows the four classes.",
        look_at=LOOK_AT,
        data=describe_data(found[0].data),
        findings=(
            *(f"With {n}. {ari_sentence(c)}" for n, c in zip(names, found, strict=True)),
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
        pictures=tuple(drawn),
        tables=tuple(tabled),
        numbers={n: c.numbers() for n, c in zip(names, found, strict=True)},
        paper_figure=f"ideal α of cPCA: {PAPER_ALPHA:g}",
        found_figure=f"with {names[-1]}, {ari_figure(found[-1])}",
    )


def _data(variance: float, settings: Settings) -> ContrastData:
    return synthetic_data(noise_variance=variance, random_state=settings.seed)
