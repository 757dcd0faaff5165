"""Proteins of mice with and without trisomy (Section III-B3)."""

from __future__ import annotations

from cpcapp.datasets import mice_protein as load
from cpcapp.experiments.comparison import compare
from cpcapp.experiments.results import Progress, Result, Settings, load_data


def run(settings: Settings, progress: Progress) -> Result:
    """Compare the methods on mice after a shock, against mice without trisomy and shock."""
    return compare(load_data(load), settings, progress).result("mice_protein")
