"""The geometry of overlapping patches: cut them, select them, average them back to a map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from cpcapp.splicing.measure.channels import PhotoPlanes
from cpcapp.splicing.photo.pixels import FloatMap

WINDOWS = ("uniform", "gaussian")
# Patches that are cut at a time: enough for a fast matrix product, and little memory.
_PATCHES_PER_BLOCK = 8192
_ROWS_PER_STRIP = 128


def starts(length: int, size: int, stride: int) -> NDArray[np.intp]:
    """Return where patches begin along a side, so that the whole side is covered.

    >>> starts(30, size=16, stride=4)
    array([ 0,  4,  8, 12, 14])
    """
    regular = np.arange(0, length - size + 1, stride)
    return regular if regular[-1] == length - size else np.append(regular, length - size)


@dataclass(frozen=True)
class PatchGrid:
    """Overlapping square patches that cover a photo.

    The last patch of a row or column lies flush with the border, whatever the stride.

    Parameters
    ----------
    height, width : int
        Of the photo, each at least ``size``.
    size : int
        Side of a patch, the paper's ``n``.
    stride : int
        Distance of neighbouring patches.

    Examples
    --------
    >>> import numpy as np
    >>> grid = PatchGrid(20, 24, size=16, stride=4)
    >>> grid.shape
    (2, 3)
    >>> ones = np.ones((3, 20, 24), dtype=np.float32)
    >>> [(rows, patches.shape) for rows, patches in grid.cut(ones)]
    [(slice(0, 2, None), (6, 768))]
    >>> bool((grid.put_back(np.ones(grid.shape, dtype=np.float32)) == 1).all())
    True
    """

    height: int
    width: int
    size: int
    stride: int

    def __post_init__(self) -> None:
        if min(self.size, self.stride) < 1:
            raise ValueError(f"size={self.size} and stride={self.stride} must be at least 1")
        if min(self.height, self.width) < self.size:
            raise ValueError(
                f"a photo of {self.width}x{self.height} pixels is smaller than a patch of "
                f"{self.size}x{self.size}"
            )

    @property
    def rows(self) -> NDArray[np.intp]:
        """First pixel row of each row of patches."""
        return starts(self.height, self.size, self.stride)

    @property
    def cols(self) -> NDArray[np.intp]:
        """First pixel column of each column of patches."""
        return starts(self.width, self.size, self.stride)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of patches down and across."""
        return len(self.rows), len(self.cols)

    def cut(self, planes: FloatMap) -> Iterator[tuple[slice, FloatMap]]:
        """Yield the patches, some rows of the grid at a time.

        ``patches``: Flattened, the ``Z̃`` of the paper with a patch in each row. The next iteration
        overwrites it.
        """
        windows = _windows(planes, self.size)
        rows, cols = self.rows, self.cols
        stride, n = _regular_run(cols)
        regular = slice(0, stride * (n - 1) + 1, stride)
        together = self._rows_per_block
        n_features = len(planes) * self.size**2
        work = np.empty((min(together, len(rows)) * len(cols), n_features), dtype=np.float32)
        for first in range(0, len(rows), together):
            some = rows[first : first + together]
            patches = work[: len(some) * len(cols)]
            shaped = patches.reshape(len(some), len(cols), len(planes), self.size, self.size)
            for line, row in zip(shaped, some, strict=True):
                line[:n] = windows[row, regular]
                line[n:] = windows[row, cols[n:]]
            yield slice(first, first + len(some)), patches

    def bands(self) -> Iterator[tuple[slice, Band]]:
        """Yield the grid in bands, from the top to the bottom."""
        rows, per_block = self.rows, self._rows_per_block
        together = per_block * max(1, _ROWS_PER_STRIP // per_block)
        for first in range(0, len(rows), together):
            some = rows[first : first + together]
            top, bottom = int(some[0]), int(some[-1]) + self.size
            grid = PatchGrid(bottom - top, self.width, self.size, self.stride)
            yield slice(first, first + len(some)), Band(grid, (top, bottom))

    @property
    def _rows_per_block(self) -> int:
        return max(1, _PATCHES_PER_BLOCK // len(self.cols))

    def mean(self, planes: FloatMap | PhotoPlanes) -> NDArray[np.float64]:
        """Return the mean of all patches, ``(channels * size * size,)``, without cutting them."""
        # The number of patches in which a pixel is the d-th of a row or a column: (pixels, size).
        down, across = (
            np.stack([np.bincount(first + d, minlength=length) for d in range(self.size)], axis=1)
            for first, length in ((self.rows, self.height), (self.cols, self.width))
        )
        total = np.zeros((planes.shape[0], self.size, self.size))
        for first in range(0, self.height, _ROWS_PER_STRIP):
            last = min(first + _ROWS_PER_STRIP, self.height)
            strip = (
                planes[:, first:last]
                if isinstance(planes, np.ndarray)
                else planes.strip(first, last)
            )
            total += down[first:last].T @ (strip.astype(np.float64) @ across)
        return total.ravel() / (len(self.rows) * len(self.cols))

    def variance(self, planes: FloatMap) -> NDArray[np.float64]:
        """Return the variance over all values of each patch, of the grid's shape."""
        rows, n = self.rows, len(planes) * self.size**2
        variance = np.empty(self.shape)
        # Some rows at a time, so that no array of the size of the photo is needed.
        for first in range(0, len(rows), _ROWS_PER_STRIP):
            some = rows[first : first + _ROWS_PER_STRIP]
            strip = planes[:, some[0] : some[-1] + self.size]
            sums, squares = (
                _sum_over_patches(
                    _sum_over_patches(values, some - some[0], self.size).T, self.cols, self.size
                ).T
                / n
                for values in (strip.sum(axis=0), np.einsum("cij,cij->ij", strip, strip))
            )
            variance[first : first + len(some)] = np.maximum(squares - sums**2, 0.0)
        return variance

    def put_back(self, values: FloatMap, *, window: str = "uniform") -> FloatMap:
        """Average, at each pixel, the values of the patches that contain it."""
        profile = window_profile(self.size, window)
        # The sum over the patches that contain a pixel is separable: Σ over rows, Σ over columns.
        total = _sum_over_pixels(values.T, self.cols, self.width, profile)
        total /= _sum_over_pixels(np.ones((len(self.cols), 1)), self.cols, self.width, profile)
        weight = _sum_over_pixels(np.ones((len(self.rows), 1)), self.rows, self.height, profile)
        out = np.empty((self.height, self.width), dtype=np.float32)
        for first in range(0, self.width, _ROWS_PER_STRIP):
            some = slice(first, first + _ROWS_PER_STRIP)
            out[:, some] = _sum_over_pixels(total[some].T, self.rows, self.height, profile) / weight
        return out


def window_profile(size: int, window: str) -> NDArray[np.float64]:
    """Return the weight of a patch along one of its sides, (size,).

    >>> window_profile(3, "uniform")
    array([1., 1., 1.])
    """
    if window not in WINDOWS:
        raise ValueError(f"window={window!r} must be one of {', '.join(map(repr, WINDOWS))}")
    if window == "uniform":
        return np.ones(size)
    # OpenCV's own kernel is too high in the middle for an even size.
    from_centre = np.arange(size) - (size - 1) / 2
    return np.asarray(np.exp(-0.5 * (from_centre / (size / 5.0)) ** 2))


class Band(NamedTuple):
    """Some rows of a grid of patches.

    Attributes
    ----------
    grid : PatchGrid
        On a strip of the photo.
    at : (int, int)
        First row of pixels of the strip, and the one after its last.
    """

    grid: PatchGrid
    at: tuple[int, int]


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


def gather(planes: FloatMap, places: NDArray[np.intp], size: int) -> FloatMap:
    """Return the patches that begin at given pixels.

    >>> import numpy as np
    >>> planes = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    >>> gather(planes, np.array([[1, 2]]), size=2)
    array([[ 6.,  7., 10., 11.]], dtype=float32)
    """
    if not len(places):
        return np.empty((0, len(planes) * size**2), dtype=np.float32)
    chosen = _windows(planes, size)[places[:, 0], places[:, 1]]
    return np.ascontiguousarray(chosen, dtype=np.float32).reshape(len(places), -1)


def share_in_patch(mask: NDArray[Any], size: int) -> NDArray[np.float32]:
    """Return, for every patch (stride 1), the share of its pixels in a mask.

    >>> import numpy as np
    >>> share_in_patch(np.eye(3, dtype=bool), size=2)
    array([[0.5 , 0.25],
           [0.25, 0.5 ]], dtype=float32)
    """
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
