"""Patches cut on a device: from the pixels of photos to moments, without a copy of all patches.

Needs the extra ``torch``. `cpcapp.splicing.measure.patches.gather` does the same with NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cpcapp.moments.torch import DeviceMoments

# Patches that are cut at a time: a few matrix products.
_PATCHES = 4096


def gather_patches(planes: Tensor, places: Tensor, size: int) -> Tensor:
    """Return the patches that begin at given pixels, flattened.

    >>> planes = torch.arange(12.0).view(1, 1, 3, 4)
    >>> gather_patches(planes, torch.tensor([[0, 1, 2]]), size=2)
    tensor([[ 6.,  7., 10., 11.]])
    """
    # All patches as a view: (photos, rows, columns, channels, size, size).
    windows = planes.unfold(2, size, 1).unfold(3, size, 1).permute(0, 2, 3, 1, 4, 5)
    photo, row, column = places.to(planes.device).unbind(1)
    return windows[photo, row, column].flatten(1)


def add_patches(moments: DeviceMoments, planes: Tensor, places: Tensor, size: int) -> DeviceMoments:
    """Add patches of photos to moments, some thousands at a time.

    ``planes``: moved to the device of the moments if it is elsewhere. Levels of uint8 are divided
    by 255.

    >>> photo = torch.zeros(1, 3, 20, 30, dtype=torch.uint8)
    >>> add_patches(DeviceMoments("cpu"), photo, torch.tensor([[0, 0, 0], [0, 3, 4]]), size=8)
    DeviceMoments(n_samples=2, n_features=192, device='cpu')
    """
    planes = planes.to(moments.device)
    places = places.to(moments.device)
    for start in range(0, len(places), _PATCHES):
        patches = gather_patches(planes, places[start : start + _PATCHES], size)
        if patches.dtype == torch.uint8:
            patches = patches.float().div_(255.0)
        moments.update(patches)
    return moments


def cut_on_device(
    planes: NDArray[np.float32], places: NDArray[np.intp], size: int, device: Any
) -> Tensor:
    """Return the patches of a photo that begin at given pixels, cut on a device.

    >>> planes = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    >>> cut_on_device(planes, np.array([[1, 2]]), 2, "cpu")
    tensor([[ 6.,  7., 10., 11.]])
    """
    if not len(places):
        return torch.empty((0, len(planes) * size**2), device=device)
    at = torch.from_numpy(np.insert(places, 0, 0, axis=1))
    return gather_patches(torch.from_numpy(planes).to(device)[None], at, size)


def join_patches(blocks: Sequence[Tensor]) -> Tensor:
    """Return patches of several photos as one tensor."""
    return torch.cat(list(blocks))
