"""Find the seam in a spliced photo."""

from cpcapp.splicing._model_file import ModelError
from cpcapp.splicing.images import ImageError, read_image
from cpcapp.splicing.localizer import FilterBank, Localization, SpliceLocalizer, load_model
from cpcapp.splicing.presets import PRESETS, BankOptions, PatchRules, Preset
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
