"""Histories of photos on a GPU: what a camera, an editor and a web site do to a batch of photos.

Everything works on batches of float32 photos of shape (n, 3, height, width) with levels from 0 to
255 and needs the extra ``torch``. `cpcapp.splicing.make.stream` makes splices of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from cpcapp.splicing.photo.jpeg_tables import STANDARD_COLOURS, STANDARD_TABLE

KERNELS = ("bilinear", "bicubic", "area")
DEMOSAICERS = ("bilinear", "gradient-corrected")

# No division by 0 where there is no detail; far below a level.
_TINY = 1e-6
# JFIF: luminance and the two chroma differences of red, green and blue, and back, in the whole
# numbers of 1/65536 that libjpeg computes with.
_TO_YCC = torch.tensor(
    [[19595.0, 38470.0, 7471.0], [-11059.0, -21709.0, 32768.0], [32768.0, -27439.0, -5329.0]]
)
_TO_YCC /= 65536.0
_RED, _BLUE = 91881.0 / 65536.0, 116130.0 / 65536.0
_GREEN = -22554.0 / 65536.0, -46802.0 / 65536.0
_LUMINANCE = torch.from_numpy(STANDARD_TABLE).float()
_CHROMINANCE = torch.from_numpy(STANDARD_COLOURS).float()


def cosine_matrix() -> Tensor:
    """Return the orthonormal matrix of the discrete cosine transform, (8, 8), as JPEG has it."""
    k = torch.arange(8, dtype=torch.float32)
    rows = torch.cos((2.0 * k[None] + 1.0) * k[:, None] * math.pi / 16.0) * 0.5
    rows[0] *= math.sqrt(0.5)
    return rows


def libjpeg_matrix(device: torch.device | str = "cpu") -> Tensor:
    """Return libjpeg's one-dimensional transform of whole numbers as a matrix, (8, 8).

    It is √8 times the orthonormal one, with constants of 13 bits. After C. Loeffler, A. Ligtenberg
    and G. Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications", ICASSP 1989.

    >>> bool(torch.allclose(libjpeg_matrix(), cosine_matrix() * 8**0.5, atol=3e-4))
    True
    """
    halves = torch.cos(torch.arange(1, 8, dtype=torch.float64) * math.pi / 16.0) * math.sqrt(2.0)
    c1, c2, c3, _, c5, c6, c7 = halves.tolist()

    def fixed(value: float) -> float:
        return round(value * 8192.0) / 8192.0

    x = torch.eye(8, dtype=torch.float64)
    sums = [x[i] + x[7 - i] for i in range(4)]
    differences = [x[i] - x[7 - i] for i in (3, 2, 1, 0)]
    outer, inner = (sums[0] + sums[3], sums[1] + sums[2]), (sums[0] - sums[3], sums[1] - sums[2])
    shared = (inner[0] + inner[1]) * fixed(c6)
    even = (
        outer[0] + outer[1],
        shared + inner[0] * fixed(c2 - c6),
        outer[0] - outer[1],
        shared - inner[1] * fixed(c2 + c6),
    )
    d4, d5, d6, d7 = differences
    z5 = (d4 + d6 + d5 + d7) * fixed(c3)
    z1, z2 = (d4 + d7) * -fixed(c3 - c7), (d5 + d6) * -fixed(c1 + c3)
    z3 = (d4 + d6) * -fixed(c3 + c5) + z5
    z4 = (d5 + d7) * -fixed(c3 - c5) + z5
    odd = (
        d7 * fixed(c1 + c3 - c5 - c7) + z1 + z4,
        d6 * fixed(c1 + c3 + c5 - c7) + z2 + z3,
        d5 * fixed(c1 + c3 - c5 + c7) + z2 + z4,
        d4 * fixed(-c1 + c3 + c5 - c7) + z1 + z3,
    )
    rows = [row for pair in zip(even, odd, strict=True) for row in pair]
    return torch.stack(rows).float().to(device)


def quality_tables(quality: Tensor) -> tuple[Tensor, Tensor]:
    """Return libjpeg's tables of luminance and chrominance for some qualities.

    >>> luminance, _ = quality_tables(torch.tensor([50.0, 90.0]))
    >>> luminance[:, 0, 0]
    tensor([16.,  3.])
    """
    percent = torch.where(quality < 50, torch.floor(5000.0 / quality), 200.0 - 2.0 * quality)
    tables = []
    for base in (_LUMINANCE, _CHROMINANCE):
        scaled = base.to(quality.device)[None] * percent[:, None, None]
        tables.append(torch.floor((scaled + 50.0) / 100.0).clamp(1.0, 255.0))
    return tables[0], tables[1]


def compress(x: Tensor, luminance: Tensor, chrominance: Tensor, *, subsample: bool) -> Tensor:
    """Return what is left of photos after JPEG, as libjpeg computes it to about a level.

    >>> photo = torch.full((1, 3, 16, 24), 100.0)
    >>> tables = quality_tables(torch.tensor([75.0]))
    >>> bool((compress(photo, *tables, subsample=True) == 100.0).all())
    True
    """
    height, width = x.shape[2:]
    x = F.pad(x, (0, -width % 16, 0, -height % 16), mode="replicate")
    ycc = torch.einsum("ij,njhw->nihw", _TO_YCC.to(x), x)
    y = torch.floor(ycc[:, :1] + 0.5)
    chroma = torch.floor(ycc[:, 1:] + (128.0 + 32767.0 / 65536.0))
    if subsample:
        # Sums of four are rounded with 1 and 2 in turn, from column to column.
        bias = torch.tensor([0.25, 0.5], device=x.device).repeat(chroma.shape[3] // 4)
        chroma = torch.floor(F.avg_pool2d(chroma, 2) + bias)
    y, chroma = _quantize(y, luminance), _quantize(chroma, chrominance)
    if subsample:
        # libjpeg's "fancy" upsampling has the weights 3/4 and 1/4 of the bilinear one.
        bias = torch.tensor([8.0 / 16.0, 7.0 / 16.0], device=x.device).repeat(chroma.shape[3])
        chroma = torch.floor(F.interpolate(chroma, scale_factor=2, mode="bilinear") + bias)
    blue, red = (chroma[:, i : i + 1] - 128.0 for i in (0, 1))
    rgb = [
        y + torch.floor(_RED * red + 0.5),
        y + torch.floor(_GREEN[0] * blue + _GREEN[1] * red + 0.5),
        y + torch.floor(_BLUE * blue + 0.5),
    ]
    return torch.cat(rgb, dim=1)[:, :, :height, :width].clamp(0.0, 255.0)


def _quantize(planes: Tensor, table: Tensor) -> Tensor:
    """Round the frequencies of 8 x 8 blocks to multiples of the steps of a table.

    As in libjpeg's transform of whole numbers, what goes from one of its two passes to the next is
    rounded: to a quarter of its unit, which is ``1/√8``.
    """
    n, channels, height, width = planes.shape
    cosines = libjpeg_matrix(planes.device)
    blocks = planes.reshape(n, channels, height // 8, 8, width // 8, 8).permute(0, 1, 2, 4, 3, 5)
    steps = table[:, None, None, None]
    quarters = torch.floor((blocks - 128.0) @ cosines.T * 4.0 + 0.5)
    eighths = torch.floor(cosines @ quarters / 4.0 + 0.5)
    # Halves are rounded away from 0.
    kept = eighths.sign() * torch.floor((eighths.abs() + 4.0 * steps) / (8.0 * steps)) * steps
    quarters = torch.floor(cosines.T @ kept * 4.0 + 0.5)
    back = torch.floor(quarters @ cosines / 32.0 + 128.5).clamp(0.0, 255.0)
    return back.permute(0, 1, 2, 4, 3, 5).reshape(n, channels, height, width)


def blur(x: Tensor, sigma: float) -> Tensor:
    """Return photos or masks, (n, channels, height, width), blurred by a Gaussian."""
    reach = max(1, math.ceil(3.0 * sigma))
    offset = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
    weights = torch.exp(-0.5 * (offset / sigma) ** 2)
    weights /= weights.sum()
    channels = x.shape[1]
    for shape, pad in (
        ((1, 1, 1, -1), (reach, reach, 0, 0)),
        ((1, 1, -1, 1), (0, 0, reach, reach)),
    ):
        kernel = weights.view(shape).repeat(channels, 1, 1, 1)
        x = F.conv2d(F.pad(x, pad, mode="reflect"), kernel, groups=channels)
    return x


def remosaic(x: Tensor, phase: tuple[int, int], demosaicer: str) -> Tensor:
    """Return photos as a sensor with a colour mosaic would see them, interpolated.

    ``phase``: row and column, each 0 or 1, of the first red filter.
    """
    height, width = x.shape[2:]
    known = torch.zeros(3, height, width, device=x.device, dtype=x.dtype)
    row, column = phase
    known[0, row::2, column::2] = 1.0
    known[2, 1 - row :: 2, 1 - column :: 2] = 1.0
    known[1] = 1.0 - known[0] - known[2]
    seen = x * known
    cross = torch.tensor([[0.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 0.0]])
    square = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]])
    kernels = (torch.stack([square, cross, square])[:, None] / 4.0).to(x)
    filled = F.conv2d(F.pad(seen, (1, 1, 1, 1), mode="reflect"), kernels, groups=3)
    if demosaicer == "gradient-corrected":
        # Red and blue follow the detail of green.
        green = filled[:, 1:2]
        detail = green - F.avg_pool2d(F.pad(green, (1, 1, 1, 1), mode="reflect"), 3, 1)
        filled = filled + 0.6 * detail * torch.tensor([1.0, 0.0, 1.0]).view(1, 3, 1, 1).to(x)
    return seen + (1.0 - known) * filled


def resize(x: Tensor, size: tuple[int, int], kernel: str, *, antialias: bool) -> Tensor:
    """Return photos of another size, (n, 3, *size), by one of `KERNELS`.

    ``antialias`` smooths a photo before it gets smaller; means of areas are smooth in any case.
    """
    if kernel == "area":
        return F.interpolate(x, size=size, mode=kernel)
    return F.interpolate(x, size=size, mode=kernel, antialias=antialias)


def keep_strong(detail: Tensor, threshold: float) -> Tensor:
    """Return detail with what is weaker than a threshold suppressed, as cameras do with noise.

    >>> keep_strong(torch.tensor([1.0, 4.0, 40.0]), 4.0).round(decimals=2)
    tensor([ 0.0600,  2.0000, 39.6000])
    """
    squares = detail * detail
    return detail * squares / (squares + threshold * threshold + _TINY)


@dataclass(frozen=True)
class Step:
    """One step of a history; photos of a batch go through it together.

    ``kind``: ``"noise"``, ``"mosaic"``, ``"denoise"``, ``"sharpen"``, ``"blur"``, ``"tone"``,
    ``"jpeg"``, ``"resize"`` or ``"turn"``.

    ``values``: its parameters. Those of ``"jpeg"`` and ``"turn"`` differ from photo to photo.
    """

    kind: str
    values: dict[str, Any]

    @property
    def scale(self) -> float:
        """By how much the sides get longer."""
        return float(self.values["scale"]) if self.kind == "resize" else 1.0

    def apply(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return the photos after the step, (n, 3, height, width)."""
        values = self.values
        if self.kind == "noise":
            spread = torch.sqrt(values["read"] ** 2 + values["shot"] * x.clamp(min=0.0))
            draw = torch.randn(x.shape, generator=generator, device=x.device)
            if values["grain"]:
                draw = blur(draw, values["grain"])
                draw = draw / draw.std()
            x = x + spread * draw
        elif self.kind == "mosaic":
            x = remosaic(x, values["phase"], values["demosaicer"])
        elif self.kind == "denoise":
            smooth = blur(x, values["sigma"])
            x = smooth + keep_strong(x - smooth, values["threshold"])
        elif self.kind == "sharpen":
            detail = keep_strong(x - blur(x, values["sigma"]), values["threshold"])
            x = x + values["amount"] * detail
        elif self.kind == "blur":
            x = blur(x, values["sigma"])
        elif self.kind == "tone":
            balance = torch.tensor(values["balance"], device=x.device).view(1, 3, 1, 1)
            x = 255.0 * (x.clamp(0.0, 255.0) / 255.0) ** values["gamma"] * balance
        elif self.kind == "jpeg":
            return compress(
                x.round().clamp(0.0, 255.0),
                values["luminance"],
                values["chrominance"],
                subsample=values["subsample"],
            )
        elif self.kind == "turn":
            x = _turn(x, values["angle"], values["zoom"])
        else:
            height, width = (max(16, round(self.scale * side)) for side in x.shape[2:])
            x = resize(x, (height, width), values["kernel"], antialias=values["antialias"])
        return x.round().clamp(0.0, 255.0)


def _turn(x: Tensor, angle: Tensor, zoom: Tensor) -> Tensor:
    """Rotate and scale each photo about its centre."""
    cos, sin = torch.cos(angle) / zoom, torch.sin(angle) / zoom
    ratio = x.shape[2] / x.shape[3]
    zero = torch.zeros_like(cos)
    rows = torch.stack(
        [
            torch.stack([cos, -sin * ratio, zero], dim=1),
            torch.stack([sin / ratio, cos, zero], dim=1),
        ],
        dim=1,
    )
    grid = F.affine_grid(rows, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False)
