"""The splice localizer: from a photo to maps of where it was spliced, and a verdict.

It composes the rooms and holds no algorithm: photos → traces → boundary → regions → verdicts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import give_back_memory, shared_cores, spare_threads
from cpcapp.splicing.decide.calibration import Calibration
from cpcapp.splicing.decide.features import PhotoFeatures
from cpcapp.splicing.decide.hot_spots import benjamini_hochberg, upsample_patches
from cpcapp.splicing.decide.region import MIN_REGION_SIDE, find_region
from cpcapp.splicing.decide.verdict_options import VerdictOptions
from cpcapp.splicing.decide.words import Verdict, VerdictCode, find_verdict
from cpcapp.splicing.measure.boundary import BoundaryMap, FilterBank, combine_banks
from cpcapp.splicing.measure.edges import detect_edges
from cpcapp.splicing.measure.jpeg_blocks import jpeg_block_traces
from cpcapp.splicing.measure.mosaic import (
    MosaicTrace,
    lattice_contrast,
    mosaic_levels,
    mosaic_trace,
)
from cpcapp.splicing.measure.network import LearnedTraces, TraceMeter
from cpcapp.splicing.photo.jpeg import luminance
from cpcapp.splicing.photo.jpeg_grid import estimate_quality, grid_offset
from cpcapp.splicing.photo.pixels import BoolArray, FloatArray, FloatMap, as_unit_float
from cpcapp.splicing.photo.read import ReadImage, read_image
from cpcapp.splicing.presets import Preset

# Of the time that a photo takes, for progress.
_NETWORK_SHARE = 0.75


@dataclass(frozen=True)
class Localization:
    """Where a photo was spliced.

    Attributes
    ----------
    boundary : ndarray of shape (height, width), float32 in [0, 1]
        Bright where the seam is likely.
    edges : ndarray of shape (height, width), float32 in [0, 1]
        All edges, seam or not.
    region : ndarray of shape (height, width), float32 in [0, 1], or None
        Above a half where the photo is likely to come from elsewhere, whatever the verdict: of a
        genuine photo too. None if the model finds none: cPCA++ without a calibration.
    score : float or None
        How much speaks for a splice, on one scale for all photos.
    p_value : float or None
        How often a genuine photo scores this high. None if there is nothing to compare with.
    side_rule : {"network", "smaller"} or None
        What told which of the two sides of the seam was pasted: the traces, or that it is the
        smaller one. None if there is no region.
    patch_p_values : ndarray of shape (ceil(height / 8), ceil(width / 8)), float64, or None
        The same for each square of 8 x 8 pixels.
    jpeg_quality : int or None
        By the tables of the file or, without a file, estimated from the pixels. None if no
        compression shows.
    calibrated : bool
        Whether the model has learned to judge photos.
    notes : tuple of str
        What was done to the photo when it was read.
    seconds : float
        Time taken, reading included.
    options : VerdictOptions
        How the photo was judged.
    threshold : float
        Of the model, on the boundary map: what reaches it is outlined in pictures.
    pixels : ndarray of shape (height, width, 3), uint8 or uint16, or None
        The photo, to draw on. Not a copy: of an array it is the array that was given.
    """

    boundary: FloatMap = field(repr=False)
    edges: FloatMap = field(repr=False)
    region: FloatMap | None = field(default=None, repr=False)
    side_rule: str | None = None
    score: float | None = None
    p_value: float | None = None
    patch_p_values: FloatArray | None = field(default=None, repr=False)
    jpeg_quality: int | None = None
    calibrated: bool = False
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    options: VerdictOptions = field(default_factory=VerdictOptions, repr=False)
    threshold: float = 0.5
    pixels: NDArray[Any] | None = field(default=None, repr=False)

    @cached_property
    def mask(self) -> BoolArray | None:
        """The region as a mask, (height, width); None if there is no region map.

        True nowhere if the verdict is neither "signs of splicing" nor "weak signs of splicing":
        what is shown to people never contradicts the words. `region` is there whatever they say.
        """
        if self.region is None:
            return None
        return (self.region > 0.5) & self._judgement.shows_region

    @cached_property
    def p_map(self) -> FloatMap | None:
        """The squares' p-values as a map, (height, width), float32; None if there are none."""
        if self.patch_p_values is None:
            return None
        values = self.patch_p_values.astype(np.float32)
        return upsample_patches(values, self.edges.shape, self.options.patch_size)

    @cached_property
    def hot_spots(self) -> BoolArray | None:
        """Squares that are significant after correcting for multiple testing.

        (height, width), bool; None if there are no p-values. On average at most one in twenty of
        them is false. Like `mask`, it is True nowhere if the verdict is that no signs were found;
        `p_map` is there whatever the verdict.
        """
        if self.patch_p_values is None:
            return None
        chosen = benjamini_hochberg(self.patch_p_values).astype(np.uint8)
        shown = upsample_patches(chosen, self.edges.shape, self.options.patch_size) > 0
        return shown & (self.verdict_code != "none")

    @property
    def verdict(self) -> str:
        """What there is to say of the photo, in words; see `cpcapp.splicing.decide.words`."""
        return self._judgement.text

    @property
    def verdict_code(self) -> VerdictCode:
        """The same for programs: ``"signs"``, ``"weak"``, ``"none"`` or ``"unknown"``."""
        return self._judgement.code

    def plot(self) -> Any:
        """Draw the photo, the likely seam and the likely part beside each other.

        The part is drawn only if there are signs, strong or weak.

        Returns
        -------
        matplotlib Figure

        Raises
        ------
        ImportError
            Without matplotlib, which the extra ``plot`` installs.
        ValueError
            If there are no ``pixels``.

        Examples
        --------
        >>> from cpcapp.splicing import load_model
        >>> from cpcapp.splicing.examples import example_photos
        >>> found = load_model("filters").localize(example_photos()[1].photo)
        >>> [axes.get_title() for axes in found.plot().axes]
        ['the photo', 'the likely seam', 'the likely part']
        """
        return _notebook().plot_localization(self)

    def save(self, folder: str | os.PathLike[str], *, name: str = "photo") -> list[Path]:
        """Write the pictures of ``cpcapp localize`` to a folder.

        They are the overlay, the boundary map and, of a calibrated model, region and hot spots.
        Files of these names are replaced. For a JSON file and a report, use
        `cpcapp.splicing.localize_files`.

        Parameters
        ----------
        folder : path
            Made if it is not there.
        name : str, default="photo"
            What the names of the files begin with.

        Returns
        -------
        list of Path

        Raises
        ------
        ValueError
            If there are no ``pixels``, or the name has a folder in it.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> flat = np.zeros((80, 90), dtype=np.float32)
        >>> found = Localization(flat, flat, pixels=np.zeros((80, 90, 3), dtype=np.uint8))
        >>> [path.name for path in found.save(tempfile.mkdtemp(), name="black")]
        ['black.overlay.png', 'black.boundary.png']
        """
        return _notebook().save_localization(self, folder, name)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str | None:
        """Show the photo with the likely seam, and the verdict, in a notebook."""
        return _notebook().localization_html(self)  # type: ignore[no-any-return]

    def _repr_png_(self) -> bytes | None:
        return _notebook().localization_png(self)  # type: ignore[no-any-return]

    @property
    def _judgement(self) -> Verdict:
        quality = self.jpeg_quality
        return find_verdict(
            self.p_value,
            self.edges.shape,
            calibrated=self.calibrated,
            too_compressed=quality is not None and quality < self.options.min_quality,
        )


