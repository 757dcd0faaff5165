"""Model files: safetensors with a header that people can read."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from cpcapp._tensor_files import read_tensors, write_tensors
from cpcapp.splicing.localizer import FilterBank, SpliceLocalizer
from cpcapp.splicing.presets import Preset
from cpcapp.splicing.verdict import Calibration

_FORMAT = "cpcapp-splice-localizer"
_FORMAT_VERSION = 3
# No model of this package comes near; a hostile file can't fill the memory.
_MOST_BYTES = 256 << 20


class ModelError(ValueError):
    """A file is not a localizer that can be used."""


def write_model(localizer: SpliceLocalizer, path: str | os.PathLike[str]) -> None:
    """Write a localizer: the filters as tensors, everything else as JSON in the header."""
    header = {
        "preset": localizer.preset.to_dict(),
        "threshold": localizer.threshold_,
        "calibration": localizer.calibration and localizer.calibration.to_dict(),
        "eigenvalues": [bank.eigenvalues.tolist() for bank in localizer.banks],
        "training": localizer.facts,
    }
    tensors = {f"filters.{number}": bank.filters for number, bank in enumerate(localizer.banks)}
    write_tensors(path, tensors, header, _FORMAT, _FORMAT_VERSION)


def read_model(path: str | os.PathLike[str]) -> SpliceLocalizer:
    """Read what `write_model` wrote, checking all of it."""
    try:
        header, tensors = read_tensors(path, _FORMAT, _FORMAT_VERSION, most_bytes=_MOST_BYTES)
        preset = Preset.from_dict(header["preset"])
        banks = [
            FilterBank(
                options,
                _filters(tensors, number),
                np.asarray(header["eigenvalues"][number], dtype=np.float64),
            )
            for number, options in enumerate(preset.banks)
        ]
        facts = header["training"]
        if not isinstance(facts, dict):
            raise ModelError("what it says of its training is not a JSON object")
        known = header["calibration"]
        calibration = None if known is None else Calibration.from_dict(known)
        return SpliceLocalizer(preset, banks, float(header["threshold"]), facts, calibration)
    except KeyError as error:
        raise ModelError(f"{path} is no model that can be used: it has no {error}") from error
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{path} is no model that can be used: {reason}") from error


def _filters(tensors: dict[str, Any], number: int) -> Any:
    filters = tensors[f"filters.{number}"]
    if filters.dtype != np.float32:
        raise ModelError(f"its filters are {filters.dtype}, not float32")
    return filters
