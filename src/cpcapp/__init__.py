"""cPCA++: what is special about one data set against another.

R. Salloum, C.-C. J. Kuo, "Efficient image splicing localization via contrastive feature
extraction". Start with :class:`CPCAPlusPlus`.
"""

from cpcapp.contrast import Contrast, Loading, solve_contrast
from cpcapp.detection import (
    count_components,
    glrt_detects,
    log_glrt,
    noise_threshold,
    permutation_threshold,
    power_p_value,
    wachter_edge,
)
from cpcapp.estimators import CPCA, CPCAPlusPlus
from cpcapp.moments import Moments

__version__ = "0.1.0"

__all__ = [
    "CPCA",
    "CPCAPlusPlus",
    "Contrast",
    "Loading",
    "Moments",
    "count_components",
    "glrt_detects",
    "log_glrt",
    "noise_threshold",
    "permutation_threshold",
    "power_p_value",
    "solve_contrast",
    "wachter_edge",
]
