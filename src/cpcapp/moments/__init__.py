"""What is added up: sample count, mean and scatter, from rows of any kind."""

from cpcapp.moments.covariates import CovariateCoder, CovariateEffect, partial_out
from cpcapp.moments.missing import pairwise_moments
from cpcapp.moments.moments import Moments
from cpcapp.moments.reservoir import Reservoir
from cpcapp.moments.rows import FeatureRangeError, NonFiniteError
from cpcapp.moments.sources import add_up

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
