"""Single cells of a leukemia patient before and after a transplant (Section III-B5)."""

from __future__ import annotations

from cpcapp.datasets import leukemia as load
from cpcapp.experiments.comparison import compare, subsample
from cpcapp.experiments.results import Progress, Result, Settings, load_data


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on a patient's cells, against those of a healthy person."""
    data = subsample(load_data(load), settings)
    return compare(data, settings, progress).result("leukemia", paper_alpha=3.5)
