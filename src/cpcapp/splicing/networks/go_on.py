"""Training on from a network as it is used: its graphs as a network that can be trained."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cpcapp.splicing.make.stream import SpliceBatch
from cpcapp.splicing.measure.network import STAGES, TraceMeter
from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork

# Root mean square of the weights of a normalized convolution. Its scale changes no output, but by
# how much a step of the optimizer turns it: in a long training weights grow to about this.
_WEIGHT = 0.1
# A channel that is constant on all splices.
_TINY = 1e-12


@torch.no_grad()
def trainable_network(meter: TraceMeter, batches: Sequence[SpliceBatch]) -> TraceNetwork:
    """Return a network that measures what a meter does, with its normalizations.

    In the graphs of a meter, normalizations are part of the convolutions. Here each gets the mean
    and variance of its channel on some splices, and the gain and offset that undo them: evaluated,
    the network gives what the graphs do; trained, nearly so. It is on the device of the batches.
    """
    device = batches[0].image.device
    used = _used_network(meter.stages, meter.facts).to(device)
    network = TraceNetwork(NetworkOptions.from_dict(meter.facts["options"])).to(device).eval()
    convolutions = {
        name: layer for name, layer in used.named_modules() if isinstance(layer, nn.Conv2d)
    }
    statistics = _channel_statistics(used, convolutions, batches)
    norms = dict(_normalized(network))
    for name, mine in network.named_modules():
        if not isinstance(mine, nn.Conv2d):
            continue
        theirs = convolutions[name]
        assert theirs.bias is not None
        if name not in norms:
            assert mine.bias is not None
            mine.weight.copy_(theirs.weight)
            mine.bias.copy_(theirs.bias)
            continue
        norm, (mean, variance) = norms[name], statistics[name]
        assert norm.running_mean is not None and norm.running_var is not None
        size = theirs.weight.square().mean(dim=(1, 2, 3)).sqrt()
        factor = torch.where(size > _TINY, _WEIGHT / size.clamp(min=_TINY), torch.ones_like(size))
        mine.weight.copy_(theirs.weight * factor[:, None, None, None])
        norm.running_mean.copy_(mean * factor)
        norm.running_var.copy_(variance * factor.square())
        norm.weight.copy_((norm.running_var + norm.eps).sqrt() / factor)
        norm.bias.copy_(theirs.bias + mean)
    return network


def _normalized(network: nn.Module) -> Iterator[tuple[str, nn.BatchNorm2d]]:
    """Yield the names of convolutions, and the normalizations that follow them."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Sequential):
            layers = list(module)
            for number, after in enumerate(layers[1:]):
                if isinstance(layers[number], nn.Conv2d) and isinstance(after, nn.BatchNorm2d):
                    yield f"{name}.{number}", after


def _channel_statistics(
    network: nn.Module, convolutions: dict[str, nn.Conv2d], batches: Sequence[SpliceBatch]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return mean and variance of the channels of convolutions, less their bias."""
    sums: dict[str, list[Tensor]] = {name: [] for name in convolutions}

    def add(name: str, output: Tensor, bias: Tensor) -> None:
        values = (output - bias[:, None, None]).double()
        sums[name].append(
            torch.stack([values.mean(dim=(0, 2, 3)), values.square().mean(dim=(0, 2, 3))])
        )

    hooks = [
        layer.register_forward_hook(
            lambda layer, _, output, name=name: add(name, output, layer.bias)
        )
        for name, layer in convolutions.items()
    ]
    for batch in batches:
        network(batch.image, batch.table)
    for hook in hooks:
        hook.remove()
    found = {}
    for name, entries in sums.items():
        mean, square = torch.stack(entries).mean(dim=0)
        found[name] = mean.float(), (square - mean.square()).clamp(min=0.0).float()
    return found


def _used_network(stages: dict[str, bytes], facts: dict[str, Any]) -> TraceNetwork:
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
                f"of its options, {len(layers)}"
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
