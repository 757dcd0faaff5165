"""A training in a folder, for a second on the processor."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch", reason="needs the extra torch")

from cpcapp.splicing.make.stream import StreamOptions
from cpcapp.splicing.model import load_network
from cpcapp.splicing.networks.run import draw_curve, train_in_folder
from cpcapp.splicing.networks.trace_network import NetworkOptions

TINY = NetworkOptions(4, 1, 4, 8, 8, (1,), (1,), 2, 2, 4, 4)


def save_photos(folder, count):
    folder.mkdir()
    for seed in range(count):
        noise = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        large = Image.fromarray(noise).resize((160, 120), Image.Resampling.BICUBIC)
        large.save(folder / f"{seed}.png")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("network")
    shares = []
    found = train_in_folder(
        [save_photos(root / "photos", 24)],
        root / "run",
        seconds=0.5,
        workers=0,
        network=TINY,
        stream=StreamOptions(size=64, group=8),
        batch=8,
        n_validation=8,
        progress=shares.append,
    )
    return found, root / "run", shares


def is_picture(path):
    with Image.open(path) as picture:
        picture.load()
        assert picture.format == "PNG"
        return np.asarray(picture.convert("RGB")).std() > 5.0


def test_the_network_of_a_training_can_be_loaded_and_measures(trained):
    found, folder, shares = trained
    network = load_network(folder / "network.safetensors")
    facts = network.facts["training"]
    assert facts["steps"] == found.step > 0
    assert facts["photos"] == 24
    assert network.facts["options"] == json.loads(json.dumps(TINY.to_dict()))
    assert facts["scores"] == found.curve[-1]
    held = facts["held_out_photos"]
    assert 0 < len(held) < 12
    assert set(held) < {str(number) for number in range(24)}
    photo = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    traces = network.measure(photo)
    assert traces.seam.shape == (50, 70)
    assert traces.vectors.shape == (7, 9, 4)
    assert np.isfinite(traces.seam).all()
    assert shares[-1] == 1.0
    assert found.problems == ()


def test_the_curve_is_a_picture(trained):
    assert is_picture(trained[1] / "curve.png")


def test_a_curve_of_several_scores(tmp_path):
    names = ("seam", "region", "pasted", "traces", "photo")
    curve = [
        {
            "seconds": 10.0 * step,
            **{f"loss_{name}": 1.0 / (step + 1) for name in names},
            **{f"{name}_f1": 0.1 * step for name in names[:3]},
            "verdict_auc": 0.5,
        }
        for step in range(5)
    ]
    draw_curve(curve, tmp_path / "curve.png")
    assert is_picture(tmp_path / "curve.png")


def test_a_network_needs_photos(tmp_path):
    with pytest.raises(ValueError, match=r"23 photos can be read; a network needs at least 24"):
        train_in_folder([save_photos(tmp_path / "photos", 23)], tmp_path / "run", seconds=1.0)
    assert not (tmp_path / "run").exists()
