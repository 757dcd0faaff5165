"""What is seen in a photo, before anything is decided; `decide.measure_features` adds facts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from cpcapp._io.threads import give_back_memory, shared_cores, spare_threads
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
    edges : ndarray of shape (height, width), float32 in [0, 1]
    mosaic : MosaicTrace or None
        None for a photo of a single row or column.
    learned : LearnedTraces or None
        Its vectors are followed by the traces of JPEG blocks. None without a network.
    boundary : BoundaryMap
        Of filters and mosaic.
    grid : JpegGrid
    """

    image: FloatMap = field(repr=False)
    edges: FloatMap = field(repr=False)
    mosaic: MosaicTrace | None = field(repr=False)
    learned: LearnedTraces | None = field(repr=False)
    boundary: BoundaryMap = field(repr=False)
    grid: JpegGrid = field(repr=False)


def measure(
    photo: ReadImage, meters: Meters, progress: Callable[[float], None] | None = None
) -> Measured:
    """Measure a photo; ``progress`` gets the share that the network has done."""
    edges, learned = _measure_edges_and_network(photo, meters, progress)
    give_back_memory()
    image, options = as_unit_float(photo.pixels), meters.preset.mosaic
    mosaic = mosaic_trace(image, options) if min(image.shape[:2]) >= 2 else None
    give_back_memory()
    boundary = filter_boundary(image, edges, meters, mosaic)
    return Measured(image, edges, mosaic, learned, boundary, photo.grid)


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


def _measure_edges_and_network(
    photo: ReadImage, meters: Meters, progress: Callable[[float], None] | None
) -> tuple[FloatMap, LearnedTraces | None]:
    if meters.network is None:
        return detect_edges(photo.pixels), None
    table, offset, _ = photo.grid
    network = partial(meters.network.measure, photo.pixels, table, offset, progress=progress)

    def others() -> tuple[FloatMap, FloatMap]:
        blocks = jpeg_block_traces(photo.pixels, table, offset)
        return blocks, detect_edges(photo.pixels)

    if spare_threads() == 1:
        # The network first: it needs most memory, and none of what the others make.
        learned = network()
        give_back_memory()
        blocks, edges = others()
    else:
        # Neither fills two cores on its own. Blocks are compared when edges need no memory any
        # more.
        with shared_cores(2), ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(others)

            def wait() -> None:
                under_way.result()
                give_back_memory()

            learned = network(after_pixels=wait)
            blocks, edges = under_way.result()
    vectors = np.concatenate([learned.vectors, blocks], axis=2)
    return edges, replace(learned, vectors=vectors)
