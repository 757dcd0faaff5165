"""A trace network on a device: the weights of a model's graphs in a `TraceNetwork`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cpcapp.splicing.measure.network import (
    STAGES,
    LearnedTraces,
    TraceMeter,
    as_levels,
    steps_of,
)
from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork
from cpcapp.splicing.photo.jpeg import BLOCK

# What a photo takes at most: eight maps of 32 channels in float32, the padded input, and the rest.
_BYTES_PER_PIXEL = 1500
# On a CPU tiles stay in its cache.
_MAX_CPU_PIXELS = 1_000_000


def load_trace_network(stages: dict[str, bytes], facts: dict[str, Any]) -> TraceNetwork:
    """Return the network whose graphs a model holds.

    In float32 on the CPU, to be evaluated: normalization is part of the convolutions.
    """
    network: TraceNetwork = TraceNetwork(NetworkOptions.from_dict(facts["options"]))
    network.eval()
    _fold_norms(network)
    for name in STAGES:
        module = getattr(network, name)
        layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
        weights = _convolutions(stages[name])
        if [tuple(layer.weight.shape) for layer in layers] != [w.shape for w, _ in weights]:
            raise ValueError(
                f"stage {name!r} has {len(weights)} convolutions that are not those of a network "
                f"of its options, {len(layers)}; run it on the CPU"
            )
        for layer, (weight, bias) in zip(layers, weights, strict=True):
            layer.weight.data = torch.from_numpy(weight)
            layer.bias.data = torch.from_numpy(bias)
    network.requires_grad_(False)
    return network


def _fold_norms(module: nn.Module) -> None:
    """Give convolutions before a normalization a bias, and drop the normalization.

    The graphs have it so: their weights are those of both.
    """
    for child in module.children():
        _fold_norms(child)
        if not isinstance(child, nn.Sequential):
            continue
        layers = list(child)
        for number, (layer, after) in enumerate(itertools.pairwise(layers)):
            if isinstance(layer, nn.Conv2d) and isinstance(after, nn.BatchNorm2d):
                layer.bias = nn.Parameter(torch.zeros(layer.out_channels))
                child[number + 1] = nn.Identity()


def _convolutions(graph: bytes) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Return weight and bias of each convolution of a graph, in the order they are run."""
    import onnx
    from onnx import numpy_helper

    content = onnx.load_from_string(graph).graph
    arrays = {entry.name: numpy_helper.to_array(entry) for entry in content.initializer}
    for node in content.node:
        # Weights are stored in 16 bits and made 32 by the graph.
        if node.op_type == "Cast" and node.input[0] in arrays:
            arrays[node.output[0]] = arrays[node.input[0]]
    return [
        (arrays[node.input[1]].astype(np.float32), arrays[node.input[2]].astype(np.float32))
        for node in content.node
        # Of the frequencies only the basis is no weight, and it has no bias.
        if node.op_type == "Conv" and len(node.input) == 3
    ]


class DeviceTraceMeter(TraceMeter):
    """Measures learned traces on a device.

    A photo that fits into the memory of the device is measured as a whole, others tile by tile.

    Parameters
    ----------
    meter : TraceMeter
        Whose graphs and facts are taken.
    device : torch.device or str
    """

    def __init__(self, meter: TraceMeter, device: Any) -> None:
        super().__init__(meter.stages, meter.facts)
        self.device = torch.device(device)
        self.network = load_trace_network(self.stages, self.facts).to(self.device)
        self.network.to(memory_format=torch.channels_last)

    def measure(
        self,
        image: NDArray[Any],
        table: NDArray[Any] | None = None,
        offset: tuple[int, int] = (0, 0),
        *,
        progress: Callable[[float], None] | None = None,
        after_pixels: Callable[[], object] | None = None,
    ) -> LearnedTraces:
        """Measure a photo; see `TraceMeter.measure`."""
        height, width = image.shape[:2]
        if height * width > self._most_pixels():
            return super().measure(
                image, table, offset, progress=progress, after_pixels=after_pixels
            )
        top, left = ((-start) % BLOCK for start in offset)
        rows, columns = -(-(height + top) // BLOCK), -(-(width + left) // BLOCK)
        sides = (top, rows * BLOCK - top - height), (left, columns * BLOCK - left - width)
        # Filled up to whole blocks with the pixels of the border, as JPEG does it.
        levels = np.pad(as_levels(image), (*sides, (0, 0)), mode="edge")
        planes = torch.from_numpy(levels).to(self.device).permute(2, 0, 1)[None]
        seam, region, pasted, traces = self.run(planes, torch.from_numpy(steps_of(table)))
        inside = seam[0, 0, top : top + height, left : left + width]
        if after_pixels is not None:
            after_pixels()
        if progress is not None:
            progress(1.0)
        return LearnedTraces(
            _array(inside),
            _array(region[0, 0]),
            _array(pasted[0, 0]),
            _array(traces[0].permute(1, 2, 0)),
            (offset[0] % BLOCK, offset[1] % BLOCK),
        )

    def run(self, levels: Tensor, steps: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return seam, region, pasted side and traces of photos of one size."""
        image = levels.to(self.device, torch.float32).contiguous(memory_format=torch.channels_last)
        with torch.inference_mode(), _exact_convolutions():
            found = self.network(image, steps.to(self.device))
        return found.seam, found.region, found.pasted, found.traces

    def _run(self, stage: str, inputs: list[NDArray[Any]], *, release: bool = False) -> list[Any]:
        """Run a stage on a tile."""
        if release:
            return []
        given = [torch.from_numpy(np.ascontiguousarray(part)).to(self.device) for part in inputs]
        with torch.inference_mode(), _exact_convolutions():
            found = getattr(self.network, stage)(*given)
        return [_array(part) for part in (found if isinstance(found, tuple) else (found,))]

    def open(self) -> None:
        """Nothing is left to prepare."""

    def _most_pixels(self) -> int:
        if self.device.type != "cuda":
            return _MAX_CPU_PIXELS
        free, _ = torch.cuda.mem_get_info(self.device)
        return int(free // _BYTES_PER_PIXEL)


def _array(part: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(part.float().cpu().numpy())


@contextmanager
def _exact_convolutions() -> Iterator[None]:
    """Convolve float32 in float32: TF32, which torch takes by itself, has three digits."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
