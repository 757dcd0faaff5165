"""Model files: safetensors with a header that people can read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from cpcapp._io.tensor_file import parse_tensors, read_tensor_file, write_tensors
from cpcapp._io.text import printable
from cpcapp.splicing.decide.verdict import Calibration
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.measure.filters import BankOptions, FilterBank
from cpcapp.splicing.measure.graph_check import check_graph, try_network
from cpcapp.splicing.measure.jpeg_traces import N_JPEG_TRACES
from cpcapp.splicing.measure.network import STAGES, TraceMeter
from cpcapp.splicing.presets import Preset

#: Name of the shipped model that is taken if none is named.
DEFAULT_MODEL = "default"

_FORMAT = "cpcapp-splice-localizer"
_FORMAT_VERSION = 8
_NETWORK_FORMAT = "cpcapp-trace-network"
_NETWORK_VERSION = 1
_SHIPPED = files("cpcapp.splicing.models")
# No model of this package comes near; a hostile file can't fill the memory.
_MAX_BYTES = 256 << 20
# Their squares, summed over all pixels, stay far within float32.
_MAX_NUMBER = 1e9


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
    >>> save_model(load_model("filters"), path)
    >>> load_model(path).name
    'filters'
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
        tensors |= _graphs(localizer.network)
    write_tensors(path, tensors, header, _FORMAT, _FORMAT_VERSION)


def save_network(network: TraceMeter, path: str | os.PathLike[str]) -> None:
    """Write a network to a file, to train models with it: see `load_network`."""
    header = {"network": network.facts}
    write_tensors(path, _graphs(network), header, _NETWORK_FORMAT, _NETWORK_VERSION)


def load_network(path: str | os.PathLike[str]) -> TraceMeter:
    """Read a network that `save_network` wrote."""
    with model_errors(path, "network"):
        data = read_tensor_file(path, max_bytes=_MAX_BYTES)
        header, tensors = parse_tensors(data, _NETWORK_FORMAT, _NETWORK_VERSION)
        network = _network(header["network"], tensors)
        try_network(network.stages, network.facts)
        return network


def _graphs(network: TraceMeter) -> dict[str, Any]:
    return {
        f"network.{name}": np.frombuffer(graph, np.uint8) for name, graph in network.stages.items()
    }


@contextmanager
def model_errors(path: str | os.PathLike[str], kind: str = "model") -> Iterator[None]:
    """Turn what is wrong with the content of a file into a `ModelError` of one line."""
    try:
        yield
    except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        reason = " ".join(reason.split())
        raise ModelError(f"{path} is no {kind} that can be used: {reason}") from error


def load_model(model: str | os.PathLike[str] | None = None) -> SpliceLocalizer:
    """Read a localizer: one that comes with the package, or one from a file.

    Parameters
    ----------
    model : str or path, optional
        The name of a model of the package (see `shipped_models`), or the path of a file. A name
        comes first: ``"./paper"`` is a file, ``"paper"`` is not. Without it, the default model.

    Returns
    -------
    SpliceLocalizer

    Raises
    ------
    ModelError
        If the file is damaged, is something else, or was written by an older version.
    FileNotFoundError
        If there is no such model.

    Examples
    --------
    >>> load_model("filters").name
    'filters'
    """
    with find_model_file(model) as path:
        return _read_model(path, trusted=_is_shipped(model))


def shipped_models() -> list[str]:
    """Return the names of the models that come with the package.

    >>> shipped_models()
    ['default', 'filters', 'paper']
    """
    return sorted(
        file.name.removesuffix(".safetensors")
        for file in _SHIPPED.iterdir()
        if file.name.endswith(".safetensors")
    )


def _is_shipped(model: str | os.PathLike[str] | None) -> bool:
    return model is None or (isinstance(model, str) and model in shipped_models())


@contextmanager
def find_model_file(model: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Give the path of a model's file, which exists while the context lasts."""
    if _is_shipped(model):
        with as_file(_SHIPPED / f"{model or DEFAULT_MODEL}.safetensors") as shipped:
            yield shipped
    elif model is not None and Path(model).is_file():
        yield Path(model)
    else:
        raise FileNotFoundError(
            f"there is no model file {printable(model)}; give the path of one, or the name of a "
            f"model of the package: {', '.join(shipped_models())}"
        )


def _read_model(path: str | os.PathLike[str], *, trusted: bool) -> SpliceLocalizer:
    """Read what `save_model` wrote, checking all of it."""
    with model_errors(path):
        data = read_tensor_file(path, max_bytes=_MAX_BYTES)
        header, tensors = parse_tensors(data, _FORMAT, _FORMAT_VERSION)
        preset = Preset.from_dict(header["preset"])
        banks = [
            _bank(options, tensors[f"filters.{number}"], header["eigenvalues"][number])
            for number, options in enumerate(preset.banks)
        ]
        facts = header["training"]
        if not isinstance(facts, dict):
            raise ValueError("what it says of its training is not a JSON object")
        known = header["calibration"]
        calibration = None if known is None else Calibration.from_dict(known, preset.verdict)
        network = _network(header["network"], tensors, trusted) if preset.network else None
        if network is not None and not trusted:  # of the package: no trial, which takes seconds
            # Traces of network and JPEG, region, and pasted side.
            n_traces = try_network(network.stages, network.facts) + N_JPEG_TRACES + 2
            traces = calibration and calibration.traces
            if traces and len(traces.within) != n_traces:
                raise ValueError(
                    f"it tells sides apart by {len(traces.within)} traces, and a photo has "
                    f"{n_traces}"
                )
        threshold = float(header["threshold"])
        localizer = SpliceLocalizer(preset, banks, threshold, calibration, facts, network)
        localizer.file_sha256 = hashlib.sha256(data).hexdigest()
        return localizer


def _bank(options: BankOptions, filters: Any, eigenvalues: Any) -> FilterBank:
    values = np.asarray(eigenvalues, dtype=np.float64)
    if filters.dtype != np.float32:
        raise ValueError(f"its filters are {filters.dtype}, not float32")
    for name, numbers in (("filters", filters), ("eigenvalues", values)):
        if not (np.abs(numbers) <= _MAX_NUMBER).all():
            raise ValueError(f"its {name} must be finite, within ±{_MAX_NUMBER:g}")
    return FilterBank(options, filters, values)


def _network(facts: Any, tensors: dict[str, Any], trusted: bool = False) -> TraceMeter:
    if not isinstance(facts, dict):
        raise ValueError("what it says of its network is not a JSON object")
    meter = TraceMeter({name: tensors[f"network.{name}"].tobytes() for name in STAGES}, facts)
    for name, graph in meter.stages.items():
        try:
            if not trusted:
                check_graph(graph)
        except ValueError as error:
            raise ValueError(f"the graph {name!r} of its network can't be used: {error}") from error
    return meter
