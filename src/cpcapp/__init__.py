"""cPCA++: what is special about one data set against another.

R. Salloum, C.-C. J. Kuo, "Efficient image splicing localization via contrastive feature
extraction". Start with :class:`CPCAPlusPlus`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpcapp.contrast.loading import Loading
    from cpcapp.contrast.solution import Contrast
    from cpcapp.contrast.solve import solve_contrast
    from cpcapp.contrast.sparse_filters import SparseFilters, find_sparse_filters
    from cpcapp.estimators import CPCA, CPCAPlusPlus
    from cpcapp.estimators.cpca_plus_plus import NoComponentsWarning
    from cpcapp.inference.backgrounds import (
        MixedBackground,
        RankedBackground,
        combine_backgrounds,
        suitable_background,
    )
    from cpcapp.inference.bootstrap import ComponentStability, bootstrap
    from cpcapp.inference.glrt import (
        count_components,
        glrt_detects,
        log_glrt,
        noise_threshold,
        permutation_threshold,
        power_p_value,
        wachter_edge,
    )
    from cpcapp.inference.permutation import PermutationTest, permutation_test
    from cpcapp.moments.covariates import partial_out
    from cpcapp.moments.missing import pairwise_moments
    from cpcapp.moments.moments import Moments

__version__ = "0.1.0"

__all__ = [
    "CPCA",
    "CPCAPlusPlus",
    "ComponentStability",
    "Contrast",
    "Loading",
    "MixedBackground",
    "Moments",
    "NoComponentsWarning",
    "PermutationTest",
    "RankedBackground",
    "SparseFilters",
    "bootstrap",
    "combine_backgrounds",
    "count_components",
    "find_sparse_filters",
    "glrt_detects",
    "log_glrt",
    "noise_threshold",
    "pairwise_moments",
    "partial_out",
    "permutation_test",
    "permutation_threshold",
    "power_p_value",
    "solve_contrast",
    "suitable_background",
    "wachter_edge",
]

# Found on first use: scikit-learn and scipy.stats take two seconds to import, and whoever looks at
# a photo needs neither.
_ROOMS = {
    "cpcapp.inference.backgrounds": (
        "MixedBackground",
        "RankedBackground",
        "combine_backgrounds",
        "suitable_background",
    ),
    "cpcapp.contrast.solution": ("Contrast",),
    "cpcapp.contrast.solve": ("solve_contrast",),
    "cpcapp.moments.covariates": ("partial_out",),
    "cpcapp.inference.permutation": ("PermutationTest", "permutation_test"),
    "cpcapp.inference.bootstrap": ("ComponentStability", "bootstrap"),
    "cpcapp.inference.glrt": (
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
    "cpcapp.contrast.loading": ("Loading",),
    "cpcapp.moments.missing": ("pairwise_moments",),
    "cpcapp.moments.moments": ("Moments",),
    "cpcapp.contrast.sparse_filters": ("SparseFilters", "find_sparse_filters"),
}


def __getattr__(name: str) -> Any:
    for room, names in _ROOMS.items():
        if name in names:
            globals()[name] = found = getattr(import_module(room), name)
            return found
    raise AttributeError(f"module 'cpcapp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
