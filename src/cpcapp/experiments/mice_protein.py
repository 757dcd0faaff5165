"""Proteins of mice with and without trisomy (Section III-B3)."""

from __future__ import annotations

from cpcapp.datasets import mice_protein as load
from cpcapp.experiments.comparison import RULE_NOTE, compare
from cpcapp.experiments.results import PaperSays, Progress, Result, Settings, load_data

TITLE = "Mice protein expression: Down syndrome, or not"


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on mice after a shock, against mice without trisomy and shock."""
    comparison = compare(load_data(load), settings, progress)
    return Result(
        **comparison.parts("mice_protein", TITLE),
        shows="77 proteins were measured in the brains of mice, half of which have an extra "
        "chromosome (a model of Down syndrome). The background are healthy mice of another group. "
        "The question is which method shows the two kinds of mice, though mice differ in many "
        "other ways.",
        findings=(
            comparison.sentence(),
            RULE_NOTE,
            "The 15 measurements of one mouse are alike, so the accuracy is cross-validated by "
            "mouse: no mouse is both learnt from and tested on. With this few mice it is a rough "
            "figure.",
        ),
        paper=(
            PaperSays(
                "PCA “is unable to effectively cluster the data”; t-SNE, cPCA and cPCA++ “are all "
                "able to achieve some separation”. R_b was rank-deficient and loaded. No numbers "
                "are given.",
                "Section III-B3",
            ),
            PaperSays("N_f = 270, N_b = 135, M = 77", "Table I"),
        ),
    )
