"""Single cells of a leukemia patient before and after a transplant (Section III-B5)."""

from __future__ import annotations

from cpcapp.datasets import leukemia as load
from cpcapp.experiments.comparison import compare, subsample
from cpcapp.experiments.results import PaperSays, Progress, Result, Settings, load_data

TITLE = "Leukemia: cells before and after a transplant"


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on a patient's cells, against those of a healthy person."""
    comparison = compare(subsample(load_data(load), settings), settings, progress)
    return Result(
        **comparison.parts("leukemia", TITLE, paper_alpha=3.5),
        shows="Which genes are active was measured in thousands of single cells from the bone "
        "marrow of a patient, before and after a stem cell transplant. The background are cells of "
        "a healthy person. The question is which method tells before from after, though cells are "
        "of many types.",
        findings=(comparison.sentence(),),
        paper=(
            PaperSays(
                "cPCA is “close to being separable” at α = 3.5; PCA is “incapable of clustering "
                "the data”; t-SNE achieves “some separation”, “not on par” with cPCA; cPCA++ is "
                "similar to the best cPCA. R_b was rank-deficient and loaded. No numbers.",
                "Section III-B5",
            ),
            PaperSays("N_f = 7898, N_b = 1985, M = 500", "Table I"),
        ),
    )
