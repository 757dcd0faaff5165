"""Data sets that may not be here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cpcapp.experiments._results import Settings

if TYPE_CHECKING:
    from cpcapp.datasets import ContrastData


_QUICK_ROWS = 1500


class DataProblem(Exception):
    """A data set is not here, or its files are not what they should be."""


def load_data(load: Callable[[], ContrastData]) -> ContrastData:
    """Return a data set; raise `DataProblem`, with the loader's message, if it can't be had."""
    try:
        return load()
    except (OSError, ValueError, ImportError) as error:
        raise DataProblem(str(error)) from error


def subsample(data: ContrastData, settings: Settings) -> ContrastData:
    """Return some rows of either side, in their order, for a quick run; else all."""
    if not settings.quick:
        return data
    rng = np.random.default_rng(settings.seed)
    target, background = (
        np.sort(rng.permutation(len(side))[:_QUICK_ROWS]) for side in (data.target, data.background)
    )
    return replace(
        data,
        target=data.target[target],
        background=data.background[background],
        labels=data.labels[target],
        groups=None if data.groups is None else data.groups[target],
        clean=None if data.clean is None else data.clean[target],
    )


def describe_data(data: ContrastData) -> str:
    """Say where data come from and how many they are."""
    n, m = data.target.shape
    return (
        f"{data.source}. {n:,} target and {len(data.background):,} background rows of {m} features."
    )