def _notebook() -> Any:
    """Return what draws results; by name, since it is made of results."""
    return import_module("cpcapp.splicing.output.notebook")


class PhotoTraces(NamedTuple):
    """What the history of a photo left in it.

    Attributes
    ----------
    mosaic : MosaicTrace or None
        None for a photo of a single row or column.
    learned : LearnedTraces or None
        Its vectors are followed by the traces of JPEG blocks. None for a model without a network.
    """

    mosaic: MosaicTrace | None
    learned: LearnedTraces | None


class SpliceLocalizer:
    """Finds the seam in a spliced photo.

    Made by `cpcapp.splicing.train_localizer` or read from a file by `cpcapp.splicing.load_model`.

    Parameters
    ----------
    preset : Preset
    banks : sequence of FilterBank
        One for each of the preset's.
    threshold : float, default=0.5
        On the boundary map, chosen on training photos.
    calibration : Calibration, optional
        Without it there is a boundary, but no region and no verdict.
    facts : dict, optional
        What is known of the training, in types that JSON knows.
    network : TraceMeter, optional
        Measures learned traces; needed if the preset has a network.

    Attributes
    ----------
    file_sha256 : str or None
        SHA-256 of the file that `load_model` read it from, byte by byte. None if it comes from
        elsewhere.
    device : str or None
        Where its filters and its network run, if `cpcapp.splicing.devices.localizer.to_device`
        moved them.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing import load_model
    >>> photo = np.random.default_rng(0).integers(90, 100, (80, 100, 3), dtype=np.uint8)
    >>> found = load_model("filters").localize(photo)
    >>> found.boundary.shape, found.boundary.dtype
    ((80, 100), dtype('float32'))
    """

    file_sha256: str | None = None
    device: str | None = None

    def __init__(
        self,
        preset: Preset,
        banks: Sequence[FilterBank],
        threshold: float = 0.5,
        calibration: Calibration | None = None,
        facts: dict[str, Any] | None = None,
        network: TraceMeter | None = None,
    ) -> None:
        if tuple(bank.options for bank in banks) != preset.banks:
            raise ValueError("banks do not belong to the preset: their options differ")
        if preset.network != (network is not None):
            raise ValueError(f"network={network} does not fit preset.network={preset.network}")
        n_tables = 2 if preset.network else 1
        if calibration is not None and len(calibration.evidence.tables) != n_tables:
            raise ValueError(
                f"calibration has {len(calibration.evidence.tables)} tables of evidence; with "
                f"preset.network={preset.network} it must have {n_tables}"
            )
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"threshold={threshold} must be in [0, 1]")
        self.preset = preset
        self.banks = tuple(banks)
        self.threshold = float(threshold)
        self.calibration = calibration
        self.facts = dict(facts or {})
        self.network = network

    def __repr__(self) -> str:
        return f"SpliceLocalizer(preset={self.name!r}, banks={len(self.banks)})"

    @property
    def name(self) -> str:
        """Name of the preset."""
        return self.preset.name

    @property
    def version(self) -> str:
        """Version of cpcapp that trained it."""
        return str(self.facts.get("cpcapp", "unknown"))

    def localize(
        self, image: Any, *, progress: Callable[[float], None] | None = None
    ) -> Localization:
        """Show where a photo was spliced.

        Parameters
        ----------
        image : path, bytes, PIL image, array of shape (height, width, 3), or ReadImage
            Of an array nobody knows how it was compressed: give the file where there is one.
        progress : callable, optional
            Called with the share done, from 0 to 1.

        Returns
        -------
        Localization

        Raises
        ------
        ImageError
            If the file can't be read as a photo.
        """
        start = time.perf_counter()
        read = image if isinstance(image, ReadImage) else read_image(image)
        notes = read.notes
        if min(read.pixels.shape[:2]) < self.preset.min_side:
            size = self.preset.min_side
            notes = (*notes, f"smaller than a patch of {size} pixels: no seam is seen")
        report = None if progress is None else lambda share: progress(_NETWORK_SHARE * share)
        edges, learned = self._find_edges_and_learned(read, report)
        give_back_memory()
        pixels = as_unit_float(read.pixels)
        traces = PhotoTraces(self._measure_mosaic(pixels), learned)
        give_back_memory()
        boundary = self.filter_boundary(pixels, edges, traces.mosaic)
        quality = read.jpeg_quality
        found = Localization(
            boundary.map,
            edges,
            jpeg_quality=estimate_quality(pixels) if quality is None else quality,
            notes=notes,
            options=self.preset.verdict,
            threshold=self.threshold,
            pixels=read.pixels,
        )
        if self.calibration is not None:
            found = self._judge(found, pixels, boundary, traces, self.calibration)
        if progress is not None:
            progress(1.0)
        return replace(found, seconds=time.perf_counter() - start)

    def measure_traces(self, photo: ReadImage, image: FloatMap) -> PhotoTraces:
        """Measure what the history of a photo left in it.

        Parameters
        ----------
        photo : ReadImage
        image : ndarray of shape (height, width, 3), float32 in [0, 1]
            Its pixels.
        """
        mosaic = self._measure_mosaic(image)
        if self.network is None:
            return PhotoTraces(mosaic, None)
        grid = _find_grid(photo)
        learned = self.network.measure(photo.pixels, *grid)
        return PhotoTraces(mosaic, _append(learned, jpeg_block_traces(photo.pixels, *grid)))

    def _find_edges_and_learned(
        self, photo: ReadImage, progress: Callable[[float], None] | None
    ) -> tuple[FloatMap, LearnedTraces | None]:
        if self.network is None:
            return detect_edges(as_unit_float(photo.pixels)), None
        grid = _find_grid(photo)
        measure = partial(self.network.measure, photo.pixels, *grid, progress=progress)

        def others() -> tuple[FloatMap, FloatMap]:
            blocks = jpeg_block_traces(photo.pixels, *grid)
            return blocks, detect_edges(as_unit_float(photo.pixels))

        if self.device is not None or spare_threads() == 1:
            # The network first: it needs most memory, and none of what the others make.
            learned = measure()
            give_back_memory()
            blocks, edges = others()
            return edges, _append(learned, blocks)
        # Neither fills two cores on its own. Blocks are compared when edges need no memory any
        # more.
        with shared_cores(2), ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(others)

            def wait() -> None:
                under_way.result()
                give_back_memory()

            learned = measure(after_pixels=wait)
            blocks, edges = under_way.result()
        return edges, _append(learned, blocks)

    def _measure_mosaic(self, image: FloatMap) -> MosaicTrace | None:
        return mosaic_trace(image, self.preset.mosaic) if min(image.shape[:2]) >= 2 else None

    def filter_boundary(
        self, image: FloatMap, edges: FloatMap, trace: MosaicTrace | None = None
    ) -> BoundaryMap:
        """Return the boundary map of filters and traces, before a region is sought.

        `Localization.boundary` is this map emphasised along the border of the region.

        Parameters
        ----------
        image : ndarray of shape (height, width, 3), float32 in [0, 1]
        edges : ndarray of shape (height, width), float32 in [0, 1]
        trace : MosaicTrace, optional
            Of the photo, if it was measured already.

        Returns
        -------
        BoundaryMap
            All 0 for a photo that is smaller than a patch.
        """
        contrast = None
        if self.preset.mosaic_contrast:
            contrast = lattice_contrast(image, trace, self.preset.mosaic)
            contrast += np.float32(self.preset.mosaic_offset)
        return combine_banks(
            image, edges, self.banks, side_contrast=contrast, smoothing=self.preset.smoothing
        )

    def measure_features(
        self, image: FloatMap, boundary: BoundaryMap, traces: PhotoTraces
    ) -> tuple[PhotoFeatures, FloatMap]:
        """Return what a photo is judged by, and the strengths of its squares."""
        levels = mosaic_levels(traces.mosaic, self.preset.mosaic)
        return PhotoFeatures.measure(image, boundary, levels, self.preset.verdict, traces.learned)

    def _judge(
        self,
        found: Localization,
        image: FloatMap,
        boundary: BoundaryMap,
        traces: PhotoTraces,
        calibration: Calibration,
    ) -> Localization:
        """Add the region and the verdict."""
        region = find_region(
            image,
            boundary,
            traces.mosaic,
            calibration.evidence,
            self.preset.regions,
            learned=traces.learned,
            contrast=calibration.sides,
        )
        if min(image.shape[:2]) < MIN_REGION_SIDE:
            return replace(found, region=region.map, calibrated=calibration.can_judge)
        judgement = calibration.judge(*self.measure_features(image, boundary, traces))
        return replace(
            found,
            boundary=region.boundary if self.preset.mosaic_contrast else found.boundary,
            region=region.map,
            side_rule=region.side_rule,
            score=judgement.score,
            p_value=judgement.p_value,
            patch_p_values=judgement.patch_p_values,
            calibrated=calibration.can_judge,
        )


def _find_grid(photo: ReadImage) -> tuple[NDArray[Any] | None, tuple[int, int]]:
    """Return the table of a JPEG file, if it is one, and where its blocks begin."""
    if photo.jpeg_table is not None:
        return photo.jpeg_table, photo.jpeg_offset
    return None, grid_offset(luminance(photo.pixels)) or (0, 0)


def _append(learned: LearnedTraces, blocks: FloatMap) -> LearnedTraces:
    """Return learned traces whose vectors are followed by traces of JPEG blocks."""
    return replace(learned, vectors=np.concatenate([learned.vectors, blocks], axis=2))


@runtime_checkable
class SavesItself(Protocol):
    """A localizer of another kind, with a file format of its own."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file."""
        ...
