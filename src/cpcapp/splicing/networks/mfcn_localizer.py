"""MFCN and SFCN as localizers: from a photo to maps, and to and from a file. Needs torch."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cpcapp import __version__
from cpcapp._io.tensor_file import Tensors, parse_tensors, read_tensor_file, write_tensors
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.networks.mfcn import MFCN, MFCNOptions, measure_coarse
from cpcapp.splicing.networks.mfcn_maps import THRESHOLD, enlarge
from cpcapp.splicing.photo.jpeg import estimate_quality
from cpcapp.splicing.photo.pixels import as_bytes, as_unit_float
from cpcapp.splicing.photo.read import ReadImage, read_image
from cpcapp.splicing.result import Localization

_FORMAT = "cpcapp-mfcn"
_FORMAT_VERSION = 1
# Those of the published sizes have 269 MB; a hostile file can't fill the memory.
_MAX_BYTES = 1 << 30


class MFCNLocalizer(SpliceLocalizer):
    """Localizes with MFCN or SFCN, and with nothing of cPCA++.

    It has neither filters nor a calibration: there are maps, and no verdict.

    Parameters
    ----------
    mfcn : MFCN
    facts : dict, optional
        What is known of the training, in types that JSON knows.

    Examples
    --------
    >>> tiny = MFCN(MFCNOptions(widths=(2, 2, 4, 4, 4), top=4, window=3))
    >>> found = MFCNLocalizer(tiny).localize(np.zeros((80, 90, 3), np.uint8))
    >>> found.boundary.shape, found.region.shape, found.p_value
    ((80, 90), (80, 90), None)
    >>> found.verdict
    "can't tell (the model has not learned to judge)"
    """

    def __init__(self, mfcn: MFCN, facts: dict[str, Any] | None = None) -> None:
        self.mfcn = mfcn.eval().requires_grad_(False)
        self.facts = dict(facts or {})
        self.threshold = THRESHOLD
        self.banks = ()
        self.calibration = None
        self.network = None

    def __repr__(self) -> str:
        return f"MFCNLocalizer({self.name!r})"

    @property
    def name(self) -> str:
        """``"mfcn"`` or ``"sfcn"``."""
        return "mfcn" if self.mfcn.options.edges else "sfcn"

    def localize(
        self, image: Any, *, progress: Callable[[float], None] | None = None
    ) -> Localization:
        """Show where a photo was spliced.

        Of MFCN ``boundary`` is the map of edges and ``region`` the surface within them. SFCN has no
        edges: ``boundary`` is where its surface is near one half, ``4 p (1 - p)``.
        """
        start = time.perf_counter()
        read = image if isinstance(image, ReadImage) else read_image(image)
        maps = enlarge(
            np.nan_to_num(measure_coarse(self.mfcn, as_bytes(read.pixels), progress)),
            *read.pixels.shape[:2],
        )
        pixels = as_unit_float(read.pixels)
        quality = read.jpeg_quality
        return Localization(
            maps.boundary,
            detect_edges(pixels),
            region=maps.region,
            jpeg_quality=quality or estimate_quality(pixels, read.grid.offset),
            notes=read.notes,
            threshold=self.threshold,
            pixels=read.pixels,
            seconds=time.perf_counter() - start,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, which commands read with ``--model``: weights in 16 bits."""
        header = {
            "options": self.mfcn.options.to_dict(),
            "training": {"cpcapp": __version__, **self.facts},
        }
        state = {name: value.cpu().numpy() for name, value in _weights(self.mfcn).items()}
        tensors = {
            name: value.astype(np.float16) if value.ndim == 4 else value
            for name, value in state.items()
        }
        write_tensors(path, tensors, header, _FORMAT, _FORMAT_VERSION)


def read_localizer(path: str | os.PathLike[str]) -> MFCNLocalizer:
    """Read what `MFCNLocalizer.save` wrote, checking all of it."""
    data = read_tensor_file(path, max_bytes=_MAX_BYTES)
    header, tensors = parse_tensors(data, _FORMAT, _FORMAT_VERSION)
    facts = header["training"]
    if not isinstance(facts, dict) or not isinstance(header["options"], dict):
        raise ValueError("what it says of its sizes and its training is not a JSON object")
    options = MFCNOptions.from_dict(header["options"])
    # Without memory: a file may claim any sizes.
    with torch.device("meta"):
        network = MFCN(options)
    state = {
        name: torch.from_numpy(_check(tensors, name, tuple(wanted.shape)))
        for name, wanted in _weights(network).items()
    }
    if len(tensors) != len(state):
        raise ValueError(f"it has {len(tensors)} tensors, and its sizes want {len(state)}")
    unused = {name: torch.tensor(0) for name in network.state_dict() if name not in state}
    network.load_state_dict(state | unused, assign=True)
    _try(network)
    localizer = MFCNLocalizer(network, facts)
    # So commands know it as the model of this file.
    localizer.device = "cpu"
    localizer.file_sha256 = hashlib.sha256(data).hexdigest()
    return localizer


def _weights(network: MFCN) -> dict[str, torch.Tensor]:
    """Return all tensors but the counts of batches, which nothing is computed with."""
    return {name: value for name, value in network.state_dict().items() if value.ndim}


def _check(tensors: Tensors, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    found = tensors[name]
    if found.shape != shape:
        raise ValueError(f"its {name} has the shape {found.shape}, and its sizes want {shape}")
    if found.dtype not in (np.float16, np.float32):
        raise ValueError(f"its {name} is {found.dtype}, not float16 or float32")
    if not np.isfinite(found).all() or (name.endswith("running_var") and found.min() < 0):
        raise ValueError(f"its {name} must be finite, and a variance must not be negative")
    return found.astype(np.float32)


def _try(network: MFCN) -> None:
    """Raise unless a photo gives finite numbers."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    if not np.isfinite(measure_coarse(network, noise)).all():
        raise ValueError("it gives no finite numbers for a photo of noise")
