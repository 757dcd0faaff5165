"""``cpcapp train`` as a user runs it, also when it is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from PIL import Image

from cpcapp.cli import main
from cpcapp.splicing import load_model
from cpcapp.splicing.model import save_network
from cpcapp.splicing.train import train
from trace_networks import tiny_meter

SHAPE = (48, 64)

# The command, keeping its state after every four photos. It stops by itself where HANG says, to be
# killed there: in the middle of writing the second state, or of calibration.
DRIVER = """
import os, sys, time
from pathlib import Path
from cpcapp import Moments
from cpcapp.cli import main
from cpcapp.splicing.train import calibrate, train

train._PHOTOS_PER_UPDATE = calibrate._PHOTOS_PER_SAVE = 4
train.Checkpoint.__init__.__defaults__ = (0.0,)
hang, ready = os.environ["HANG"], Path(os.environ["READY"])
save, save_moments, saved = train.Checkpoint.save, Moments.save, []
save_part = train.Checkpoint.save_part

def wait_if(due):
    if due:
        ready.touch()
        time.sleep(600)

def save_state(self, state):
    save(self, state)
    saved.append(state)

def save_moments_and_wait(self, path):
    save_moments(self, path)
    wait_if(hang == "within" and saved)

def save_part_and_wait(self, start, stop, arrays):
    save_part(self, start, stop, arrays)
    wait_if(hang == "calibration" and stop == 12)

train.Checkpoint.save_part = save_part_and_wait
train.Checkpoint.save = save_state
Moments.save = save_moments_and_wait
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def groups_of_four(monkeypatch):
    monkeypatch.setattr(train, "_PHOTOS_PER_UPDATE", 4)


@pytest.fixture
def run(run_command):
    return partial(run_command, "train")


def test_a_folder_in_place_of_the_model_is_told_at_once(run, spliced, tmp_path):
    (tmp_path / "model").mkdir()
    result = run(spliced, "-o", tmp_path / "model", "--force")
    assert result.returncode == 2
    assert result.stderr.endswith("model is not a file; choose another name\n")


