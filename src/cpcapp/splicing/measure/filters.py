"""Filters: patches of a photo, the power that filters put out on them, and the boundary map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp._io.ranges import check_ranges, ranged
from cpcapp._io.threads import map_threads, spare_threads
from cpcapp.splicing.photo.jpeg import recompress
from cpcapp.splicing.photo.pixels import FloatMap, as_unit_float

_CHOICES = {
    "channels": ("error-level", "rgb"),
    "weights": ("none", "excess"),
    "window": ("uniform", "gaussian"),
}
# As error level analysis is mostly done.
_ERROR_LEVEL_QUALITY = 90
# The next three were set by hand for speed; the map does not depend on them.
_ROWS_IN_CACHE = 64
_ROWS_PER_STRIP = 128
_PATCHES_PER_BAND = 8192
# Added to variances: flat patches have none to divide by. A quarter of a grey level, squared, is
# below any noise.
_FLAT_VARIANCE = 1e-6


class PhotoPlanes:
    """The channels of a photo as separate planes, of which strips are made when asked for.

    ``"rgb"``: the colours as they are, which is the paper's choice. ``"error-level"``: what JPEG at
    quality 90 removes: parts that were compressed before lose less.
    """

    def __init__(self, image: FloatMap, channels: str) -> None:
        self._image = np.ascontiguousarray(image)
        self._compressed: NDArray[np.uint8] | None = None
        if channels == "error-level":
            pixels = np.empty(image.shape, dtype=np.uint8)
            for first in range(0, len(image), _ROWS_IN_CACHE):
                rows = slice(first, first + _ROWS_IN_CACHE)
                pixels[rows] = np.rint(image[rows] * np.float32(255.0))
            self._compressed = recompress(pixels, _ERROR_LEVEL_QUALITY)

    def strip(self, first: int, last: int) -> FloatMap:
        """Return some rows of all planes, (3, last - first, width)."""
        planes = np.empty((3, last - first, self._image.shape[1]), dtype=np.float32)
        for top in range(first, last, _ROWS_IN_CACHE):
            rows = slice(top, min(top + _ROWS_IN_CACHE, last))
            values = self._image[rows]
            if self._compressed is not None:
                values = values - as_unit_float(self._compressed[rows])
            for number, plane in enumerate(planes):
                plane[rows.start - first : rows.stop - first] = cv2.extractChannel(values, number)
        return planes


def image_planes(image: FloatMap, channels: str) -> FloatMap:
    """Return the channels of a photo as separate planes, (3, height, width)."""
    return PhotoPlanes(image, channels).strip(0, len(image))


def starts(length: int, size: int, stride: int) -> NDArray[np.intp]:
    """Return where patches begin along a side, so that the whole side is covered.

    >>> starts(30, size=16, stride=4)
    array([ 0,  4,  8, 12, 14])
    """
    regular = np.arange(0, length - size + 1, stride)
    return regular if regular[-1] == length - size else np.append(regular, length - size)


@dataclass(frozen=True)
class PatchGrid:
    """Overlapping square patches that cover a photo; the last ones lie flush with the border.

    >>> PatchGrid(20, 24, size=16, stride=4).shape
    (2, 3)
    """

    height: int
    width: int
    size: int
    stride: int

    def __post_init__(self) -> None:
        if min(self.height, self.width) < self.size:
            raise ValueError(
                f"a photo of {self.width}x{self.height} pixels is smaller than a patch of "
                f"{self.size}x{self.size}"
            )

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        """First pixel row of each row of patches."""
        return starts(self.height, self.size, self.stride)

    @cached_property
    def cols(self) -> NDArray[np.intp]:
        """First pixel column of each column of patches."""
        return starts(self.width, self.size, self.stride)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of patches down and across."""
        return len(self.rows), len(self.cols)

    def bands(self) -> Iterator[tuple[NDArray[np.intp], slice, tuple[int, int]]]:
        """Yield rows of patches that are cut together.

        Where they begin in the strip of pixels that they cover, which rows of the grid they are,
        and the first row of pixels of the strip with the one after its last.
        """
        together = self._rows_per_band
        for first in range(0, len(self.rows), together):
            band = self.rows[first : first + together]
            strip = int(band[0]), int(band[-1]) + self.size
            yield band - band[0], slice(first, first + len(band)), strip

    @property
    def _rows_per_band(self) -> int:
        return min(len(self.rows), max(1, _PATCHES_PER_BAND // len(self.cols)))

    @cached_property
    def _patches(self) -> FloatMap:
        """Memory for the patches of a band."""
        n_patches = self._rows_per_band * len(self.cols)
        return np.empty((n_patches, 3 * self.size**2), dtype=np.float32)

    def cut(self, strip: FloatMap, rows: NDArray[np.intp]) -> FloatMap:
        """Return the patches of a band, flattened, one in each row; the next band overwrites them.

        They are the paper's ``Z̃``, transposed.
        """
        windows = _windows(strip, self.size)
        stride, n = _regular_run(self.cols)
        regular = slice(0, stride * (n - 1) + 1, stride)
        patches = self._patches[: len(rows) * len(self.cols)]
        shaped = patches.reshape(len(rows), len(self.cols), 3, self.size, self.size)
        for line, row in zip(shaped, rows, strict=True):
            line[:n] = windows[row, regular]
            line[n:] = windows[row, self.cols[n:]]
        return patches

    def mean(self, planes: PhotoPlanes) -> NDArray[np.float64]:
        """Return the mean of all patches, ``(3 * size * size,)``, without cutting them."""
        # The number of patches in which a pixel is the d-th of a row or a column: (pixels, size).
        down, across = (
            np.stack([np.bincount(first + d, minlength=length) for d in range(self.size)], axis=1)
            for first, length in ((self.rows, self.height), (self.cols, self.width))
        )
        total = np.zeros((3, self.size, self.size))
        for first in range(0, self.height, _ROWS_PER_STRIP):
            last = min(first + _ROWS_PER_STRIP, self.height)
            strip = planes.strip(first, last).astype(np.float64)
            total += down[first:last].T @ (strip @ across)
        return total.ravel() / (len(self.rows) * len(self.cols))

    def variance(self, strip: FloatMap, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the variance over all values of each patch of a band, (rows, columns)."""
        n = len(strip) * self.size**2
        mean, square = (
            _sum_over_patches(_sum_over_patches(values, rows, self.size).T, self.cols, self.size).T
            / n
            for values in (strip.sum(axis=0), np.einsum("cij,cij->ij", strip, strip))
        )
        return np.maximum(square - mean**2, 0.0)

    def put_back(self, values: FloatMap, *, window: str = "uniform") -> FloatMap:
        """Average, at each pixel, the values of the patches that contain it."""
        profile = np.ones(self.size)
        if window == "gaussian":
            # OpenCV's own kernel is too high in the middle for an even size. The standard
            # deviation of a fifth of a patch was set by hand.
            from_centre = np.arange(self.size) - (self.size - 1) / 2
            profile = np.exp(-0.5 * (from_centre / (self.size / 5.0)) ** 2)
        # The sum over the patches that contain a pixel is separable: Σ over rows, Σ over columns.
        total = _sum_over_pixels(values.T, self.cols, self.width, profile)
        total /= _sum_over_pixels(np.ones((len(self.cols), 1)), self.cols, self.width, profile)
        weight = _sum_over_pixels(np.ones((len(self.rows), 1)), self.rows, self.height, profile)
        out = np.empty((self.height, self.width), dtype=np.float32)
        for first in range(0, self.width, _ROWS_PER_STRIP):
            cols = slice(first, first + _ROWS_PER_STRIP)
            out[:, cols] = _sum_over_pixels(total[cols].T, self.rows, self.height, profile) / weight
        return out


def _regular_run(first: NDArray[np.intp]) -> tuple[int, int]:
    """Return the stride of patches and how many of them follow it; the last one may not."""
    stride = int(first[1] - first[0]) if len(first) > 1 else 1
    regular = len(first) < 2 or first[-1] - first[-2] == stride
    return stride, len(first) if regular else len(first) - 1


def _sum_over_patches(
    values: NDArray[Any], first: NDArray[np.intp], size: int
) -> NDArray[np.float64]:
    """Return for each patch along the first axis the sum of its ``size`` pixels."""
    stride, n = _regular_run(first)
    out = np.zeros((len(first), *values.shape[1:]))
    for d in range(size):
        out[:n] += values[d : d + stride * (n - 1) + 1 : stride]
        if n < len(first):
            out[n] += values[first[-1] + d]
    return out


def _sum_over_pixels(
    values: NDArray[Any], first: NDArray[np.intp], length: int, profile: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return for each pixel along the first axis the weighted sum of the patches on it."""
    stride, n = _regular_run(first)
    out = np.zeros((length, *values.shape[1:]))
    # From the last pixel of a patch to the first, so that patches are added in their order.
    for d in reversed(range(len(profile))):
        out[d : d + stride * (n - 1) + 1 : stride] += profile[d] * values[:n]
    if n < len(first):
        out[first[-1] :] += profile[:, None] * values[-1]
    return out


def _windows(planes: FloatMap, size: int) -> Any:
    """Return all patches as a view, (rows, cols, channels, size, size)."""
    view = np.lib.stride_tricks.sliding_window_view(planes, (size, size), axis=(1, 2))
    return view.transpose(1, 2, 0, 3, 4)


def gather(planes: FloatMap, corners: NDArray[np.intp], size: int) -> FloatMap:
    """Return the patches that begin at given pixels, one in each row.

    >>> import numpy as np
    >>> planes = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    >>> gather(planes, np.array([[1, 2]]), size=2)
    array([[ 6.,  7., 10., 11.]], dtype=float32)
    """
    if not len(corners):  # a photo smaller than a patch has none
        return np.empty((0, len(planes) * size**2), dtype=np.float32)
    chosen = _windows(planes, size)[corners[:, 0], corners[:, 1]]
    return np.ascontiguousarray(chosen, np.float32).reshape(-1, len(planes) * size**2)


def share_in_patch(mask: NDArray[Any], size: int) -> NDArray[np.float32]:
    """Return, for every patch (stride 1), the share of its pixels in a mask."""
    height, width = mask.shape
    # Whole numbers, so that shares of exactly 0 and exactly 1 are exact.
    counts = cv2.boxFilter(
        mask.astype(np.uint8),
        cv2.CV_32S,
        (size, size),
        anchor=(0, 0),
        normalize=False,
        borderType=cv2.BORDER_CONSTANT,
    )
    inside = counts[: height - size + 1, : width - size + 1]
    return np.asarray(inside / np.float32(size * size), dtype=np.float32)


@dataclass(frozen=True)
class BankOptions:
    """One set of filters and how its output becomes a map.

    Attributes
    ----------
    channels : {"rgb", "error-level"}
        What patches are cut from: the colours, or what JPEG at quality 90 removes.
    size : int
        Side of a patch, the paper's ``n``.
    stride : int
        Distance of neighbouring patches when localizing.
    n_filters : int
        The paper's ``K``.
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
    size: int = ranged(16, 2, 64)
    stride: int = 4
    n_filters: int = 150
    weights: str = "none"
    variance_exponent: float = ranged(0.0, 0.0, 2.0)
    window: str = "uniform"
    exponent: float = ranged(1.0, 1e-3, 10.0)

    def __post_init__(self) -> None:
        check_ranges(self)
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name}={value!r} must be one of {', '.join(allowed)}")
        if not 1 <= self.stride <= self.size:
            raise ValueError(f"stride={self.stride} must be from 1 to size={self.size}")
        if not 1 <= self.n_filters <= self.n_features:
            raise ValueError(f"n_filters={self.n_filters} must be from 1 to {self.n_features}")

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
        options, filters = self.options, self._weighted_filters
        planes = PhotoPlanes(image, options.channels)
        height, width = image.shape[:2]
        grid = PatchGrid(height, width, options.size, options.stride)
        # Fᵀ(z - mean) = Fᵀz - Fᵀmean: the patches need not be centred one by one.
        centre = (grid.mean(planes) @ filters).astype(np.float32)
        power, contrast = (np.ones(grid.shape, dtype=np.float32) for _ in range(2))
        largest = 0.0
        # In bands, so that no planes of the size of the photo are needed.
        for rows, band, pixels in grid.bands():
            strip = planes.strip(*pixels)
            largest = max(largest, float(strip.max()), -float(strip.min()))
            power[band] = self._band_power(grid, strip, rows, centre)
            if options.variance_exponent:
                variance = grid.variance(strip, rows) + _FLAT_VARIANCE
                contrast[band] = (variance**options.variance_exponent).astype(np.float32)
        # Where all patches are the same, nothing but rounding is left.
        rounding = np.finfo(np.float32).eps * np.float32(largest) * np.abs(filters).sum(axis=0)
        power[power <= rounding @ rounding] = 0.0
        return grid, power / contrast

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

    @cached_property
    def _weighted_filters(self) -> NDArray[np.float32]:
        if self.options.weights == "none":
            return self.filters
        # Those of 1 and less, 0 among them, have no excess.
        excess = 1.0 - 1.0 / np.maximum(self.eigenvalues, 1.0)
        return np.asarray(self.filters * np.sqrt(excess), dtype=np.float32)

    def _band_power(
        self, grid: PatchGrid, strip: FloatMap, rows: NDArray[np.intp], centre: FloatMap
    ) -> FloatMap:
        """Return ``Σ yᵢ²`` of the patches of a band, (rows, columns)."""
        output = grid.cut(strip, rows) @ self._weighted_filters
        output -= centre
        return np.asarray(np.einsum("ij,ij->i", output, output).reshape(len(rows), -1))


class BoundaryMap(NamedTuple):
    """A boundary map in [0, 1], and what it was divided by, in units that all photos share."""

    map: FloatMap
    scale: float


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
    for bank, (factor, largest) in zip(banks, maps, strict=True):
        scale *= largest**bank.options.exponent
        if bank.options.exponent != 1.0:
            np.power(factor, np.float32(bank.options.exponent), out=factor)
        product *= factor
        del factor
    if side_contrast is not None:
        for line, contrast in zip(product, side_contrast, strict=True):
            line *= np.sqrt(contrast)
    if smoothing:
        product = cv2.GaussianBlur(product, (0, 0), smoothing)
    if side_contrast is not None or smoothing:
        # Neither keeps the range of a product of maps in [0, 1]: scale it back.
        largest = float(product.max())
        if largest > 0.0:
            product /= np.float32(largest)
            scale *= largest
    return BoundaryMap(np.clip(product, 0.0, 1.0, out=product), scale)
