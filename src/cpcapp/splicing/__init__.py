"""Find the seam in a spliced photo.

What users need is here; the rooms below may change from version to version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpcapp.splicing.datasets.folders import open_photos
    from cpcapp.splicing.examples import example_photos
    from cpcapp.splicing.localizer import SpliceLocalizer
    from cpcapp.splicing.make.folder import make_splices
    from cpcapp.splicing.measure.edges.detector import detect_edges
    from cpcapp.splicing.measure.filters import BankOptions, FilterBank
    from cpcapp.splicing.model import ModelError, load_model, save_model
    from cpcapp.splicing.output.batch import localize_files
    from cpcapp.splicing.output.draw import draw_localization, draw_overlay
    from cpcapp.splicing.output.folder import PhotoResult, ResultsError
    from cpcapp.splicing.photo.read import ImageError, read_image
    from cpcapp.splicing.photo.samples import Sample, SampleSet
    from cpcapp.splicing.presets import PRESETS, PatchRules, Preset
    from cpcapp.splicing.result import Localization
    from cpcapp.splicing.score.report import LocalizerReport, evaluate_localizer
    from cpcapp.splicing.train.sources import train_from_folders
    from cpcapp.splicing.train.train import train_localizer

__all__ = [
    "PRESETS",
    "BankOptions",
    "FilterBank",
    "ImageError",
    "Localization",
    "LocalizerReport",
    "ModelError",
    "PatchRules",
    "PhotoResult",
    "Preset",
    "ResultsError",
    "Sample",
    "SampleSet",
    "SpliceLocalizer",
    "detect_edges",
    "draw_localization",
    "draw_overlay",
    "evaluate_localizer",
    "example_photos",
    "load_model",
    "localize_files",
    "make_splices",
    "open_photos",
    "read_image",
    "save_model",
    "train_from_folders",
    "train_localizer",
]

# Imported on first use: what trains a network needs no OpenCV, and localizing no SciPy, which takes
# longer to import than a photo to localize.
_ON_FIRST_USE = {
    "BankOptions": "cpcapp.splicing.measure.filters",
    "FilterBank": "cpcapp.splicing.measure.filters",
    "ImageError": "cpcapp.splicing.photo.read",
    "Localization": "cpcapp.splicing.result",
    "LocalizerReport": "cpcapp.splicing.score.report",
    "ModelError": "cpcapp.splicing.model",
    "PRESETS": "cpcapp.splicing.presets",
    "PatchRules": "cpcapp.splicing.presets",
    "PhotoResult": "cpcapp.splicing.output.folder",
    "Preset": "cpcapp.splicing.presets",
    "ResultsError": "cpcapp.splicing.output.folder",
    "Sample": "cpcapp.splicing.photo.samples",
    "SampleSet": "cpcapp.splicing.photo.samples",
    "SpliceLocalizer": "cpcapp.splicing.localizer",
    "detect_edges": "cpcapp.splicing.measure.edges.detector",
    "draw_localization": "cpcapp.splicing.output.draw",
    "draw_overlay": "cpcapp.splicing.output.draw",
    "evaluate_localizer": "cpcapp.splicing.score.report",
    "example_photos": "cpcapp.splicing.examples",
    "load_model": "cpcapp.splicing.model",
    "localize_files": "cpcapp.splicing.output.batch",
    "make_splices": "cpcapp.splicing.make.folder",
    "open_photos": "cpcapp.splicing.datasets.folders",
    "read_image": "cpcapp.splicing.photo.read",
    "save_model": "cpcapp.splicing.model",
    "train_from_folders": "cpcapp.splicing.train.sources",
    "train_localizer": "cpcapp.splicing.train.train",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'cpcapp.splicing' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_ON_FIRST_USE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
