"""Find the seam in a spliced photo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpcapp.splicing._model_file import ModelError
from cpcapp.splicing.images import ImageError, read_image
from cpcapp.splicing.localizer import FilterBank, Localization, SpliceLocalizer, load_model
from cpcapp.splicing.presets import PRESETS, BankOptions, PatchRules, Preset

if TYPE_CHECKING:
    from cpcapp.splicing.training import train_localizer

__all__ = [
    "PRESETS",
    "BankOptions",
    "FilterBank",
    "ImageError",
    "Localization",
    "ModelError",
    "PatchRules",
    "Preset",
    "SpliceLocalizer",
    "load_model",
    "read_image",
    "train_localizer",
]


def __getattr__(name: str) -> Any:
    # Found on first use: whoever looks at a photo need not wait for SciPy.
    if name == "train_localizer":
        from cpcapp.splicing.training import train_localizer

        globals()[name] = train_localizer
        return train_localizer
    raise AttributeError(f"module 'cpcapp.splicing' has no attribute {name!r}")
