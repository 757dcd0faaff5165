"""A localizer on a device gives what it gives on the CPU."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cpcapp.splicing import FilterBank, load_model
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.measure.boundary import BankOptions
from cpcapp.splicing.output.model_identity import open_model
from devices import on_each_device, torch
from trace_networks import network_localizer, textured, tiny_meter, tiny_network

from cpcapp.splicing.devices.filters import DeviceFilterBank  # isort: skip
from cpcapp.splicing.devices.localizer import to_device  # isort: skip
from cpcapp.splicing.devices.network import DeviceTraceMeter, load_trace_network  # isort: skip

TABLE = np.arange(1, 65).reshape(8, 8)


def assert_same_traces(found, expected, atol):
    for name in ("seam", "region", "pasted", "vectors"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.shape == other.shape
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=atol)
    assert found.offset == expected.offset


class TestNetwork:
    def test_weights_come_back_from_the_graphs(self):
        network, meter = tiny_network(), tiny_meter()
        back = load_trace_network(meter.stages, meter.facts)
        photo = torch.from_numpy(textured(48, 64).transpose(2, 0, 1)[None].copy()).float()
        with torch.no_grad():
            outputs = [net(photo, torch.zeros(1, 64)) for net in (network, back)]
        for expected, found in zip(*outputs, strict=True):
            # The graphs hold 16 bits.
            np.testing.assert_allclose(found, expected, atol=2e-2 * float(expected.abs().max()))

    def test_graphs_of_another_network_are_refused(self):
        meter = tiny_meter()
        facts = meter.facts | {"options": meter.facts["options"] | {"block_channels": 32}}
        with pytest.raises(ValueError, match="not those of a network of its options"):
            load_trace_network(meter.stages, facts)

    @on_each_device
    @pytest.mark.parametrize(
        ("shape", "offset"), [((64, 96), (0, 0)), ((61, 83), (3, 5)), ((9, 40), (7, 1))]
    )
    def test_traces_are_those_of_onnx_runtime(self, device, shape, offset):
        meter = tiny_meter()
        photo = textured(*shape)
        found = DeviceTraceMeter(meter, device).measure(photo, TABLE, offset)
        # Of the seam, ONNX Runtime's detail is kept in 16 bits between two stages.
        assert_same_traces(found, meter.measure(photo, TABLE, offset), atol=3e-3)

    def test_traces_of_the_shipped_network(self):
        meter = load_model().network
        photo = textured(72, 88)
        found = DeviceTraceMeter(meter, "cpu").measure(photo, TABLE)
        expected = meter.measure(photo, TABLE)
        assert_same_traces(found, expected, atol=3e-3)
        for name in ("region", "pasted", "vectors"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-4
            )

    @on_each_device
    def test_a_photo_too_large_for_the_device_is_run_in_tiles(self, device, monkeypatch):
        meter, photo = DeviceTraceMeter(tiny_meter(), device), textured(120, 150)
        whole = meter.measure(photo, TABLE, (2, 3))
        monkeypatch.setattr(DeviceTraceMeter, "_most_pixels", lambda self: 100)
        limits = {"pixels": 60, "near": 90, "far": 90, "seam": 60}
        monkeypatch.setattr("cpcapp.splicing.measure.network._TILES", limits)
        shares = []
        tiles = meter.measure(photo, TABLE, (2, 3), progress=shares.append)
        assert_same_traces(tiles, whole, atol=3e-3)
        assert len(shares) > 4

    def test_sixteen_bits_and_progress(self):
        meter = DeviceTraceMeter(tiny_meter(), "cpu")
        photo, shares = textured(40, 48), []
        found = meter.measure(photo.astype(np.uint16) * 257, progress=shares.append)
        assert_same_traces(found, meter.measure(photo), atol=0.0)
        assert shares == [1.0]


@on_each_device
class TestFilters:
    @pytest.mark.parametrize("channels", ["rgb", "laplacian", "error-level"])
    @pytest.mark.parametrize(
        ("shape", "stride"), [((40, 56), 4), ((41, 59), 4), ((12, 12), 3), ((13, 30), 5)]
    )
    def test_map_and_power_are_those_of_numpy(self, rng, device, channels, shape, stride):
        options = BankOptions(
            channels,
            size=12,
            stride=stride,
            n_filters=6,
            weights="excess",
            variance_exponent=0.75,
            window="gaussian",
        )
        filters = rng.normal(size=(options.n_features, 6)).astype(np.float32)
        bank = FilterBank(options, filters, np.array([9.0, 5.0, 3.0, 2.0, 1.5, 1.2]))
        moved = DeviceFilterBank(options, filters, bank.eigenvalues, device)
        image = textured(*shape).astype(np.float32) / np.float32(255.0)
        (_, expected), (_, found) = bank.power(image), moved.power(image)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        (drawn, largest), (moved_map, moved_largest) = bank.map(image), moved.map(image)
        assert moved_largest == pytest.approx(largest, rel=1e-4)
        np.testing.assert_allclose(moved_map, drawn, atol=1e-5)
        assert moved_map.dtype == np.float32

    def test_bands(self, rng, device, monkeypatch):
        options = BankOptions("rgb", size=8, stride=3, n_filters=4)
        filters = rng.normal(size=(options.n_features, 4)).astype(np.float32)
        bank = DeviceFilterBank(options, filters, np.full(4, 2.0), device)
        image = textured(50, 40).astype(np.float32) / np.float32(255.0)
        whole = bank.power(image)[1]
        monkeypatch.setattr("cpcapp.splicing.devices.filters._MAX_OUTPUTS", 100)
        np.testing.assert_allclose(bank.power(image)[1], whole, rtol=1e-5)

    def test_a_flat_photo_has_no_power(self, rng, device):
        options = BankOptions("rgb", size=8, stride=4, n_filters=4)
        filters = rng.normal(size=(options.n_features, 4)).astype(np.float32)
        bank = DeviceFilterBank(options, filters, np.full(4, 2.0), device)
        found, largest = bank.map(np.full((30, 40, 3), 0.3, dtype=np.float32))
        assert largest == 0.0
        assert not found.any()


@on_each_device
class TestLocalizer:
    def test_verdicts_of_the_examples_are_the_same(self, device):
        localizer = load_model("filters")
        moved = to_device(localizer, device)
        for photo in example_photos()[:2]:
            expected, found = (model.localize(photo.photo) for model in (localizer, moved))
            assert found.verdict == expected.verdict
            assert found.p_value == pytest.approx(expected.p_value, abs=1e-3)
            np.testing.assert_allclose(found.boundary, expected.boundary, atol=2e-3)
            assert (found.mask != expected.mask).mean() < 1e-3

    def test_with_a_network(self, device):
        localizer = network_localizer()
        moved = to_device(localizer, device)
        photo = textured(120, 144)
        expected, found = localizer.localize(photo), moved.localize(photo)
        assert found.verdict == expected.verdict
        np.testing.assert_allclose(found.boundary, expected.boundary, atol=5e-3)
        assert moved.device == device
        assert localizer.device is None

    def test_it_is_still_the_model_of_its_file(self, device):
        expected = open_model("filters")[1]
        assert open_model(to_device(load_model("filters"), device))[1] == expected


def test_a_device_that_is_not_there():
    with pytest.raises(ValueError, match="device='cuda:99' can't be used here"):
        to_device(load_model("filters"), "cuda:99")


def test_without_torch_one_line_names_the_command():
    code = (
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        "import cpcapp.splicing.devices.localizer"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: a device needs torch; install it with: pip install 'cpcapp[torch]'"
    )
