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
    from cpcapp.estimators import (
        CPCA,
        CPCAPlusPlus,
        LawOfNoiseWarning,
        NoComponentsWarning,
        bootstrap,
        held_out_contrasts,
        permutation_test,
    )
    from cpcapp.inference.backgrounds import (
        MixedBackground,
        RankedBackground,
        combine_backgrounds,
        suitable_background,
    )
    from cpcapp.inference.bootstrap import ComponentStability
    from cpcapp.inference.glrt import glrt_detects, log_glrt
    from cpcapp.inference.held_out import HeldOutContrasts
    from cpcapp.inference.noise import (
        count_components,
        noise_threshold,
    )
    from cpcapp.inference.permutation import PermutationTest
    from cpcapp.moments.covariates import partial_out
    from cpcapp.moments.missing import pairwise_moments
    from cpcapp.moments.moments import Moments

__version__ = "0.1.0"

__all__ = [
    "CPCA",
    "CPCAPlusPlus",
    "ComponentStability",
    "Contrast",
    "HeldOutContrasts",
    "LawOfNoiseWarning",
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
    "held_out_contrasts",
    "log_glrt",
    "noise_threshold",
    "pairwise_moments",
    "partial_out",
    "permutation_test",
    "solve_contrast",
    "suitable_background",
]

# Found on first use: scikit-learn and scipy.stats take two seconds to import, and whoever looks at
# a photo needs neither.
_MODULES = {
    "contrast.loading": ("Loading",),
    "contrast.solution": ("Contrast",),
    "contrast.solve": ("solve_contrast",),
    "contrast.sparse_filters": ("SparseFilters", "find_sparse_filters"),
    "estimators": (
        "CPCA",
        "CPCAPlusPlus",
        "LawOfNoiseWarning",
        "NoComponentsWarning",
        "bootstrap",
        "held_out_contrasts",
        "permutation_test",
    ),
    "inference.backgrounds": (
        "MixedBackground",
        "RankedBackground",
        "combine_backgrounds",
        "suitable_background",
    ),
    "inference.bootstrap": ("ComponentStability",),
    "inference.glrt": ("glrt_detects", "log_glrt"),
    "inference.held_out": ("HeldOutContrasts",),
    "inference.noise": ("count_components", "noise_threshold"),
    "inference.permutation": ("PermutationTest",),
    "moments.covariates": ("partial_out",),
    "moments.missing": ("pairwise_moments",),
    "moments.moments": ("Moments",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(f"cpcapp.{module}"), name)
            return found
    raise AttributeError(f"module 'cpcapp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
