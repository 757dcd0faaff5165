"""From a trained network to the graphs that run on a CPU without torch."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

from cpcapp.splicing.measure.network import TraceMeter
from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork

_OPSET = 17


def margins(options: NetworkOptions) -> dict[str, int]:
    """Return how far each stage sees, in blocks.

    Each residual block has two convolutions of reach ``dilation``. At full resolution these are the
    mean of 3 x 3 pixels, the stem of 5 x 5, the residual blocks and the layer of details.

    >>> margins(NetworkOptions())
    {'pixels': 2, 'near': 16, 'far': 30, 'seam': 1}
    """
    pixels = 1 + 2 + 2 * options.pixel_blocks + 1
    return {
        "pixels": -(-pixels // 8),
        "near": 2 * sum(options.near),
        "far": 2 * sum(options.far),
        # Bilinear enlargement sees half a block, two convolutions two pixels.
        "seam": 1,
    }


def export_network(network: TraceNetwork, facts: dict[str, Any] | None = None) -> TraceMeter:
    """Return what measures photos with a network's weights, rounded to 16 bits.

    >>> tiny = TraceNetwork(NetworkOptions(8, 1, 4, 16, 8, (1,), (1,), 3, 2, 8, 4))
    >>> found = export_network(tiny).measure(np.zeros((40, 50, 3), np.uint8))
    >>> found.seam.shape, found.region.shape, found.vectors.shape
    ((40, 50), (5, 7), (5, 7, 4))
    """
    options = network.options
    copy = TraceNetwork(options)
    copy.load_state_dict({name: value.cpu() for name, value in network.state_dict().items()})
    network = copy.eval()
    photo, table = torch.zeros(1, 3, 64, 96), torch.zeros(1, 64)
    with torch.no_grad():
        blocks, detail = network.pixels(photo, table)
        parts = torch.zeros(1, options.block_channels, options.grid, options.grid)
        coarse = network.far(blocks, parts)[3]
    inputs: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...], int]] = {
        "pixels": (network.pixels, (photo, table), 1),
        "near": (network.near, (blocks,), 1),
        "far": (network.far, (blocks, parts), 1),
        "seam": (network.seam, (detail, coarse), 2),
    }
    stages = {
        name: _graph(module, tensors, dynamic)
        for name, (module, tensors, dynamic) in inputs.items()
    }
    known = {
        "options": options.to_dict(),
        "margins": margins(options),
        "grid": options.grid,
        "training": facts or {},
    }
    return TraceMeter(stages, known)


def _graph(module: nn.Module, inputs: tuple[torch.Tensor, ...], dynamic: int) -> bytes:
    names = [f"in{number}" for number in range(len(inputs))]
    axes = {name: {2: f"rows_{name}", 3: f"columns_{name}"} for name in names[:dynamic]}
    file = io.BytesIO()
    with warnings.catch_warnings():
        # The older exporter is asked for on purpose: the newer one needs another package.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Of the margins that are padded; the result is the same.
        warnings.filterwarnings("ignore", "Constant folding", UserWarning)
        torch.onnx.export(
            module,
            inputs,
            file,
            input_names=names,
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )
    return _halve(file.getvalue())


def _halve(graph: bytes) -> bytes:
    """Store the weights of a graph in 16 bits; what computes turns them into 32 when it loads."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load_from_string(graph)
    casts = []
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < 256:
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT))
    for cast in reversed(casts):
        model.graph.node.insert(0, cast)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
