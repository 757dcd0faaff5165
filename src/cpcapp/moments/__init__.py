"""What is added up: sample count, mean and scatter, from rows of any kind."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpcapp.moments.accumulate import add_up
    from cpcapp.moments.covariates import CovariateCoder, CovariateEffect, partial_out
    from cpcapp.moments.missing import pairwise_moments
    from cpcapp.moments.moments import Moments
    from cpcapp.moments.reservoir import Reservoir
    from cpcapp.moments.rows import FeatureRangeError, NonFiniteError

__all__ = [
    "CovariateCoder",
    "CovariateEffect",
    "FeatureRangeError",
    "Moments",
    "NonFiniteError",
    "Reservoir",
    "add_up",
    "pairwise_moments",
    "partial_out",
]

# Found on first use: a process that only checks a sparse matrix need not load linear algebra.
_MODULES = {
    "accumulate": ("add_up",),
    "covariates": ("CovariateCoder", "CovariateEffect", "partial_out"),
    "missing": ("pairwise_moments",),
    "moments": ("Moments",),
    "reservoir": ("Reservoir",),
    "rows": ("FeatureRangeError", "NonFiniteError"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f"{__name__}.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
