"""Filters and traces to one boundary map: bright where the seam is likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.threads import map_threads, spare_threads
from cpcapp.splicing.measure.channels import CHANNELS, PhotoPlanes
from cpcapp.splicing.measure.patches import WINDOWS, PatchGrid
from cpcapp.splicing.photo.pixels import FloatMap

WEIGHTS = ("none", "excess")
SCALINGS = ("background", "unit")
# Flat patches have no variance to divide by; a quarter of a grey level is below any noise.
FLAT_VARIANCE = 1e-6


class BoundaryMap(NamedTuple):
    """A boundary map and what it was divided by.

    Attributes
    ----------
    map : ndarray of shape (height, width), float32 in [0, 1]
    scale : float
        In units that are the same for all photos.
    """

    map: FloatMap
    scale: float


@dataclass(frozen=True)
class BankOptions:
    """One set of filters and how its output becomes a map.

    Attributes
    ----------
    channels : {"rgb", "laplacian", "error-level"}
        What patches are cut from.
    size : int
        Side of a patch, the paper's ``n``.
    stride : int
        Distance of neighbouring patches when localizing.
    n_filters : int
        The paper's ``K``.
    scaling : {"background", "unit"}
        Of the filters; see `cpcapp.solve_contrast`.
    weights : {"none", "excess"}
        ``"none"``: the output power ``Σ yᵢ²``, as in the paper. ``"excess"``: ``Σ (1 - 1/λᵢ)yᵢ²``,
        the part of the log-likelihood ratio that these filters see.
    variance_exponent : float
        The power is divided by the patch's variance to this power: 0 as in the paper, 1 makes
        it free of contrast.
    window : {"uniform", "gaussian"}
        How overlapping patches are averaged.
    exponent : float
        Exponent with which this map enters the product of all.
    """

    channels: str = "rgb"
    size: int = 16
    stride: int = 4
    n_filters: int = 150
    scaling: str = "background"
    weights: str = "none"
    variance_exponent: float = 0.0
    window: str = "uniform"
    exponent: float = 1.0

    def __post_init__(self) -> None:
        for name, allowed in (
            ("channels", CHANNELS),
            ("weights", WEIGHTS),
            ("window", WINDOWS),
            ("scaling", SCALINGS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} must be one of {', '.join(allowed)}"
                )
        if not 2 <= self.size <= 64:
            raise ValueError(f"size={self.size} must be from 2 to 64")
        if not 1 <= self.stride <= self.size:
            raise ValueError(f"stride={self.stride} must be from 1 to size={self.size}")
        if not 1 <= self.n_filters <= self.n_features:
            raise ValueError(f"n_filters={self.n_filters} must be from 1 to {self.n_features}")
        if not (0.0 <= self.variance_exponent <= 2.0 and 0.0 < self.exponent <= 10.0):
            raise ValueError(
                f"variance_exponent={self.variance_exponent} must be in [0, 2], "
                f"exponent={self.exponent} in (0, 10]"
            )

    @property
    def n_features(self) -> int:
        """Length of a flattened patch, the paper's ``M = 3n²``."""
        return 3 * self.size**2


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
        planes = PhotoPlanes(image, options.channels)
        height, width = image.shape[:2]
        grid = PatchGrid(height, width, options.size, options.stride)
        filters = self._weighted_filters()
        # Fᵀ(z - mean) = Fᵀz - Fᵀmean: the patches need not be centred one by one.
        centre = (grid.mean(planes) @ filters).astype(np.float32)
        power, largest = np.empty(grid.shape, dtype=np.float32), 0.0
        variance = np.empty(grid.shape) if options.variance_exponent else None
        # In bands, so that no planes of the size of the photo are needed.
        for rows, band in grid.bands():
            strip = planes.strip(*band.at)
            largest = max(largest, float(strip.max()), -float(strip.min()))
            for some, patches in band.grid.cut(strip):
                output = patches @ filters
                output -= centre
                power[rows][some] = np.einsum("ij,ij->i", output, output).reshape(-1, grid.shape[1])
            if variance is not None:
                variance[rows] = band.grid.variance(strip)
        # Where all patches are the same, nothing but rounding is left.
        rounding = np.finfo(np.float32).eps * np.float32(largest) * np.abs(filters).sum(axis=0)
        power[power <= rounding @ rounding] = 0.0
        if variance is not None:
            variance += FLAT_VARIANCE
            power /= (variance**options.variance_exponent).astype(np.float32)
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

    def _weighted_filters(self) -> NDArray[np.float32]:
        if self.options.weights == "none":
            return self.filters
        excess = np.maximum(1.0 - 1.0 / np.maximum(self.eigenvalues, 1e-12), 0.0)
        return np.asarray(self.filters * np.sqrt(excess), dtype=np.float32)


def combine_banks(
    image: FloatMap,
    edges: FloatMap,
    banks: Sequence[FilterBank],
    *,
    side_contrast: FloatMap | None = None,
    smoothing: float = 0.0,
) -> BoundaryMap:
    """Return the product of edges, the maps of all banks, and the contrast of the two sides.

    ``side_contrast``: how differently the two sides of each pixel look; its square root is a
    factor.

    ``smoothing``: standard deviation of the Gaussian that smooths the product, in pixels; 0 for
    none.
    """
    if min(image.shape[:2]) < max(bank.options.size for bank in banks):
        return BoundaryMap(np.zeros(image.shape[:2], dtype=np.float32), 0.0)
    product, scale = edges.copy(), 1.0
    # Most steps of a bank take one core only. Those of a device have it to themselves.
    plain = all(type(bank) is FilterBank for bank in banks)
    jobs = min(spare_threads(), len(banks)) if plain else 1
    maps = map_threads(lambda bank: bank.map(image), banks, jobs=jobs)
    for bank, (found, largest) in zip(banks, maps, strict=True):
        scale *= largest**bank.options.exponent
        if bank.options.exponent != 1.0:
            np.power(found, np.float32(bank.options.exponent), out=found)
        product *= found
        del found
    if side_contrast is not None:
        for factor, contrast in zip(product, side_contrast, strict=True):
            factor *= np.sqrt(contrast)
    if smoothing:
        product = cv2.GaussianBlur(product, (0, 0), smoothing)
    if side_contrast is not None or smoothing:
        # Neither keeps the range of a product of maps in [0, 1]: scale it back.
        largest = float(product.max())
        if largest > 0.0:
            product /= np.float32(largest)
            scale *= largest
    return BoundaryMap(np.clip(product, 0.0, 1.0, out=product), scale)
