"""Model files: safetensors with a header that people can read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cpcapp import __version__
from cpcapp._files import written_whole
from cpcapp.splicing.localizer import FilterBank, SpliceLocalizer
from cpcapp.splicing.presets import Preset

_FORMAT = "cpcapp-splice-localizer"
_FORMAT_VERSION = 1
# No model of this package comes near; a hostile file can't fill the memory.
_MOST_BYTES = 256 << 20


class ModelError(ValueError):
    """A file is not a localizer that can be used."""


def write_model(localizer: SpliceLocalizer, path: str | os.PathLike[str]) -> None:
    """Write a localizer: the filters as tensors, everything else as JSON in the header."""
    header = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "preset": localizer.preset.to_dict(),
        "threshold": localizer.threshold_,
        "eigenvalues": [bank.eigenvalues.tolist() for bank in localizer.banks],
        "training": localizer.facts,
    }
    tensors = {
        f"filters.{number}": np.ascontiguousarray(bank.filters)
        for number, bank in enumerate(localizer.banks)
    }
    with written_whole(path) as file:
        file.write(save(tensors, metadata={"cpcapp": json.dumps(header)}))


def read_header(data: bytes) -> dict[str, Any]:
    """Return the JSON header of a model file; see `write_model`."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ModelError("it is cut off, or no safetensors file")
    try:
        outer = json.loads(data[8 : 8 + length])
        header = json.loads(outer["__metadata__"]["cpcapp"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError("it has no header of this package") from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise ModelError("it has no header of this package")
    if header.get("format_version") != _FORMAT_VERSION:
        raise ModelError(
            f"its format is version {header.get('format_version')!r}, this is cpcapp "
            f"{__version__}, which reads version {_FORMAT_VERSION}"
        )
    return header


def read_model(path: str | os.PathLike[str]) -> SpliceLocalizer:
    """Read what `write_model` wrote, checking all of it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ModelError(f"it is larger than {_MOST_BYTES >> 20} MB")
        data = path.read_bytes()
        header = read_header(data)
        tensors = load(data)
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
        return SpliceLocalizer(preset, banks, float(header["threshold"]), facts)
    except KeyError as error:
        raise ModelError(f"{path} is no model that can be used: it has no {error}") from error
    except (SafetensorError, ValueError, TypeError, IndexError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{path} is no model that can be used: {reason}") from error


def _filters(tensors: dict[str, Any], number: int) -> Any:
    filters = tensors[f"filters.{number}"]
    if filters.dtype != np.float32:
        raise ModelError(f"its filters are {filters.dtype}, not float32")
    return filters
