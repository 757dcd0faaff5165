"""The scikit-learn face of the package."""

from cpcapp.estimators.cpca import CPCA
from cpcapp.estimators.cpca_plus_plus import CPCAPlusPlus, NoComponentsWarning

__all__ = ["CPCA", "CPCAPlusPlus", "NoComponentsWarning"]
