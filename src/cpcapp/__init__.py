"""cPCA++: what is special about one data set against another.

R. Salloum, C.-C. J. Kuo, "Efficient image splicing localization via contrastive feature
extraction". Start with :class:`CPCAPlusPlus`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpcapp.contrast import Contrast, solve_contrast
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
    from cpcapp.estimators.cpca_plus_plus import NoComponentsWarning
    from cpcapp.loading import Loading
    from cpcapp.moments import Moments
    from cpcapp.views import Views, ViewsDisagreeWarning

__version__ = "0.1.0"

__all__ = [
    "CPCA",
    "CPCAPlusPlus",
    "Contrast",
    "Loading",
    "Moments",
    "NoComponentsWarning",
    "Views",
    "ViewsDisagreeWarning",
    "count_components",
    "glrt_detects",
    "log_glrt",
    "noise_threshold",
    "permutation_threshold",
    "power_p_value",
    "solve_contrast",
    "wachter_edge",
]

# Found on first use: scikit-learn and scipy.stats take two seconds to import, and whoever looks at
# a photo needs neither.
_ROOMS = {
    "cpcapp.contrast": ("Contrast", "solve_contrast"),
    "cpcapp.detection": (
        "count_components",
        "glrt_detects",
        "log_glrt",
        "noise_threshold",
        "permutation_threshold",
        "power_p_value",
        "wachter_edge",
    ),
    "cpcapp.estimators": ("CPCA", "CPCAPlusPlus"),
    "cpcapp.estimators.cpca_plus_plus": ("NoComponentsWarning",),
    "cpcapp.loading": ("Loading",),
    "cpcapp.moments": ("Moments",),
    "cpcapp.views": ("Views", "ViewsDisagreeWarning"),
}


def __getattr__(name: str) -> Any:
    for room, names in _ROOMS.items():
        if name in names:
            globals()[name] = found = getattr(import_module(room), name)
            return found
    raise AttributeError(f"module 'cpcapp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