def picture(seed):
    """Rough blocks, and a smoother part with its mask."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 90, (*SHAPE, 3)) + rng.integers(0, 60, 3)
    pixels[: rng.integers(15, 30), rng.integers(20, 40) :] += rng.integers(30, 90, 3)
    mask = np.zeros(SHAPE, dtype=np.uint8)
    mask[16:40, 12 + seed % 9 : 44 + seed % 9] = 255
    smooth = rng.integers(60, 200, 3) + rng.integers(0, 9, pixels.shape)
    return np.where(mask[..., None] > 0, smooth, pixels).clip(0, 255).astype(np.uint8), mask


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def spliced(tmp_path):
    """Ten spliced photos with masks, and an authentic one."""
    folder = tmp_path / "spliced"
    for seed in range(10):
        for part, pixels in zip(("images", "masks"), picture(seed), strict=True):
            save(folder / part / f"{seed}.png", pixels)
    save(folder / "authentic" / "other.png", picture(99)[0])
    return folder


def write_photos(folder):
    for seed in range(6):
        save(folder / f"{seed}.png", picture(seed)[0])
    return folder


@pytest.fixture
def photos(tmp_path):
    """Photos that are not spliced."""
    return write_photos(tmp_path / "photos")


@pytest.fixture
def model(tmp_path):
    return tmp_path / "model.safetensors"


def assert_mistake(result, message):
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.startswith("cpcapp train: ")
    assert len(result.stderr.splitlines()) == 1


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


def test_a_file_that_exists_is_kept(run, spliced, model):
    model.write_text("mine")
    result = run(spliced, "-o", model)
    assert_mistake(result, f"{model} exists; choose another name, or --force to replace it")
    assert model.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--splices", 0], "--splices 0 must be at least 1"),
        (["--seed", -1], "--seed -1 must be at least 0"),
        (["--jobs", 0], "--jobs 0 must be at least 1"),
        (["-o", "nowhere/model"], "there is no folder nowhere to write to"),
    ],
)
def test_options_out_of_range(run, photos, model, options, message):
    assert_mistake(run(photos, "-o", model, *options), message)


def test_wrong_places(run, spliced, photos, model, tmp_path):
    assert_mistake(run(tmp_path / "none", "-o", model), "none is not a folder")
    assert_mistake(run(spliced, photos, "-o", model), "either spliced photos with masks or plain")
    assert not model.exists()


def wait_for(path, process, seconds=60.0):
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


KILLED = ("--preset", "paper", "--splices", 15, "--seed", 2)


@pytest.fixture(scope="module")
def not_killed(tmp_path_factory):
    """The model of a training that nobody has killed."""
    folder = tmp_path_factory.mktemp("whole")
    arguments = (write_photos(folder / "photos"), *KILLED, "-o", folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "_PHOTOS_PER_UPDATE", 4)
        assert main(["train", *map(str, arguments)]) == 0
    return (folder / "model").read_bytes()


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("hang", ["within", "calibration"])
def test_a_killed_training_goes_on_and_ends_the_same(run, not_killed, photos, tmp_path, hang):
    arguments = (photos, *KILLED)
    checkpoint = kill_training(arguments, tmp_path, hang)
    kept = json.loads((checkpoint / "state.json").read_text())["next_photo"]
    assert kept == (4 if hang == "within" else 15)
    files = {file.name for file in checkpoint.iterdir()}
    # In the middle of writing, half of the next state is there as well.
    assert len(files) == 3 + (1 if hang == "within" else 3)

    # Another training does not go on from there, and leaves all that counts as it is.
    model = tmp_path / "model"
    result = run(*arguments, "-o", model, "--seed", 3)
    assert_mistake(result, "belongs to another training (other photos, preset, seed or version)")
    assert "remove it to start anew" in result.stderr
    # What the killed one left half-written is of no use to anybody, and goes.
    whole = {name for name in files if not name.endswith(".part")}
    assert {file.name for file in checkpoint.iterdir()} - files == set()
    assert {file.name for file in checkpoint.iterdir()} >= whole

    assert run(*arguments, "-o", model).returncode == 0
    assert model.read_bytes() == not_killed
    assert not checkpoint.exists()


def kill_training(arguments, tmp_path, hang):
    """Kill a training where it hangs, and return its checkpoint."""
    model, ready = tmp_path / "model", tmp_path / "ready"
    command = [sys.executable, "-c", DRIVER, "train", *map(str, arguments), "-o", str(model)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "HANG": hang, "READY": str(ready)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        wait_for(ready, process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not model.exists()
    return tmp_path / "model.checkpoint"


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
def test_ctrl_c(photos, model, tmp_path):
    command = [sys.executable, "-c", DRIVER, "train", str(photos), "-o", str(model)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "HANG": "within", "READY": str(tmp_path / "ready")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(tmp_path / "ready", process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert errors == "cpcapp train: stopped\n"
    assert (tmp_path / "model.safetensors.checkpoint" / "state.json").exists()


# -- with a network of one's own ---------------------------------------------------------------


def test_a_network_goes_with_the_default_preset_only(run, spliced, model, tmp_path):
    for preset in ("filters", "paper"):
        result = run(spliced, "-o", model, "--preset", preset, "--network", tmp_path / "n")
        assert_mistake(result, f"--network does not go with --preset {preset}")
    assert not model.exists()


def test_the_network_that_is_given_is_taken(run, spliced, model, tmp_path):
    save_network(tiny_meter(), tmp_path / "network")
    result = run(spliced, "-o", model, "--network", tmp_path / "network")
    assert result.returncode == 0, result.stderr
    found = load_model(model)
    assert found.name == "default"
    assert found.network.stages == tiny_meter().stages
