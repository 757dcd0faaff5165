"""The scikit-learn face of the package."""

from cpcapp.estimators.cpca import CPCA
from cpcapp.estimators.cpca_plus_plus import (
    CPCAPlusPlus,
    LawOfNoiseWarning,
    NoComponentsWarning,
)
from cpcapp.estimators.significance import bootstrap, held_out_contrasts, permutation_test

__all__ = [
    "CPCA",
    "CPCAPlusPlus",
    "LawOfNoiseWarning",
    "NoComponentsWarning",
    "bootstrap",
    "held_out_contrasts",
    "permutation_test",
]
