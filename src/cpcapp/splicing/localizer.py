"""The splice localizer: from a photo to a map of where it was spliced."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing._arrays import as_unit_float
from cpcapp.splicing.channels import planes_of
from cpcapp.splicing.edges import detect_edges
from cpcapp.splicing.images import ReadImage, read_image
from cpcapp.splicing.mosaic_trace import MosaicTrace, lattice_contrast, mosaic_trace
from cpcapp.splicing.patches import FloatMap, PatchGrid
from cpcapp.splicing.presets import BankOptions, Preset
from cpcapp.splicing.regions import LEAST_SIDE, Seam, find_region
from cpcapp.splicing.verdict import Calibration, Facts, blockiness, enlarged, significant, words

# Flat patches have no energy to divide by; a quarter of a grey level is below any noise.
_LEAST_VARIANCE = 1e-6
# Added to the contrast of mosaics: a photo without their trace is judged by its filters alone.
_LEAST_CONTRAST = 0.15


@dataclass(frozen=True)
class FilterBank:
    """Filters and the eigenvalues they belong to.

    Attributes
    ----------
    options : BankOptions
    filters : ndarray of shape (n_features, n_filters), float32
        The paper's ``F``.
    eigenvalues : ndarray of shape (n_filters,), float64
        Power at seams over power at authentic edges, descending.
    """

    options: BankOptions
    filters: NDArray[np.float32] = field(repr=False)
    eigenvalues: NDArray[np.float64] = field(repr=False)

    def __post_init__(self) -> None:
        wanted = (self.options.n_features, self.options.n_filters)
        if self.filters.shape != wanted or self.eigenvalues.shape != wanted[1:]:
            raise ValueError(
                f"filters of shape {self.filters.shape} with {self.eigenvalues.shape} eigenvalues "
                f"do not fit the options, which want {wanted}"
            )
        if not (np.isfinite(self.filters).all() and np.isfinite(self.eigenvalues).all()):
            raise ValueError("filters and eigenvalues must be finite")

    def power(self, image: FloatMap) -> tuple[PatchGrid, FloatMap]:
        """Return the output power ``v`` of every patch (Algorithm 2 of the paper, steps 1 to 3).

        Parameters
        ----------
        image : ndarray of shape (height, width, 3), float32 in [0, 1]

        Returns
        -------
        grid : PatchGrid
        power : ndarray of the grid's shape, float32
        """
        options = self.options
        planes = planes_of(image, options.channels)
        height, width = image.shape[:2]
        grid = PatchGrid(height, width, options.size, options.stride)
        filters = self._weighted()
        # Fᵀ(z - mean) = Fᵀz - Fᵀmean: the patches need not be centred one by one.
        centre = (grid.mean(planes) @ filters).astype(np.float32)
        power = np.empty(grid.shape, dtype=np.float32)
        for rows, patches in grid.cut(planes):
            output = patches @ filters
            output -= centre
            power[rows] = np.einsum("ij,ij->i", output, output).reshape(-1, grid.shape[1])
        # Where all patches are the same, nothing but rounding is left.
        largest = max(planes.max(), -planes.min())
        rounding = np.finfo(np.float32).eps * largest * np.abs(filters).sum(axis=0)
        power[power <= rounding @ rounding] = 0.0
        if options.energy:
            variance = grid.variance(planes) + _LEAST_VARIANCE
            power /= (variance**options.energy).astype(np.float32)
        return grid, power

    def map(self, image: FloatMap) -> tuple[FloatMap, float]:
        """Return ``w = v / max(v)``, averaged over overlapping patches, and ``max(v)``.

        Parameters
        ----------
        image : ndarray of shape (height, width, 3), float32 in [0, 1]

        Returns
        -------
        map : ndarray of shape (height, width), float32 in [0, 1]
        largest : float
            0 if there is no power at all.
        """
        grid, power = self.power(image)
        largest = float(power.max())
        if largest > 0.0:
            power /= np.float32(largest)
        return grid.put_back(power, window=self.options.window), largest

    def _weighted(self) -> NDArray[np.float32]:
        if self.options.weights == "none":
            return self.filters
        excess = np.maximum(1.0 - 1.0 / np.maximum(self.eigenvalues, 1e-12), 0.0)
        return np.asarray(self.filters * np.sqrt(excess), dtype=np.float32)


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
        Above a half where the photo is likely to come from elsewhere. None if the model has no
        calibration.
    score : float or None
        How much speaks for a splice, on one scale for all photos.
    p_value : float or None
        Of authentic photos, this share would score as high.
    patch_p_values : ndarray of shape (ceil(height / 8), ceil(width / 8)), float64, or None
        For each square of 8 x 8 pixels the share of such squares of authentic photos that look as
        much like a seam.
    compressed : float
        How much the edges of JPEG's blocks show; see `cpcapp.splicing.verdict.blockiness`.
    notes : tuple of str
        What was done to the photo when it was read.
    seconds : float
        Time taken, reading included.
    """

    boundary: FloatMap = field(repr=False)
    edges: FloatMap = field(repr=False)
    region: FloatMap | None = field(default=None, repr=False)
    score: float | None = None
    p_value: float | None = None
    patch_p_values: NDArray[np.float64] | None = field(default=None, repr=False)
    compressed: float = 1.0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def mask(self) -> NDArray[np.bool_] | None:
        """The region as a mask, (height, width); None if there is no region map."""
        return None if self.region is None else self.region > 0.5

    @property
    def p_map(self) -> FloatMap | None:
        """The squares' p-values as a map, (height, width), float32; None if there are none."""
        if self.patch_p_values is None:
            return None
        return enlarged(self.patch_p_values.astype(np.float32), self.edges.shape)

    @property
    def places(self) -> NDArray[np.bool_] | None:
        """Where the seam stands out, (height, width), bool; None if there are no p-values.

        So much that on average at most one in twenty such places is a false one: nowhere in most
        photos like the authentic ones it learned from.
        """
        if self.patch_p_values is None:
            return None
        chosen = significant(self.patch_p_values).astype(np.uint8)
        return enlarged(chosen, self.edges.shape) > 0

    @property
    def verdict(self) -> str:
        """What there is to say of the photo, in words; see `cpcapp.splicing.verdict`."""
        return words(self.p_value, self.edges.shape, self.compressed)


