"""Model files: safetensors with a header that people can read."""

from __future__ import annotations

import os
from importlib.resources import as_file, files
from typing import Any

import numpy as np

from cpcapp._tensor_files import read_tensors, write_tensors
from cpcapp.splicing.boundary import FilterBank
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.presets import Preset
from cpcapp.splicing.traces.learned import STAGES, TraceMeter
from cpcapp.splicing.verdicts.calibration import Calibration

_FORMAT = "cpcapp-splice-localizer"
_FORMAT_VERSION = 5
# No model of this package comes near; a hostile file can't fill the memory.
_MAX_BYTES = 256 << 20


class ModelError(ValueError):
    """A file is not a localizer that can be used."""


def save_model(localizer: SpliceLocalizer, path: str | os.PathLike[str]) -> None:
    """Write a localizer to a file: the filters as tensors, everything else as JSON in the header.

    Parameters
    ----------
    localizer : SpliceLocalizer
    path : path

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "copy.safetensors"
    >>> save_model(load_model(), path)
    >>> load_model(path).name
    'default'
    """
    header = {
        "preset": localizer.preset.to_dict(),
        "threshold": localizer.threshold,
        "calibration": localizer.calibration and localizer.calibration.to_dict(),
        "eigenvalues": [bank.eigenvalues.tolist() for bank in localizer.banks],
        "training": localizer.facts,
    }
    tensors = {f"filters.{number}": bank.filters for number, bank in enumerate(localizer.banks)}
    if localizer.network is not None:
        header["network"] = localizer.network.facts
        for name, graph in localizer.network.stages.items():
            tensors[f"network.{name}"] = np.frombuffer(graph, np.uint8)
    write_tensors(path, tensors, header, _FORMAT, _FORMAT_VERSION)


def load_model(path: str | os.PathLike[str] | None = None) -> SpliceLocalizer:
    """Read a localizer from a file, by default the one that comes with the package.

    Parameters
    ----------
    path : path, optional

    Returns
    -------
    SpliceLocalizer

    Raises
    ------
    ModelError
        If the file is damaged, is something else, or was written by an older version.

    Examples
    --------
    >>> load_model().name
    'default'
    """
    if path is not None:
        return _read_model(path)
    with as_file(files("cpcapp.splicing.models") / "default.safetensors") as shipped:
        return _read_model(shipped)


def _read_model(path: str | os.PathLike[str]) -> SpliceLocalizer:
    """Read what `save_model` wrote, checking all of it."""
    try:
        header, tensors = read_tensors(path, _FORMAT, _FORMAT_VERSION, max_bytes=_MAX_BYTES)
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
        calibration = None if known is None else Calibration.from_dict(known, preset.verdict)
        network = _network(header["network"], tensors) if preset.network else None
        threshold = float(header["threshold"])
        return SpliceLocalizer(preset, banks, threshold, calibration, facts, network)
    except KeyError as error:
        raise ModelError(f"{path} is no model that can be used: it has no {error}") from error
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{path} is no model that can be used: {reason}") from error


def _network(facts: Any, tensors: dict[str, Any]) -> TraceMeter:
    if not isinstance(facts, dict):
        raise ModelError("what it says of its network is not a JSON object")
    return TraceMeter({name: tensors[f"network.{name}"].tobytes() for name in STAGES}, facts)


def _filters(tensors: dict[str, Any], number: int) -> Any:
    filters = tensors[f"filters.{number}"]
    if filters.dtype != np.float32:
        raise ModelError(f"its filters are {filters.dtype}, not float32")
    return filters
