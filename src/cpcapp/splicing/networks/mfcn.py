"""MFCN, the network that the paper compares cPCA++ with, and its single-task sibling SFCN.

R. Salloum, Y. Ren, C.-C. J. Kuo, "Image splicing localization using a multi-task fully
convolutional network (MFCN)", 2018. A VGG-16 without its classifier, made fully convolutional as
FCN-8s, with batch normalisation. The two tasks, the pasted surface and its edge, share all layers
up to conv7; each has a decoder of its own with skips from pool3 and pool4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

# Convolutions before each pooling of VGG-16.
_DEPTHS = (2, 2, 3, 3, 3)
# Of the coarsest layer, in pixels.
_STRIDE = 32
# Levels from 0 to 255 become about -2 to 2.
_CENTRE, _SPREAD = 127.5, 64.0
# Half the field of view of conv7 is 202 pixels, and the three enlargements add at most 56: tiles
# with so much around them, a multiple of the stride, give what the whole photo gives.
_MARGIN = 288
# Of the part of a tile that is kept. Chosen by hand: memory grows with its square.
_CORE = 512
# Up to this many pixels a photo is measured at once.
_WHOLE_PIXELS = (_CORE + 2 * _MARGIN) ** 2


@dataclass(frozen=True)
class MFCNOptions:
    """The sizes of a network. The defaults are those that were published."""

    # Channels of the convolutions before each pooling.
    widths: tuple[int, ...] = (64, 128, 256, 512, 512)
    # Channels of conv6 and conv7.
    top: int = 4096
    # Side of the window of conv6, odd.
    window: int = 7
    # Whether there is a decoder of edges: True for MFCN, False for SFCN.
    edges: bool = True

    def __post_init__(self) -> None:
        sizes = (*self.widths, self.top, self.window)
        if len(self.widths) != len(_DEPTHS) or not all(
            type(size) is int and 1 <= size <= 8192 for size in sizes
        ):
            raise ValueError(
                f"widths={self.widths}, top={self.top}, window={self.window} must be five widths "
                "and two numbers, all whole and from 1 to 8192"
            )
        if self.window % 2 == 0 or self.window > 15:
            raise ValueError(f"window={self.window} must be odd and at most 15")
        if type(self.edges) is not bool:
            raise ValueError(f"edges={self.edges!r} must be True or False")

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes in types that JSON knows."""
        return asdict(self) | {"widths": list(self.widths)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> MFCNOptions:
        """Return what `to_dict` gave.

        >>> MFCNOptions.from_dict(MFCNOptions(top=8).to_dict()) == MFCNOptions(top=8)
        True
        """
        sizes = {name: content[name] for name in cls.__dataclass_fields__}
        return cls(**sizes | {"widths": tuple(content["widths"])})


class MFCNOutput(NamedTuple):
    """What a network says of photos."""

    # (n, 1, height, width): logits of the pasted part.
    surface: Tensor
    # (n, 1, height, width): logits of its edge; None of SFCN.
    edges: Tensor | None


def _layer(inputs: int, outputs: int, window: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, window, padding=window // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


class _Decoder(nn.Module):
    """From conv7, pool4 and pool3 to one logit for 8 x 8 pixels, as FCN-8s does it.

    One logit is what a softmax over two classes depends on: the difference of theirs.
    """

    def __init__(self, options: MFCNOptions) -> None:
        super().__init__()
        self.from_top = nn.Conv2d(options.top, 1, 1)
        self.from_pool4 = nn.Conv2d(options.widths[3], 1, 1)
        self.from_pool3 = nn.Conv2d(options.widths[2], 1, 1)
        # The skips begin at 0, as they were published.
        for skip in (self.from_pool4, self.from_pool3):
            nn.init.zeros_(skip.weight)
        self.twice_to_pool4, self.twice_to_pool3 = _twice(), _twice()

    def forward(self, pool3: Tensor, pool4: Tensor, top: Tensor) -> Tensor:
        scores = [
            layer(x).float()
            for layer, x in (
                (self.from_top, top),
                (self.from_pool4, pool4),
                (self.from_pool3, pool3),
            )
        ]
        with torch.autocast(top.device.type, enabled=False):
            found = self.twice_to_pool4(scores[0]) + scores[1]
            coarse: Tensor = self.twice_to_pool3(found) + scores[2]
            return coarse


def _twice() -> nn.ConvTranspose2d:
    """Return a learned enlargement that begins as a bilinear one."""
    layer = nn.ConvTranspose2d(1, 1, 4, stride=2, padding=1, bias=False)
    line = torch.tensor([0.25, 0.75, 0.75, 0.25])
    with torch.no_grad():
        layer.weight.copy_((line[:, None] * line[None])[None, None])
    return layer


class MFCN(nn.Module):
    """Says where something was pasted, and where its edge is.

    Examples
    --------
    >>> tiny = MFCN(MFCNOptions(widths=(2, 2, 4, 4, 4), top=4, window=3)).eval()
    >>> found = tiny(torch.zeros(1, 3, 50, 70))
    >>> found.surface.shape, found.edges.shape
    (torch.Size([1, 1, 50, 70]), torch.Size([1, 1, 50, 70]))
    """

    def __init__(self, options: MFCNOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or MFCNOptions()
        stages, channels = [], 3
        for width, depth in zip(options.widths, _DEPTHS, strict=True):
            layers: list[nn.Module] = []
            for _ in range(depth):
                layers += _layer(channels, width, 3)
                channels = width
            stages.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
        self.stages = nn.ModuleList(stages)
        self.top = nn.Sequential(
            *_layer(channels, options.top, options.window), *_layer(options.top, options.top, 1)
        )
        self.surface = _Decoder(options)
        self.edges = _Decoder(options) if options.edges else None

    def forward(self, image: Tensor) -> MFCNOutput:
        """Measure photos."""
        height, width = image.shape[2:]
        coarse = self.coarse(
            F.pad(image, (0, -width % _STRIDE, 0, -height % _STRIDE), mode="replicate")
        )
        maps = [
            F.interpolate(part, scale_factor=8.0, mode="bilinear")[:, :, :height, :width]
            for part in coarse
        ]
        return MFCNOutput(maps[0], maps[1] if self.options.edges else None)

    def coarse(self, image: Tensor) -> list[Tensor]:
        """Return the logits of surface and, of MFCN, edges for each square of 8 x 8 pixels.

        ``image``: levels from 0 to 255; height and width are multiples of 32.
        """
        x = (image - _CENTRE) / _SPREAD
        pools = []
        for stage in self.stages:
            x = stage(x)
            pools.append(x)
        parts = (pools[2], pools[3], self.top(x))
        decoders = [self.surface] if self.edges is None else [self.surface, self.edges]
        return [decoder(*parts) for decoder in decoders]


@torch.no_grad()
def measure_coarse(
    network: MFCN,
    pixels: NDArray[np.uint8],
    progress: Callable[[float], None] | None = None,
) -> NDArray[np.float32]:
    """Return the logits of a photo for squares of 8 x 8 pixels. A large one is measured in tiles.

    Surface and, of MFCN, edges. The photo is filled up to multiples of 32 pixels.

    >>> tiny = MFCN(MFCNOptions(widths=(2, 2, 4, 4, 4), top=4, window=3))
    >>> measure_coarse(tiny, np.zeros((40, 30, 3), np.uint8)).shape
    (2, 8, 4)
    """
    network.eval()
    device = next(network.parameters()).device
    height, width = pixels.shape[:2]
    filled = np.pad(pixels, ((0, -height % _STRIDE), (0, -width % _STRIDE), (0, 0)), mode="edge")
    rows, columns = (length // 8 for length in filled.shape[:2])
    coarse = np.empty((2 if network.options.edges else 1, rows, columns), np.float32)
    tiles = list(_tiles(*filled.shape[:2]))
    for number, (kept, seen) in enumerate(tiles):
        part = torch.from_numpy(np.ascontiguousarray(filled[seen].transpose(2, 0, 1)))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
            found = network.coarse(part[None].to(device).float())
        whole = tuple(slice(k.start // 8, k.stop // 8) for k in kept)
        inside = tuple(
            slice((k.start - s.start) // 8, (k.stop - s.start) // 8)
            for k, s in zip(kept, seen, strict=True)
        )
        for mine, logits in zip(coarse, found, strict=True):
            mine[whole] = logits[0, 0].float().cpu().numpy()[inside]
        if progress is not None:
            progress((number + 1) / len(tiles))
    return coarse


def _tiles(height: int, width: int) -> Iterator[tuple[tuple[slice, slice], tuple[slice, slice]]]:
    """Yield what is kept of each tile, and what is seen for it."""
    if height * width <= _WHOLE_PIXELS:
        whole = (slice(0, height), slice(0, width))
        yield whole, whole
        return
    for top in range(0, height, _CORE):
        for left in range(0, width, _CORE):
            kept = (
                slice(top, min(top + _CORE, height)),
                slice(left, min(left + _CORE, width)),
            )
            seen = (
                slice(max(0, kept[0].start - _MARGIN), min(height, kept[0].stop + _MARGIN)),
                slice(max(0, kept[1].start - _MARGIN), min(width, kept[1].stop + _MARGIN)),
            )
            yield kept, seen
