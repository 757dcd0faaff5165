"""A localizer on a device gives what it gives on the CPU."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cpcapp.splicing import FilterBank, load_model
from cpcapp.splicing.examples import example_photos
from cpcapp.splicing.measure.filters import BankOptions
from cpcapp.splicing.output.batch import open_model
from devices import on_each_device
from trace_networks import network_localizer, textured

from cpcapp.splicing.devices import DeviceFilterBank, to_device  # isort: skip


@on_each_device
class TestFilters:
    @pytest.mark.parametrize("channels", ["rgb", "error-level"])
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
    code = "import sys\nsys.modules['torch'] = None\nimport cpcapp.splicing.devices"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: a device needs torch; install it with: pip install 'cpcapp[torch]'"
    )
