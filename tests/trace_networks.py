"""Tiny trace networks that nobody trained, for the tests of what uses one."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from cpcapp.splicing import Preset, SpliceLocalizer
from cpcapp.splicing.decide.evidence import LikelihoodTable
from cpcapp.splicing.decide.options import RegionOptions
from cpcapp.splicing.decide.sides import TraceContrast
from cpcapp.splicing.decide.verdict import Calibration
from cpcapp.splicing.measure.jpeg_traces import N_JPEG_TRACES


def tiny_network(*, compares=True, seed=0):
    """A network with random weights and statistics; it may compare no block with the others."""
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    from cpcapp.splicing.networks.trace_network import NetworkOptions, TraceNetwork

    torch.manual_seed(seed)
    network = TraceNetwork(NetworkOptions(8, 1, 4, 16, 8, (1,), (1,), 3, 2, 8, 4)).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean, 0.0, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    comparison = network.far.comparison
    torch.nn.init.normal_(comparison.join.weight, 0.0, 0.2)
    # As layers are initialised, the last one leaves hardly anything of the photo.
    network.seam.layers[-1].weight.data *= 10.0
    if not compares:
        for layer in (comparison.contrast, comparison.join):
            torch.nn.init.zeros_(layer.weight)
    return network


@cache
def tiny_meter(*, compares=True, seed=0):
    """The same network as it runs without torch."""
    network = tiny_network(compares=compares, seed=seed)
    pytest.importorskip("onnx", reason="needs the extra torch")
    pytest.importorskip("onnxruntime", reason="needs the extra splicing")
    from cpcapp.splicing.networks.export import export_network

    return export_network(network, {"photos": 3})


def textured(height, width, seed=0):
    """A photo with smooth parts, edges and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    light = 110 + 50 * np.sin(x / 9) + 40 * (y > height / 2)
    noisy = light[..., None] + rng.normal(scale=12.0, size=(height, width, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def network_localizer(*, calibrated=True):
    """A localizer with a tiny network; what it has learned of photos is made up."""
    meter = tiny_meter()
    # Traces of the network and of JPEG, region, and pasted side.
    n_features = meter.facts["options"]["n_traces"] + N_JPEG_TRACES + 2
    rng = np.random.default_rng(0)
    moments = (rows.T @ rows / 20 for rows in rng.normal(size=(2, 20, n_features)))
    preset = Preset("traces", (), network=True, regions=RegionOptions(prior=0.0, trace_weight=0.5))
    calibration = Calibration(
        LikelihoodTable(np.array([-0.5, 0.5]), np.array([-1.0, 1.0])),
        np.array([2.0, -0.5, 1.0, 0.5, 0.25]),
        {"phones": rng.normal(size=30).round(3), "web": rng.normal(size=20).round(3)},
        traces=TraceContrast(*moments),
    )
    return SpliceLocalizer(
        preset, (), calibration=calibration if calibrated else None, network=meter
    )
