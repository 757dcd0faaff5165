"""Localizing with a device: the filters of a localizer run there; needs the extra torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import torch
except ImportError as error:
    raise ImportError(
        "a device needs torch; install it with: pip install 'cpcapp[torch]'"
    ) from error

from cpcapp.moments.torch import check_device
from cpcapp.splicing.localizer import SpliceLocalizer
from cpcapp.splicing.measure.filters import FilterBank, PatchGrid
from cpcapp.splicing.photo.pixels import FloatMap


@dataclass(frozen=True)
class DeviceFilterBank(FilterBank):
    """Filters on a device; gives what a `FilterBank` gives, to the rounding of float32."""

    device: Any = "cuda"

    @cached_property
    def _on_device(self) -> torch.Tensor:
        return torch.from_numpy(self._weighted_filters).to(self.device)

    def _band_power(
        self, grid: PatchGrid, strip: FloatMap, rows: NDArray[np.intp], centre: FloatMap
    ) -> FloatMap:
        planes = torch.from_numpy(strip).to(self.device)
        windows = planes.unfold(1, grid.size, 1).unfold(2, grid.size, 1)
        patches = windows[:, torch.from_numpy(rows)[:, None], torch.from_numpy(grid.cols)]
        patches = patches.permute(1, 2, 0, 3, 4).reshape(-1, len(self.filters))
        output = patches @ self._on_device - torch.from_numpy(centre).to(self.device)
        power = output.square().sum(dim=1).reshape(len(rows), -1)
        return np.asarray(power.cpu().numpy())


def to_device(localizer: SpliceLocalizer, device: Any = "cuda") -> SpliceLocalizer:
    """Return a localizer that does the same with its filters on a device.

    Network, edges, superpixels and the cut stay on the CPU. Maps differ by the rounding of float32;
    verdicts are the same.

    >>> import numpy as np
    >>> from cpcapp.splicing import load_model
    >>> found = to_device(load_model("filters"), "cpu").localize(np.zeros((40, 50, 3), np.uint8))
    >>> found.boundary.shape
    (40, 50)
    """
    check_device(device)
    banks = [
        DeviceFilterBank(bank.options, bank.filters, bank.eigenvalues, device)
        for bank in localizer.banks
    ]
    moved = SpliceLocalizer(
        localizer.preset,
        banks,
        localizer.threshold,
        localizer.calibration,
        localizer.facts,
        localizer.network,
    )
    moved.file_sha256, moved.device = localizer.file_sha256, str(device)
    return moved
