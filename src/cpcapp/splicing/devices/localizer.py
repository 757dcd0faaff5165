"""A localizer whose filters and network run on a device."""

from __future__ import annotations

from typing import Any

from cpcapp.moments.torch import check_device
from cpcapp.splicing.devices.filters import DeviceFilterBank
from cpcapp.splicing.devices.network import DeviceTraceMeter
from cpcapp.splicing.localizer import SpliceLocalizer


def to_device(localizer: SpliceLocalizer, device: Any = "cuda") -> SpliceLocalizer:
    """Return a localizer that does the same with its filters and its network on a device.

    Edges, superpixels, the merge tree and the cut stay on the CPU. Maps differ by the rounding of
    float32; verdicts are the same.

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
    network = localizer.network and DeviceTraceMeter(localizer.network, device)
    moved = SpliceLocalizer(
        localizer.preset,
        banks,
        localizer.threshold,
        localizer.calibration,
        localizer.facts,
        network,
    )
    moved.file_sha256, moved.device = localizer.file_sha256, str(device)
    return moved
