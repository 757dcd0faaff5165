"""Proteins of mice with and without trisomy (Section III-B3)."""

from __future__ import annotations

from cpcapp.datasets import mice_protein as load
from cpcapp.experiments.comparison import (
    LOOK_AT,
    RULE_NOTE,
    ari_figure,
    ari_sentence,
    compare,
    describe_data,
    load_data,
    pictures,
    tables,
)
from cpcapp.experiments.results import PaperSays, Progress, Result, Settings

TITLE = "Mice protein expression: Down syndrome, or not"


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on mice after a shock, against mice without trisomy and shock."""
    data = load_data(load)
    comparison = compare(data, settings, progress)
    return Result(
        name="mice_protein",
        title=TITLE,
        shows="77 proteins were measured in the brains of mice, half of which have an extra "
        "chromosome (a model of Down syndrome). The background are healthy mice of another group. "
        "The question is which method shows the two kinds of mice, though mice differ in many "
        "other ways.",
        look_at=LOOK_AT,
        data=f"{describe_data(data)} The target has {comparison.numbers()['n_individuals']} mice, "
        "15 measurements of each.",
        findings=(
            ari_sentence(comparison),
            RULE_NOTE,
            "Measurements of one mouse are alike, so the accuracy is cross-validated by mouse: no "
            "mouse is both learnt from and tested on. With this few mice it is a rough figure.",
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
        pictures=pictures("mice_protein", "Mice protein expression", comparison),
        tables=tables(comparison),
        numbers=comparison.numbers(),
        found_figure=ari_figure(comparison),
    )
