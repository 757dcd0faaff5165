"""What a trace network is trained for."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from cpcapp.splicing.networks.trace_network import NetworkOutput

# Half the width of the band of a seam, in pixels, as in the protocol "edge".
BAND_RADIUS = 4
# Seams are few of all pixels.
_SEAM_WEIGHT = 3.0
# What a region with the other sign costs more, so that one of the two is preferred at all.
_OTHER_SIGN = 0.05
_PAIRS = 96
# The share of a photo's blocks that its highest evidence is the mean of.
_HIGHEST = 0.01


class Losses(NamedTuple):
    """The parts of a loss, each a mean over the batch."""

    seam: Tensor
    region: Tensor
    pasted: Tensor
    traces: Tensor
    photo: Tensor

    @property
    def total(self) -> Tensor:
        """Their weighted sum. The weights were set by hand."""
        shared = 0.6 * self.pasted + 0.3 * self.traces + 0.1 * self.photo
        return self.seam + self.region + shared


def seam_band(mask: Tensor, radius: int = BAND_RADIUS) -> Tensor:
    """Return the band of pixels around a seam: dilated less eroded mask.

    >>> mask = torch.zeros(1, 1, 4, 8)
    >>> mask[..., 4:] = 1
    >>> seam_band(mask, 1)[0, 0, 0].int().tolist()
    [0, 0, 0, 1, 1, 0, 0, 0]
    """
    side = 2 * radius + 1
    dilated = F.max_pool2d(mask, side, 1, radius)
    eroded = -F.max_pool2d(-mask, side, 1, radius)
    return dilated - eroded


def measure_losses(output: NetworkOutput, mask: Tensor) -> Losses:
    """Compare what a network measured with the truth."""
    seam = F.binary_cross_entropy_with_logits(
        output.seam.float(),
        seam_band(mask),
        # Filled there: a number that is copied to a GPU would wait for all that it still has to do.
        pos_weight=torch.full((), _SEAM_WEIGHT, device=mask.device),
    )
    share = F.avg_pool2d(mask, 8)
    return Losses(
        seam,
        _region_loss(output.region.float(), share),
        F.binary_cross_entropy_with_logits(output.pasted.float(), share),
        _trace_loss(output.traces, share),
        _photo_loss(output, share),
    )


def _region_loss(region: Tensor, share: Tensor) -> Tensor:
    """Return the cross-entropy of the better sign: which side was pasted can't always be seen."""
    same, other = (
        F.binary_cross_entropy_with_logits(region, truth, reduction="none").mean(dim=(1, 2, 3))
        for truth in (share, 1.0 - share)
    )
    spliced = share.mean(dim=(1, 2, 3)) > 0
    return torch.where(spliced, torch.minimum(same, other + _OTHER_SIGN), same).mean()


def _photo_loss(output: NetworkOutput, share: Tensor) -> Tensor:
    """Return how badly the highest evidence tells spliced from authentic photos.

    A verdict rests on it: one false seam is enough for a false alarm.
    """
    spliced = (share.amax(dim=(1, 2, 3)) > 0).float()
    loss = torch.zeros((), device=share.device)
    for evidence in (F.avg_pool2d(output.seam.float(), 8), output.pasted.float()):
        blocks = evidence.flatten(1)
        highest = blocks.topk(max(1, round(_HIGHEST * blocks.shape[1])), dim=1).values.mean(dim=1)
        loss = loss + F.binary_cross_entropy_with_logits(highest, spliced)
    return loss


def _trace_loss(traces: Tensor, share: Tensor) -> Tensor:
    """Return how badly distances of traces tell pairs of one side from pairs of two.

    Pairs of blocks of one photo; a pair is alike with probability ``σ(1 - |a - b|²)``.
    """
    n, channels = traces.shape[:2]
    flat = traces.float().reshape(n, channels, -1)
    truth = share.reshape(n, -1)
    at = torch.randint(0, flat.shape[2], (n, _PAIRS), device=traces.device)
    points = flat.gather(2, at[:, None].expand(-1, channels, -1))
    sides = truth.gather(1, at)
    clear = (sides < 0.05) | (sides > 0.95)
    alike = ((sides > 0.5)[:, :, None] == (sides > 0.5)[:, None]).float()
    squares = (points * points).sum(dim=1)
    distance = squares[:, :, None] + squares[:, None] - 2.0 * points.transpose(1, 2) @ points
    counted = (clear[:, :, None] & clear[:, None]).float()
    # Pairs of two sides are rarer: both kinds weigh the same.
    spliced = alike.mean(dim=(1, 2), keepdim=True).clamp(0.02, 0.98)
    weight = torch.where(alike > 0, 0.5 / spliced, 0.5 / (1.0 - spliced)) * counted
    loss = F.binary_cross_entropy_with_logits(1.0 - distance, alike, reduction="none")
    return (loss * weight).sum() / weight.sum().clamp(min=1.0)
