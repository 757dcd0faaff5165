"""``cpcapp train`` as a user runs it, also when it is killed on the way."""

from __future__ import annotations

import json
import os
import signal
from functools import partial

import pytest

from cpcapp.splicing import load_model
from cpcapp.splicing.model import save_network
from cpcapp.splicing.train import train
from photo_folders import save, spliced_picture, write_splices
from trace_networks import tiny_meter


@pytest.fixture(autouse=True)
def groups_of_four(monkeypatch):
    monkeypatch.setattr(train, "_PHOTOS_PER_UPDATE", 4)


@pytest.fixture
def run(run_command):
    return partial(run_command, "train")


@pytest.fixture
def spliced(tmp_path):
    """Ten spliced photos with masks, and an authentic one."""
    folder = write_splices(tmp_path / "spliced", 10)
    save(folder / "authentic" / "other.png", spliced_picture(99)[0])
    return folder


@pytest.fixture
def photos(tmp_path):
    """Photos that are not spliced."""
    for seed in range(6):
        save(tmp_path / "photos" / f"{seed}.png", spliced_picture(seed)[0])
    return tmp_path / "photos"


@pytest.fixture
def model(tmp_path):
    return tmp_path / "model.safetensors"


def test_trains_on_spliced_photos(run, spliced, model):
    result = run(spliced, "-o", model, "--preset", "paper", "--seed", 5)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no progress bar in a pipe
    bank, last = result.stdout.splitlines()
    found = load_model(model)
    facts = found.facts
    assert (found.name, facts["seed"], facts["data"]) == ("paper", 5, ["spliced"])
    assert facts["photos"] == {"used": 11, "given": 11}
    counts = facts["banks"][0]
    assert bank.startswith(
        f"rgb 16x16: {counts['target_patches']} seam and {counts['background_patches']} "
        "background patches, the top 50 eigenvectors overlap by "
    )
    assert last.startswith(f"{model}: preset paper, 11 photos, ")
    assert list(model.parent.glob("model*")) == [model]  # nothing is left of the checkpoint


def test_the_same_command_makes_the_same_file(run, photos, model):
    arguments = (photos, "-o", model, "--preset", "paper", "--splices", 8)
    assert run(*arguments).returncode == 0
    first = model.read_bytes()
    assert run(*arguments, "--force", "--jobs", 1).returncode == 0
    assert model.read_bytes() == first
    assert run(*arguments, "--force", "--seed", 1).returncode == 0
    assert model.read_bytes() != first


def test_photos_that_can_not_be_read_are_named(run, spliced, model):
    whole = (spliced / "images" / "3.png").read_bytes()
    (spliced / "images" / "3.png").write_bytes(whole[:-40])
    (spliced / "masks" / "7.png").unlink()
    result = run(spliced, "-o", model, "--preset", "paper")
    assert result.returncode == 1
    assert "left out" not in result.stdout
    left_out = result.stderr.splitlines()
    assert len(left_out) == 2
    assert left_out[0].startswith("cpcapp train: left out 7: ")
    assert left_out[1].startswith("cpcapp train: left out 3: ")
    assert "cut off" in left_out[1]
    assert load_model(model).facts["photos"] == {"used": 9, "given": 10}


def test_ctrl_c_keeps_what_is_done(run, photos, model, monkeypatch):
    save_state = train.Checkpoint.save

    def save_and_stop(self, state):
        save_state(self, state)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(train.Checkpoint.__init__, "__defaults__", (0.0,))
        patch.setattr(train.Checkpoint, "save", save_and_stop)
        result = run(photos, "-o", model, "--preset", "paper", "--splices", 8)
    assert (result.returncode, result.stderr) == (130, "cpcapp train: stopped\n")
    checkpoint = model.with_name(model.name + ".checkpoint")
    assert json.loads((checkpoint / "state.json").read_text())["next_photo"] == 4
    assert run(photos, "-o", model, "--preset", "paper", "--splices", 8).returncode == 0
    assert not checkpoint.exists()


def test_the_network_that_is_given_is_taken(run, spliced, model, tmp_path):
    save_network(tiny_meter(), tmp_path / "network")
    result = run(spliced, "-o", model, "--network", tmp_path / "network")
    assert result.returncode == 0, result.stderr
    found = load_model(model)
    assert found.name == "default"
    assert found.network.stages == tiny_meter().stages
