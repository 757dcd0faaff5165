"""Tiny trace networks that nobody trained, for the tests of what uses one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cpcapp.splicing import SpliceLocalizer, load_model
from cpcapp.splicing.decide.evidence import LikelihoodTable, SeamEvidence
from cpcapp.splicing.decide.options import VerdictOptions
from cpcapp.splicing.decide.sides import SideContrast
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
    """The shipped filters with a tiny network; what it has learned of photos is made up."""
    shipped, meter = load_model("filters"), tiny_meter()
    # Traces of the network and of JPEG, region, and pasted side.
    n_features = meter.facts["options"]["n_traces"] + N_JPEG_TRACES + 2
    odds = LikelihoodTable(np.array([-0.5, 0.5]), np.array([-2.0, 2.0]))
    strength = LikelihoodTable(np.array([-3.0, 1.0]), np.array([-3.0, 3.0]))
    rng = np.random.default_rng(0)
    calibration = Calibration(
        SeamEvidence((strength, odds), (0.75, 0.5), prior=0.25, trace_weight=0.05),
        np.array([2.0, -0.5, -0.25, 1.0, 0.5, 0.25]),
        np.column_stack([rng.normal(size=(50, 3)), rng.normal(size=50)]).round(3),
        options=VerdictOptions(mean_width=9.0, mosaic_width=9.0, compression_width=9.0),
        sides=SideContrast(rng.normal(size=(n_features, 3)).round(4), np.array([4.0, 3.0, 2.0])),
    )
    preset = replace(shipped.preset, name="traces", network=True, verdict=calibration.options)
    return SpliceLocalizer(
        preset,
        shipped.banks,
        calibration=calibration if calibrated else None,
        network=meter,
    )
