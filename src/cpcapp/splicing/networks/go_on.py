"""Training on from a network as it is used: its graphs as a network that can be trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from cpcapp.splicing.devices.network import load_trace_network
from cpcapp.splicing.making.stream import SpliceBatch
from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork
from cpcapp.splicing.traces.learned import TraceMeter

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
    the network gives what the graphs do; trained, nearly so.

    Parameters
    ----------
    meter : TraceMeter
        Its weights have 16 bits.
    batches : sequence of SpliceBatch

    Returns
    -------
    TraceNetwork
        On the device of the batches.
    """
    device = batches[0].image.device
    used = load_trace_network(meter.stages, meter.facts).to(device)
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
