"""Find the seam in a spliced photo.

What users need is here; the rooms below may change from version to version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpcapp.splicing.boundary import BankOptions, FilterBank
    from cpcapp.splicing.datasets.opening import open_photos
    from cpcapp.splicing.evaluation.report import LocalizerReport
    from cpcapp.splicing.evaluation.run import evaluate_localizer
    from cpcapp.splicing.examples import example_photos
    from cpcapp.splicing.localizer import Localization, SpliceLocalizer
    from cpcapp.splicing.making.folder import make_splices
    from cpcapp.splicing.model_file import ModelError, load_model, save_model
    from cpcapp.splicing.photos.images import ImageError, read_image
    from cpcapp.splicing.photos.samples import Sample, SampleSet
    from cpcapp.splicing.pictures.overlays import draw_localization, draw_overlay
    from cpcapp.splicing.presets import PRESETS, PatchRules, Preset
    from cpcapp.splicing.results.batch import localize_files
    from cpcapp.splicing.results.folder import ResultsError
    from cpcapp.splicing.results.photo_result import PhotoResult
    from cpcapp.splicing.traces.edges.detector import detect_edges
    from cpcapp.splicing.training.sources import train_from_folders
    from cpcapp.splicing.training.train import train_localizer

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
    "BankOptions": "cpcapp.splicing.boundary",
    "FilterBank": "cpcapp.splicing.boundary",
    "ImageError": "cpcapp.splicing.photos.images",
    "Localization": "cpcapp.splicing.localizer",
    "LocalizerReport": "cpcapp.splicing.evaluation.report",
    "ModelError": "cpcapp.splicing.model_file",
    "PRESETS": "cpcapp.splicing.presets",
    "PatchRules": "cpcapp.splicing.presets",
    "PhotoResult": "cpcapp.splicing.results.photo_result",
    "Preset": "cpcapp.splicing.presets",
    "ResultsError": "cpcapp.splicing.results.folder",
    "Sample": "cpcapp.splicing.photos.samples",
    "SampleSet": "cpcapp.splicing.photos.samples",
    "SpliceLocalizer": "cpcapp.splicing.localizer",
    "detect_edges": "cpcapp.splicing.traces.edges.detector",
    "draw_localization": "cpcapp.splicing.pictures.overlays",
    "draw_overlay": "cpcapp.splicing.pictures.overlays",
    "evaluate_localizer": "cpcapp.splicing.evaluation.run",
    "example_photos": "cpcapp.splicing.examples",
    "load_model": "cpcapp.splicing.model_file",
    "localize_files": "cpcapp.splicing.results.batch",
    "make_splices": "cpcapp.splicing.making.folder",
    "open_photos": "cpcapp.splicing.datasets.opening",
    "read_image": "cpcapp.splicing.photos.images",
    "save_model": "cpcapp.splicing.model_file",
    "train_from_folders": "cpcapp.splicing.training.sources",
    "train_localizer": "cpcapp.splicing.training.train",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'cpcapp.splicing' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_ON_FIRST_USE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