class SpliceLocalizer:
    """Finds the seam in a spliced photo.

    Made by `cpcapp.splicing.train_localizer` or read from a file by `cpcapp.splicing.load_model`.

    Parameters
    ----------
    preset : Preset
    banks : sequence of FilterBank
        One for each of the preset's.
    threshold : float
        On the boundary map, chosen on training photos.
    facts : dict, optional
        What is known of the training, in types that JSON knows.
    calibration : Calibration, optional
        Without it there is a boundary, but no region and no verdict.

    Examples
    --------
    >>> import numpy as np
    >>> from cpcapp.splicing import load_model
    >>> photo = np.random.default_rng(0).integers(90, 100, (80, 100, 3), dtype=np.uint8)
    >>> found = load_model().localize(photo)
    >>> found.boundary.shape, found.boundary.dtype
    ((80, 100), dtype('float32'))
    """

    def __init__(
        self,
        preset: Preset,
        banks: tuple[FilterBank, ...] | list[FilterBank],
        threshold: float,
        facts: dict[str, Any] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        if tuple(bank.options for bank in banks) != preset.banks:
            raise ValueError("banks do not belong to the preset: their options differ")
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"threshold={threshold} must be in [0, 1]")
        self.preset = preset
        self.banks = tuple(banks)
        self.threshold_ = float(threshold)
        self.facts = dict(facts or {})
        self.calibration = calibration

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

    def localize(self, image: Any) -> Localization:
        """Show where a photo was spliced.

        Parameters
        ----------
        image : path, bytes, PIL image, array of shape (height, width, 3), or ReadImage

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
        pixels = as_unit_float(read.pixels)
        edges = detect_edges(pixels)
        notes = read.notes
        if min(pixels.shape[:2]) < self._least_side:
            notes = (*notes, f"smaller than a patch of {self._least_side} pixels: no seam is seen")
        trace = mosaic_trace(pixels) if min(pixels.shape[:2]) >= 2 else None
        seam = self.seam(pixels, edges, trace)
        found = Localization(seam.map, edges, notes=notes, compressed=blockiness(pixels))
        if self.calibration is not None:
            found = self._judged(found, pixels, seam, trace, self.calibration)
        return replace(found, seconds=time.perf_counter() - start)

    def _judged(
        self,
        found: Localization,
        image: FloatMap,
        seam: Seam,
        trace: MosaicTrace | None,
        calibration: Calibration,
    ) -> Localization:
        """Add the region and what it says of the photo."""
        region = find_region(image, seam, trace, calibration.evidence)
        if min(image.shape[:2]) < LEAST_SIDE:
            return replace(found, region=region.map)
        facts = Facts.of(image, seam, trace)
        return replace(
            found,
            boundary=region.boundary if self.preset.sides else found.boundary,
            region=region.map,
            score=calibration.score(facts),
            p_value=calibration.p_value(facts),
            patch_p_values=calibration.patch_p_values(seam, facts),
        )

    def boundary(self, image: FloatMap, edges: FloatMap) -> FloatMap:
        """Return the boundary map of the filters, given the edges.

        Parameters
        ----------
        image : ndarray of shape (height, width, 3), float32 in [0, 1]
        edges : ndarray of shape (height, width), float32 in [0, 1]

        Returns
        -------
        ndarray of shape (height, width), float32 in [0, 1]
            All 0 for a photo that is smaller than a patch.
        """
        return self.seam(image, edges).map

    def seam(self, image: FloatMap, edges: FloatMap, trace: MosaicTrace | None = None) -> Seam:
        """Return the boundary map of the filters and what it was divided by.

        Parameters
        ----------
        image : ndarray of shape (height, width, 3), float32 in [0, 1]
        edges : ndarray of shape (height, width), float32 in [0, 1]
        trace : MosaicTrace, optional
            Of the photo, if it was measured already.

        Returns
        -------
        Seam
        """
        if min(image.shape[:2]) < self._least_side:
            return Seam(np.zeros(image.shape[:2], dtype=np.float32), 0.0)
        product, scale = edges.copy(), 1.0
        for bank in self.banks:
            found, largest = bank.map(image)
            scale *= largest**bank.options.share
            if bank.options.share != 1.0:
                np.power(found, np.float32(bank.options.share), out=found)
            product *= found
        if self.preset.sides:
            contrast = lattice_contrast(image, trace)
            contrast += np.float32(_LEAST_CONTRAST)
            product *= np.sqrt(contrast, out=contrast)
        if self.preset.smoothing:
            product = cv2.GaussianBlur(product, (0, 0), self.preset.smoothing)
        if self.preset.sides or self.preset.smoothing:
            # Neither keeps the range of a product of maps in [0, 1]: give it back.
            largest = float(product.max())
            if largest > 0.0:
                product /= np.float32(largest)
                scale *= largest
        return Seam(np.clip(product, 0.0, 1.0, out=product), scale)

    @property
    def _least_side(self) -> int:
        return max(bank.options.size for bank in self.banks)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the localizer to a file; see `cpcapp.splicing.load_model`."""
        from cpcapp.splicing._model_file import write_model

        write_model(self, path)


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
        If the file is damaged or is something else.

    Examples
    --------
    >>> load_model().name
    'default'
    """
    from cpcapp.splicing._model_file import read_model

    if path is not None:
        return read_model(path)
    with as_file(files("cpcapp.splicing.models") / "default.safetensors") as shipped:
        return read_model(shipped)
