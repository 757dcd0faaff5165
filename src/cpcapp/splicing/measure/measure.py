"""What is seen in a photo, before anything is decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from cpcapp._io.threads import give_back_memory
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.measure.filters import BoundaryMap, combine_banks
from cpcapp.splicing.measure.jpeg_traces import jpeg_block_traces
from cpcapp.splicing.measure.mosaic import MosaicTrace, lattice_contrast, mosaic_trace
from cpcapp.splicing.measure.network import LearnedTraces, TraceMeter
from cpcapp.splicing.photo.jpeg import JpegGrid
from cpcapp.splicing.photo.pixels import FloatMap, as_unit_float
from cpcapp.splicing.photo.read import ReadImage


class Meters(Protocol):
    """What photos are measured with: a `cpcapp.splicing.SpliceLocalizer`."""

    preset: Any
    banks: Any  # of `FilterBank`
    network: TraceMeter | None


@dataclass(frozen=True)
class Measured:
    """What is seen in a photo.

    Attributes
    ----------
    image : ndarray of shape (height, width, 3), float32 in [0, 1]
    boundary : BoundaryMap
        Where a seam is likely: the network's map or, without one, that of filters and mosaic.
    mosaic : MosaicTrace or None
        None for a photo of a single row or column.
    grid : JpegGrid
    learned : LearnedTraces or None
        Its vectors are followed by the traces of JPEG blocks. None without a network.
    edges : ndarray of shape (height, width), float32 in [0, 1], or None
        A network needs none.
    """

    image: FloatMap = field(repr=False)
    boundary: BoundaryMap = field(repr=False)
    mosaic: MosaicTrace | None = field(repr=False)
    grid: JpegGrid = field(repr=False)
    learned: LearnedTraces | None = field(default=None, repr=False)
    edges: FloatMap | None = field(default=None, repr=False)


def measure(
    photo: ReadImage, meters: Meters, progress: Callable[[float], None] | None = None
) -> Measured:
    """Measure a photo; ``progress`` gets the share that the network has done."""
    # First what needs most memory.
    learned = None
    if meters.network is not None:
        learned = measure_traces(photo, meters.network, progress)
    give_back_memory()
    image, options = as_unit_float(photo.pixels), meters.preset.mosaic
    mosaic = mosaic_trace(image, options) if min(image.shape[:2]) >= 2 else None
    give_back_memory()
    if learned is not None:
        boundary = BoundaryMap(learned.seam_map(), 1.0)
        return Measured(image, boundary, mosaic, photo.grid, learned)
    edges = detect_edges(photo.pixels)
    boundary = filter_boundary(image, edges, meters, mosaic)
    return Measured(image, boundary, mosaic, photo.grid, edges=edges)


def filter_boundary(
    image: FloatMap, edges: FloatMap, meters: Meters, mosaic: MosaicTrace | None = None
) -> BoundaryMap:
    """Return the boundary map of filters and mosaic; all 0 if a photo is smaller than a patch."""
    preset, contrast = meters.preset, None
    if preset.mosaic_contrast:
        contrast = lattice_contrast(image, mosaic, preset.mosaic)
        contrast += np.float32(preset.mosaic_offset)
    return combine_banks(
        image, edges, meters.banks, side_contrast=contrast, smoothing=preset.smoothing
    )


def measure_traces(
    photo: ReadImage, network: TraceMeter, progress: Callable[[float], None] | None
) -> LearnedTraces:
    """Return the traces of network and JPEG."""
    table, offset, _ = photo.grid
    learned = network.measure(photo.pixels, table, offset, progress=progress)
    blocks = jpeg_block_traces(photo.pixels, table, offset)
    return replace(learned, vectors=np.concatenate([learned.vectors, blocks], axis=2))
