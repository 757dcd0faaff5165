"""Proteins of mice with and without trisomy (Section III-B3)."""

from __future__ import annotations

import numpy as np

from cpcapp.datasets import mice_protein as load
from cpcapp.experiments._benchmarked import RULE_SENTENCE
from cpcapp.experiments._comparison import compare
from cpcapp.experiments._contrast_report import (
    LOOK_AT,
    ari_figure,
    ari_sentence,
    gap_sentence,
    pictures,
    tables,
    target_sentence,
)
from cpcapp.experiments._data_sets import describe_data, load_data
from cpcapp.experiments._results import PaperSays, Progress, Result, Settings

TITLE = "Mice protein expression: Down syndrome, or not"
AIM = 0.78


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on mice after a shock, against mice without trisomy and shock."""
    data = load_data(load)
    comparison = compare(data, settings, progress)
    mice = 0 if data.groups is None else len(np.unique(data.groups))
    return Result(
        name="mice_protein",
        title=TITLE,
        shows="77 proteins were measured in the brains of mice, half of which have an extra "
        "chromosome (a model of Down syndrome). The background are healthy mice of another group. "
        "The question is which method shows the two kinds of mice, though mice differ in many "
        "other ways.",
        look_at=LOOK_AT,
        data=f"{describe_data(data)} The target has {mice} mice, 15 measurements of each.",
        findings=(
            ari_sentence(comparison),
            target_sentence(comparison, AIM),
            gap_sentence(comparison),
            f"{RULE_SENTENCE} What was tried: see MNIST over grass.",
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
