"""Filter banks on a device: the output power of all patches of a photo as convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from cpcapp.splicing.measure.boundary import FLAT_VARIANCE, FilterBank
from cpcapp.splicing.measure.channels import image_planes
from cpcapp.splicing.measure.patches import PatchGrid, window_profile
from cpcapp.splicing.photo.pixels import FloatMap

# Outputs of filters that are computed at a time: 2 GB in float32.
_MAX_OUTPUTS = 1 << 29


@dataclass(frozen=True)
class DeviceFilterBank(FilterBank):
    """Filters on a device; gives what a `FilterBank` gives, to the rounding of float32.

    Attributes
    ----------
    device : torch.device or str
    """

    device: Any = "cuda"

    @cached_property
    def _kernels(self) -> Tensor:
        """The filters as kernels of a convolution, (n_filters, 3, size, size)."""
        size = self.options.size
        kernels = self._weighted_filters().T.reshape(-1, 3, size, size)
        return torch.from_numpy(np.ascontiguousarray(kernels)).to(self.device)

    def power(self, image: FloatMap) -> tuple[PatchGrid, FloatMap]:
        """Return the output power of every patch; see `FilterBank.power`."""
        grid, power = self._power(image)
        return grid, power.cpu().numpy()

    def map(self, image: FloatMap) -> tuple[FloatMap, float]:
        """Return ``w = v / max(v)``, averaged over overlapping patches, and ``max(v)``."""
        grid, power = self._power(image)
        largest = float(power.max())
        if largest > 0.0:
            power /= largest
        profile = window_profile(self.options.size, self.options.window)
        # The sum over the patches that contain a pixel is separable: one product for each side.
        down, across = (side / side.sum(dim=1, keepdim=True) for side in self._cover(grid, profile))
        found = down @ power.double() @ across.T
        return found.float().cpu().numpy(), largest

    def _power(self, image: FloatMap) -> tuple[PatchGrid, Tensor]:
        options = self.options
        height, width = image.shape[:2]
        grid = PatchGrid(height, width, options.size, options.stride)
        planes = self._planes(image)
        centre = self._kernels.flatten(1).double() @ self._mean(grid, planes)
        power = torch.cat(
            [
                self._powers_of_row(planes[:, top:bottom], grid, centre.float())
                for top, bottom in self._bands(grid)
            ]
        )
        # Where all patches are the same, nothing but rounding is left.
        rounding = np.finfo(np.float32).eps * planes.abs().max()
        rounding = rounding * self._kernels.abs().sum(dim=(1, 2, 3))
        power[power <= rounding @ rounding] = 0.0
        if options.variance_exponent:
            variance = self._variance(grid, planes) + FLAT_VARIANCE
            power /= (variance**options.variance_exponent).float()
        return grid, power

    def _bands(self, grid: PatchGrid) -> list[tuple[int, int]]:
        """Return rows of pixels whose patches are convolved together; the last may not align."""
        rows, stride, size = grid.rows, grid.stride, grid.size
        regular = len(rows) - int(len(rows) > 1 and rows[-1] - rows[-2] != stride)
        together = max(1, _MAX_OUTPUTS // (len(grid.cols) * len(self._kernels)))
        bands = [
            (int(rows[first]), int(rows[min(first + together, regular) - 1]) + size)
            for first in range(0, regular, together)
        ]
        return bands + [(int(row), int(row) + size) for row in rows[regular:]]

    def _powers_of_row(self, strip: Tensor, grid: PatchGrid, centre: Tensor) -> Tensor:
        """Return the powers of the patches in a strip of the planes."""
        parts = [strip]
        cols = grid.cols
        if len(cols) > 1 and cols[-1] - cols[-2] != grid.stride:
            parts = [strip[:, :, : cols[-2] + grid.size], strip[:, :, cols[-1] :]]
        found = []
        for part in parts:
            output = F.conv2d(part[None], self._kernels, stride=grid.stride)[0]
            output -= centre[:, None, None]
            found.append((output * output).sum(dim=0))
        return torch.cat(found, dim=1)

    def _planes(self, image: FloatMap) -> Tensor:
        """Return the channels of a photo on the device, (3, height, width)."""
        if self.options.channels != "rgb":
            return torch.from_numpy(image_planes(image, self.options.channels)).to(self.device)
        pixels = torch.from_numpy(np.ascontiguousarray(image)).to(self.device)
        return pixels.permute(2, 0, 1).contiguous()

    def _cover(self, grid: PatchGrid, profile: NDArray[np.float64]) -> list[Tensor]:
        """Return the weight of each pixel in each patch along both sides, (pixels, patches)."""
        weights = torch.from_numpy(profile).to(self.device)
        sides = []
        for first, length in ((grid.rows, grid.height), (grid.cols, grid.width)):
            start = torch.from_numpy(first).to(self.device)
            at = start[:, None] + torch.arange(grid.size, device=self.device)
            cover = torch.zeros(length, len(first), dtype=torch.float64, device=self.device)
            sides.append(cover.scatter_(0, at.T, weights[:, None].expand(-1, len(first))))
        return sides

    def _mean(self, grid: PatchGrid, planes: Tensor) -> Tensor:
        """Return the mean of all patches, flattened, in float64."""
        # The number of patches in which a pixel is the d-th of a row or a column.
        counts: list[NDArray[Any]] = []
        for first, length in ((grid.rows, grid.height), (grid.cols, grid.width)):
            at = [np.bincount(first + d, minlength=length) for d in range(grid.size)]
            counts.append(np.stack(at) / len(first))
        down, across = (torch.from_numpy(count).to(self.device) for count in counts)
        return (down @ (planes.double() @ across.T)).flatten()

    def _variance(self, grid: PatchGrid, planes: Tensor) -> Tensor:
        """Return the variance over all values of each patch, of the grid's shape, in float64."""
        down, across = self._cover(grid, np.ones(grid.size))
        exact = planes.double()
        n = len(planes) * grid.size**2
        mean = down.T @ exact.sum(dim=0) @ across / n
        square = down.T @ (exact * exact).sum(dim=0) @ across / n
        return (square - mean**2).clamp(min=0.0)
