"""``--device`` of ``cpcapp localize``."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from cpcapp.cli import main
from devices import DEVICES
from trace_networks import textured


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(2):
        Image.fromarray(textured(96, 120, seed)).save(folder / f"{seed}.png")
    return folder


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_the_same_and_count_as_done(photos, tmp_path, capsys, device):
    """Another run without a device keeps them: photo and model are the same."""
    entries = {}
    for name, options in (("cpu", []), ("device", ["--device", device])):
        out = tmp_path / name
        assert main(["localize", str(photos), "-o", str(out), "--fast", *options]) == 0
        entries[name] = [json.loads((out / f"{n}.json").read_text()) for n in (0, 1)]
    for one, other in zip(entries["cpu"], entries["device"], strict=True):
        assert one["verdict"] == other["verdict"]
        assert one["model"] == other["model"]
        assert one["p_value"] == pytest.approx(other["p_value"], abs=1e-3)
    capsys.readouterr()
    out = str(tmp_path / "device")
    assert main(["localize", str(photos), "-o", out, "--fast", "--resume"]) == 0
    assert capsys.readouterr().out.count("(already done)") == 2
