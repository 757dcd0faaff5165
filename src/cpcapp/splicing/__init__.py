"""Find the seam in a spliced photo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpcapp.splicing.boundary import BankOptions, FilterBank
from cpcapp.splicing.localizer import Localization, SpliceLocalizer
from cpcapp.splicing.model_file import ModelError, load_model, save_model
from cpcapp.splicing.photos.images import ImageError, read_image
from cpcapp.splicing.presets import PRESETS, PatchRules, Preset
from cpcapp.splicing.results.batch import localize_files
from cpcapp.splicing.results.folder import ResultsError
from cpcapp.splicing.results.photo_result import PhotoResult

if TYPE_CHECKING:
    from cpcapp.splicing.training.train import train_localizer

__all__ = [
    "PRESETS",
    "BankOptions",
    "FilterBank",
    "ImageError",
    "Localization",
    "ModelError",
    "PatchRules",
    "PhotoResult",
    "Preset",
    "ResultsError",
    "SpliceLocalizer",
    "load_model",
    "localize_files",
    "read_image",
    "save_model",
    "train_localizer",
]


def __getattr__(name: str) -> Any:
    # Found on first use: whoever looks at a photo need not wait for SciPy.
    if name == "train_localizer":
        from cpcapp.splicing.training.train import train_localizer

        globals()[name] = train_localizer
        return train_localizer
    raise AttributeError(f"module 'cpcapp.splicing' has no attribute {name!r}")
