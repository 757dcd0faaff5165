"""MFCN and SFCN as localizers: from a photo to maps, and to and from a file. Needs torch."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from cpcapp import __version__
from cpcapp._io.tensor_file import Tensors, parse_tensors, read_tensor_file, write_tensors
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.networks.mfcn import MFCN, MFCNOptions, measure_coarse
from cpcapp.splicing.photo.jpeg import estimate_quality
from cpcapp.splicing.photo.pixels import BoolArray, FloatMap, as_bytes, as_unit_float
from cpcapp.splicing.photo.read import ReadImage, read_image
from cpcapp.splicing.result import Localization

#: Of both maps, as published.
THRESHOLD = 0.5
_FORMAT = "cpcapp-mfcn"
_FORMAT_VERSION = 1
# Those of the published sizes have 269 MB; a hostile file can't fill the memory.
_MAX_BYTES = 1 << 30


class MFCNLocalizer(SpliceLocalizer):
    """Localizes with MFCN or SFCN, and with nothing of cPCA++.

    It has neither filters nor a calibration: there are maps, and no verdict.

    ``facts``: what is known of the training, in types that JSON knows.

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


# -- maps --------------------------------------------------------------------------------------


class ProbabilityMaps(NamedTuple):
    """What a network says of one photo, from 0 to 1, (height, width); no edges of SFCN."""

    surface: FloatMap
    edges: FloatMap | None

    @property
    def boundary(self) -> FloatMap:
        """The edges; of SFCN, which has none, where the surface is near one half: 4 p (1 - p)."""
        if self.edges is not None:
            return self.edges
        return np.float32(4) * self.surface * (np.float32(1) - self.surface)

    @property
    def region(self) -> FloatMap:
        """The surface, of MFCN within its edges: see `refine_surface`."""
        return self.surface if self.edges is None else refine_surface(self.surface, self.edges)


def enlarge(coarse: NDArray[Any], height: int, width: int) -> ProbabilityMaps:
    """Return the probabilities of all pixels from the logits of squares.

    >>> maps = enlarge(np.zeros((2, 8, 4), np.float16), 60, 30)
    >>> maps.surface.shape, float(maps.edges.max())
    ((60, 30), 0.5)
    """
    rows, columns = coarse.shape[1:]
    maps = []
    for part in coarse:
        size = (8 * columns, 8 * rows)
        logits = cv2.resize(part.astype(np.float32), size, interpolation=cv2.INTER_LINEAR)
        # The hyperbolic tangent does not overflow.
        maps.append(np.float32(0.5) * (1 + np.tanh(logits[:height, :width] / 2)))
    return ProbabilityMaps(maps[0], maps[1] if len(maps) > 1 else None)


def fill_holes(marked: BoolArray) -> BoolArray:
    """Return what is marked, and all that it encloses.

    What can be reached from outside the map without crossing a mark stays out.

    >>> ring = np.array([[0, 1, 1, 1], [0, 1, 0, 1], [0, 1, 1, 1]], dtype=bool)
    >>> fill_holes(ring).astype(int).tolist()
    [[0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]]
    """
    plane = np.pad(marked.astype(np.uint8), 1)
    cv2.floodFill(plane, None, (0, 0), 2)  # type: ignore[call-overload]
    return np.asarray(plane[1:-1, 1:-1] != 2)


def refine_surface(surface: FloatMap, edges: FloatMap) -> FloatMap:
    """Keep of a surface what the edges enclose: the edge-enhanced inference of MFCN.

    The surface where edges are or enclose a pixel, else 0: above one half it is what both say.
    """
    return np.where(fill_holes(edges >= THRESHOLD), surface, np.float32(0))
