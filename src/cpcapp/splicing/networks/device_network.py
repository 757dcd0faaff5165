"""A trace network on a device: the weights of a model's graphs in a `TraceNetwork`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork

_STAGES = ("pixels", "near", "far", "seam")


def load_trace_network(stages: dict[str, bytes], facts: dict[str, Any]) -> TraceNetwork:
    """Return the network whose graphs a model holds.

    Parameters
    ----------
    stages : dict of str to bytes
        The ONNX graphs, by the names of the stages.
    facts : dict
        With the network's ``options``.

    Returns
    -------
    TraceNetwork
        In float32 on the CPU, to be evaluated: normalization is part of the convolutions.

    Raises
    ------
    ValueError
        If the graphs are not those of a network of these options.
    """
    network = TraceNetwork(NetworkOptions.from_dict(facts["options"])).eval()
    _fold_norms(network)
    for name in _STAGES:
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
    return network.requires_grad_(False)


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


class DeviceNetwork:
    """Measures learned traces of photos on a device, several of one size at a time.

    Parameters
    ----------
    network : TraceNetwork
    device : torch.device or str
    """

    def __init__(self, network: TraceNetwork, device: Any) -> None:
        self.device = torch.device(device)
        self.network = network.to(self.device).to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def run(self, levels: Tensor, steps: Tensor) -> list[Tensor]:
        """Return seam, region, pasted side and traces of photos of whole blocks.

        Parameters
        ----------
        levels : tensor of shape (n, 3, height, width), uint8
            Height and width are multiples of 8.
        steps : tensor of shape (n, 64), float32
        """
        image = levels.to(self.device, torch.float32).contiguous(memory_format=torch.channels_last)
        return list(self.network(image, steps.to(self.device)))
