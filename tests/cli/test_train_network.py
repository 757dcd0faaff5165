"""The command on the processor, for a few seconds: that it learns takes a GPU."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from cpcapp.cli import main

pytest.importorskip("torch", reason="needs the extra torch")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(24):
        noise = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((160, 120), Image.Resampling.BICUBIC).save(
            folder / f"{seed}.png"
        )
    return folder


@pytest.fixture
def small(monkeypatch):
    from cpcapp.splicing.make.stream import StreamOptions
    from cpcapp.splicing.networks import run
    from cpcapp.splicing.networks.loop import TrainingPlan
    from cpcapp.splicing.networks.trace_network import NetworkOptions

    monkeypatch.setattr(
        run, "NetworkOptions", lambda: NetworkOptions(4, 1, 4, 8, 8, (1,), (1,), 2, 2, 4, 4)
    )
    monkeypatch.setattr(run, "StreamOptions", lambda group: StreamOptions(size=64, group=8))
    few = {"batch": 8, "n_validation": 8, "validate_every": 1e6}
    monkeypatch.setattr(run, "TrainingPlan", lambda **given: TrainingPlan(**given | few))


def test_it_trains_in_pieces(photos, tmp_path, small, capsys):
    (photos / "phone.cr2").write_bytes(b"not read")
    arguments = ["train-network", str(photos), "-o", str(tmp_path / "run"), "--workers", "0"]
    assert main([*arguments, "--seconds", "30", "--piece", "1"]) == 1
    out, err = capsys.readouterr()
    assert "steps in" in out
    assert "left out phone.cr2" in err
    first = json.loads((tmp_path / "run" / "run.json").read_text())
    main([*arguments, "--seconds", "30", "--piece", "1"])
    second = json.loads((tmp_path / "run" / "run.json").read_text())
    assert second["step"] > first["step"] > 0
    assert second["piece"] == 2
    assert second["curve"][: len(first["curve"])] == first["curve"]
