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

from cpcapp.splicing.make.histories import cosine_matrix

# JFIF: of red, green and blue.
_LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class NetworkOptions:
    """The sizes of a trace network."""

    # Channels at full resolution.
    pixel_channels: int = 32
    # Residual blocks there, of two convolutions each: depth at full resolution is what reads
    # traces of JPEG.
    pixel_blocks: int = 3
    # Channels at full resolution that the seam is drawn with.
    seam_channels: int = 8
    # Channels for each block of 8 x 8 pixels.
    block_channels: int = 128
    # Channels that are read from the histogram of the block's frequencies.
    frequency_channels: int = 128
    # Dilations of the residual blocks at the resolution of blocks, before and after each block is
    # compared with the rest of the photo.
    near: tuple[int, ...] = (1, 2, 4, 1)
    far: tuple[int, ...] = (2, 4, 8, 1)
    # Rows and columns of the parts of the photo that blocks are compared with.
    grid: int = 12
    # Ways in which they are compared, each with ``query_channels / heads`` channels.
    heads: int = 4
    query_channels: int = 64
    # Length of the vector of traces.
    n_traces: int = 16

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes in types that JSON knows."""
        return asdict(self) | {"near": list(self.near), "far": list(self.far)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> NetworkOptions:
        """Return what `to_dict` gave."""
        sizes = {name: content[name] for name in cls.__dataclass_fields__}
        return cls(**sizes | {name: tuple(content[name]) for name in ("near", "far")})


class NetworkOutput(NamedTuple):
    """What a network measures."""

    # (n, 1, height, width): logits.
    seam: Tensor
    # (n, 1, height / 8, width / 8): logits of one of the two sides; which of them it is, is
    # arbitrary.
    region: Tensor
    # (n, 1, height / 8, width / 8): logits of the side that was pasted.
    pasted: Tensor
    # (n, n_traces, height / 8, width / 8)
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
        luminance = torch.tensor(_LUMINANCE).view(1, 3, 1, 1)
        self.register_buffer("luminance", luminance, persistent=False)
        # Bins, logarithm and two waves of each frequency, and the steps of the table.
        self.read = nn.Sequential(
            nn.Conv2d(64 * 7 + 65, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        )

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        light = (image * self.luminance).sum(dim=1, keepdim=True) - 128.0
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


class _PixelStage(nn.Module):
    """From pixels to vectors of blocks, and to what the seam is drawn with."""

    def __init__(self, options: NetworkOptions) -> None:
        super().__init__()
        pixel, block = options.pixel_channels, options.block_channels
        self.stem = nn.Sequential(
            nn.Conv2d(6, pixel, 5, padding=2, bias=False), nn.BatchNorm2d(pixel), nn.ReLU()
        )
        self.residuals = nn.Sequential(*(_Residual(pixel) for _ in range(options.pixel_blocks)))
        self.frequencies = _Frequencies(options.frequency_channels)
        self.mix = nn.Sequential(
            nn.Conv2d(2 * pixel + options.frequency_channels, block, 1, bias=False),
            nn.BatchNorm2d(block),
            nn.ReLU(),
        )
        self.detail = nn.Conv2d(pixel, options.seam_channels, 3, padding=1)

    def forward(self, image: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        unit = image / 255.0
        around = F.avg_pool2d(F.pad(unit, (1, 1, 1, 1), mode="replicate"), 3, 1)
        pixels = self.residuals(self.stem(torch.cat([unit - 0.5, (unit - around) * 8.0], dim=1)))
        with torch.autocast(image.device.type, enabled=False):
            # In 16 bits the difference of two means of squares would be rounding.
            exact = pixels.float()
            mean = F.avg_pool2d(exact, 8)
            variance = F.avg_pool2d(exact * exact, 8) - mean * mean
            deviation = torch.sqrt(variance.clamp(min=1e-6))
            frequencies = self.frequencies(image.float(), table.float())
        blocks = self.mix(torch.cat([mean, deviation, frequencies], dim=1))
        return blocks, self.detail(pixels)


class _Comparison(nn.Module):
    """What is special about a block is so against the rest of its photo."""

    def __init__(self, options: NetworkOptions) -> None:
        super().__init__()
        block, query = options.block_channels, options.query_channels
        self.heads = options.heads
        self.scale = math.sqrt(query // options.heads)
        self.contrast = nn.Conv2d(2 * block, block, 1)
        self.query = nn.Conv2d(block, query, 1)
        self.key = nn.Conv2d(block, query, 1)
        self.value = nn.Conv2d(block, block, 1)
        self.join = nn.Conv2d(block, block, 1)
        nn.init.zeros_(self.join.weight)

    def forward(self, blocks: Tensor, parts: Tensor) -> Tensor:
        mean = parts.mean(dim=(2, 3), keepdim=True)
        centred, others = blocks - mean, parts - mean
        special = self.contrast(torch.cat([centred, centred.abs()], dim=1))
        query, key, value = (
            x.flatten(2).unflatten(1, (self.heads, -1))
            for x in (self.query(centred), self.key(others), self.value(others))
        )
        likeness = query.transpose(2, 3) @ key / self.scale
        found = (value @ torch.softmax(likeness, dim=3).transpose(2, 3)).flatten(1, 2)
        return F.relu(blocks + special + self.join(found.view_as(blocks)))


class _FarStage(nn.Module):
    """From vectors of blocks and of the parts of the photo to region, pasted side and traces."""

    def __init__(self, options: NetworkOptions) -> None:
        super().__init__()
        block = options.block_channels
        self.comparison = _Comparison(options)
        self.residuals = nn.Sequential(*(_Residual(block, dilation) for dilation in options.far))
        self.region = nn.Conv2d(block, 1, 1)
        self.pasted = nn.Conv2d(block, 1, 1)
        self.traces = nn.Conv2d(block, options.n_traces, 1)
        self.coarse = nn.Conv2d(block, options.seam_channels, 1)

    def forward(self, blocks: Tensor, parts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        blocks = self.residuals(self.comparison(blocks, parts))
        return self.region(blocks), self.pasted(blocks), self.traces(blocks), self.coarse(blocks)


class _SeamStage(nn.Module):
    """From the detail of pixels and the view of blocks to the seam."""

    def __init__(self, options: NetworkOptions) -> None:
        super().__init__()
        channels = options.seam_channels
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, 1, 3, padding=1),
        )

    def forward(self, detail: Tensor, coarse: Tensor) -> Tensor:
        seam: Tensor = self.layers(
            detail + F.interpolate(coarse, scale_factor=8.0, mode="bilinear")
        )
        return seam


class TraceNetwork(nn.Module):
    """Measures seam, region, pasted side and traces.

    Four stages, which can be run one after the other on tiles of a photo (`cpcapp.splicing.measure`
    has the runner); only the comparison of blocks needs something of the whole photo, and that is
    small.

    Examples
    --------
    >>> network = TraceNetwork(NetworkOptions(8, 1, 4, 16, 8, (1,), (1,), 3, 2, 8, 4)).eval()
    >>> photo, table = torch.zeros(1, 3, 32, 48), torch.zeros(1, 64)
    >>> [tuple(part.shape) for part in network(photo, table)]
    [(1, 1, 32, 48), (1, 1, 4, 6), (1, 1, 4, 6), (1, 4, 4, 6)]
    """

    def __init__(self, options: NetworkOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or NetworkOptions()
        self.pixels = _PixelStage(options)
        self.near = nn.Sequential(*(_Residual(options.block_channels, d) for d in options.near))
        self.far = _FarStage(options)
        self.seam = _SeamStage(options)

    def forward(self, image: Tensor, table: Tensor) -> NetworkOutput:
        """Measure photos.

        ``image``: levels from 0 to 255; height and width are multiples of 8.

        ``table``: steps of the luminance table of a JPEG file, in rows; all 0 if there is no file.
        """
        blocks, detail = self.pixels(image, table)
        blocks = self.near(blocks)
        parts = F.adaptive_avg_pool2d(blocks, self.options.grid)
        region, pasted, traces, coarse = self.far(blocks, parts)
        return NetworkOutput(self.seam(detail, coarse), region, pasted, traces)
