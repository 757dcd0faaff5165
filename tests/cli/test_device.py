"""``--device`` of ``cpcapp localize`` and ``cpcapp train``."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from PIL import Image

from cpcapp.cli import main
from cpcapp.splicing import load_model
from devices import DEVICES
from trace_networks import textured


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(2):
        Image.fromarray(textured(96, 120, seed)).save(folder / f"{seed}.png")
    return folder


@pytest.fixture
def spliced(tmp_path):
    """Photos with a smoother part, and their masks."""
    for seed in range(10):
        photo, mask = textured(48, 64, seed), np.zeros((48, 64), dtype=np.uint8)
        mask[16:40, 12 + seed : 44 + seed] = 255
        smooth = textured(48, 64, seed + 50) // 8 + 100
        made = {"images": np.where(mask[..., None] > 0, smooth, photo), "masks": mask}
        for part, pixels in made.items():
            (tmp_path / "spliced" / part).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(
                tmp_path / "spliced" / part / f"{seed}.png"
            )
    return tmp_path / "spliced"


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


@pytest.mark.parametrize("device", DEVICES)
def test_trained_filters_are_the_same(spliced, tmp_path, device):
    found = []
    for name, options in (("cpu", []), ("device", ["--device", device])):
        path = tmp_path / f"{name}.safetensors"
        assert main(["train", str(spliced), "-o", str(path), "--preset", "paper", *options]) == 0
        found.append(load_model(path).banks[0])
    np.testing.assert_allclose(found[1].eigenvalues, found[0].eigenvalues, rtol=1e-5)


@pytest.mark.parametrize("command", ["localize", "train"])
def test_a_device_that_is_not_there(photos, spliced, tmp_path, capsys, command):
    data = photos if command == "localize" else spliced
    assert main([command, str(data), "-o", str(tmp_path / "out"), "--device", "cuda:99"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"cpcapp {command}: device='cuda:99' can't be used here; use 'cpu', or")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("command", ["localize", "train"])
def test_without_torch(photos, tmp_path, capsys, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main([command, str(photos), "-o", str(tmp_path / "out"), "--device", "cuda"]) == 2
    assert capsys.readouterr().err == (
        f"cpcapp {command}: needs torch; install it with: pip install 'cpcapp[torch]'\n"
    )
