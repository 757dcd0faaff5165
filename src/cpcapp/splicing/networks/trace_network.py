"""The trace network: measures in a photo where histories differ.

For each pixel the evidence for a seam, for each block of 8 x 8 pixels a vector of traces and the
evidence that the block was pasted. It measures; which cut is made of it, and how sure that is,
is decided by the contrast.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from cpcapp.splicing.making.histories import cosine_matrix

# JFIF: of red, green and blue.
_LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class NetworkOptions:
    """The sizes of a trace network.

    Attributes
    ----------
    pixel_channels : int
        Channels at full resolution.
    pixel_blocks : int
        Residual blocks there, of two convolutions each: depth at full resolution is what reads
        traces of JPEG.
    block_channels : int
        Channels for each block of 8 x 8 pixels.
    frequency_channels : int
        Channels that are read from the histogram of the block's frequencies.
    dilations : tuple of int
        Of the residual blocks at the resolution of blocks.
    n_traces : int
        Length of the vector of traces.
    """

    pixel_channels: int = 32
    pixel_blocks: int = 4
    block_channels: int = 160
    frequency_channels: int = 128
    dilations: tuple[int, ...] = (1, 2, 4, 1, 2, 4, 8, 1)
    n_traces: int = 16

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes in types that JSON knows."""
        return asdict(self) | {"dilations": list(self.dilations)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> NetworkOptions:
        """Return what `to_dict` gave."""
        sizes = {name: content[name] for name in cls.__dataclass_fields__}
        return cls(**sizes | {"dilations": tuple(content["dilations"])})


class NetworkOutput(NamedTuple):
    """What a network measures.

    Attributes
    ----------
    seam : tensor of shape (n, 1, height, width)
        Logits.
    region : tensor of shape (n, 1, height / 8, width / 8)
        Logits; the sign is arbitrary in photos whose two sides can't be told apart.
    traces : tensor of shape (n, n_traces, height / 8, width / 8)
    """

    seam: Tensor
    region: Tensor
    traces: Tensor


class _Residual(nn.Module):
    def __init__(self, channels: int, dilation: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.layers(x))


class _Frequencies(nn.Module):
    """A histogram of the frequencies of each block, in units of the file's steps where known."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        cosines = cosine_matrix()
        basis = torch.einsum("ui,vj->uvij", cosines, cosines).reshape(64, 1, 8, 8)
        self.register_buffer("basis", basis, persistent=False)
        # Bins, logarithm and two waves of each frequency, and the steps of the table.
        self.read = nn.Sequential(
            nn.Conv2d(64 * 7 + 65, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        )

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        weights = torch.tensor(_LUMINANCE, device=image.device).view(1, 3, 1, 1)
        light = (image * weights).sum(dim=1, keepdim=True) - 128.0
        known = (table > 0).to(image)
        steps = torch.where(table > 0, table, torch.ones_like(table))[:, :, None, None]
        frequency = F.conv2d(light, self.basis, stride=8)
        level = frequency / steps
        size = level.abs()
        bins = [
            torch.clamp(1.5 - (size - centre).abs() / width, 0.0, 1.0)
            for centre, width in ((0.0, 0.4), (1.0, 0.4), (2.0, 0.6), (4.0, 1.5))
        ]
        waves = [torch.cos(level * (2.0 * math.pi)), torch.cos(frequency * math.pi)]
        features = [*bins, torch.log1p(frequency.abs()) / 3.0, *waves]
        rows, columns = frequency.shape[2:]
        about = torch.cat([torch.log1p(table) / 3.0, known[:, :1]], dim=1)
        features.append(about[:, :, None, None].expand(-1, -1, rows, columns))
        found: Tensor = self.read(torch.cat(features, dim=1))
        return found


class TraceNetwork(nn.Module):
    """Measures seam, region and traces.

    Parameters
    ----------
    options : NetworkOptions, optional

    Examples
    --------
    >>> network = TraceNetwork(NetworkOptions(8, 1, 16, 8, (1,), 4)).eval()
    >>> photo, table = torch.zeros(1, 3, 32, 48), torch.zeros(1, 64)
    >>> [tuple(part.shape) for part in network(photo, table)]
    [(1, 1, 32, 48), (1, 1, 4, 6), (1, 4, 4, 6)]
    """

    def __init__(self, options: NetworkOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or NetworkOptions()
        pixel, block = options.pixel_channels, options.block_channels
        self.stem = nn.Sequential(
            nn.Conv2d(6, pixel, 5, padding=2, bias=False), nn.BatchNorm2d(pixel), nn.ReLU()
        )
        self.pixels = nn.Sequential(*(_Residual(pixel) for _ in range(options.pixel_blocks)))
        self.frequencies = _Frequencies(options.frequency_channels)
        self.mix = nn.Sequential(
            nn.Conv2d(2 * pixel + options.frequency_channels, block, 1, bias=False),
            nn.BatchNorm2d(block),
            nn.ReLU(),
        )
        half = len(options.dilations) // 2
        near, far = options.dilations[:half], options.dilations[half:]
        self.near = nn.Sequential(*(_Residual(block, dilation) for dilation in near))
        self.contrast = nn.Conv2d(2 * block, block, 1)
        self.far = nn.Sequential(*(_Residual(block, dilation) for dilation in far))
        self.traces = nn.Conv2d(block, options.n_traces, 1)
        self.region = nn.Conv2d(block, 1, 1)
        self.up = nn.Conv2d(block, 16, 1)
        self.seam = nn.Sequential(
            nn.Conv2d(16 + pixel, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1)
        )

    def forward(self, image: Tensor, table: Tensor) -> NetworkOutput:
        """Measure photos.

        Parameters
        ----------
        image : tensor of shape (n, 3, height, width)
            Levels from 0 to 255; height and width are multiples of 8.
        table : tensor of shape (n, 64)
            Steps of the luminance table of a JPEG file, in rows; all 0 if there is no file.

        Returns
        -------
        NetworkOutput
        """
        unit = image / 255.0
        around = F.avg_pool2d(F.pad(unit, (1, 1, 1, 1), mode="replicate"), 3, 1)
        pixels = self.pixels(self.stem(torch.cat([unit - 0.5, (unit - around) * 8.0], dim=1)))
        with torch.autocast(image.device.type, enabled=False):
            # In 16 bits the difference of two means of squares would be rounding.
            exact = pixels.float()
            mean = F.avg_pool2d(exact, 8)
            variance = F.avg_pool2d(exact * exact, 8) - mean * mean
            deviation = torch.sqrt(variance.clamp(min=1e-6))
            frequencies = self.frequencies(image.float(), table.float())
        blocks = self.near(self.mix(torch.cat([mean, deviation, frequencies], dim=1)))
        # What is special is so against the photo itself.
        centred = blocks - blocks.mean(dim=(2, 3), keepdim=True)
        blocks = F.relu(blocks + self.contrast(torch.cat([centred, centred.abs()], dim=1)))
        blocks = self.far(blocks)
        coarse = F.interpolate(self.up(blocks), scale_factor=8, mode="bilinear")
        seam = self.seam(torch.cat([coarse, pixels], dim=1))
        return NetworkOutput(seam, self.region(blocks), self.traces(blocks))
