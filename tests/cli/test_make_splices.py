"""``cpcapp make-splices`` as a user runs it, on small photos."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sysconfig
import time
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from cpcapp import __version__
from cpcapp.splicing.make.splices import SpliceMaker
from cpcapp.splicing.photo.samples import photos_from
from photo_folders import content, read

COMMAND = str(Path(sysconfig.get_path("scripts")) / "cpcapp")


@pytest.fixture
def run(run_command):
    return partial(run_command, "make-splices")


def write_photo(path, seed):
    noise = np.random.default_rng(seed).integers(0, 256, (12, 15, 3), dtype=np.uint8)
    cv2.imwrite(str(path), cv2.resize(noise, (90 + seed, 70), interpolation=cv2.INTER_CUBIC))


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(4):
        write_photo(folder / f"{seed}.png", seed)
    return folder


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def manifest(folder):
    return json.loads((folder / "manifest.json").read_bytes())


def test_writes_photos_masks_and_how_they_were_made(run, photos, out):
    result = run(photos, "-o", out, "--count", 8, "--seed", 5)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no progress bar in a pipe
    assert "8 splices of 4 photos" in result.stdout
    made = manifest(out)
    assert (made["version"], made["seed"]) == (__version__, 5)
    assert made["photos"] == ["0.png", "1.png", "2.png", "3.png"]
    assert made["options"]["area"] == [0.02, 0.35]
    maker = SpliceMaker(photos_from([photos]), seed=5)
    suffixes = set()
    for index, entry in enumerate(made["splices"]):
        image, mask = out / entry["image"], out / entry["mask"]
        sample = maker.sample(index)
        assert image.stem == mask.stem == entry["name"] == sample.name
        assert image.suffix == (".png" if entry["jpeg"] is None else ".jpg")
        np.testing.assert_array_equal(read(image), sample.image)
        np.testing.assert_array_equal(read(mask), 255 * sample.mask.astype(int))
        assert entry["area"] == pytest.approx(sample.mask.mean(), abs=1e-5)
        assert entry["host"] != entry["donor"]
        suffixes.add(image.suffix)
    assert suffixes == {".png", ".jpg"}
    assert len(content(out)) == 2 * 8 + 1


def test_the_jobs_change_nothing_but_the_seed_does(run, photos, tmp_path):
    for name, options in (
        ("one", ["--jobs", 1]),
        ("three", ["--jobs", 3]),
        ("other", ["--seed", 1]),
    ):
        assert run(photos, "-o", tmp_path / name, "--count", 6, *options).returncode == 0
    assert content(tmp_path / "one") == content(tmp_path / "three")
    assert content(tmp_path / "one") != content(tmp_path / "other")


def test_options_for_all_splices(run, photos, tmp_path):
    run(photos, "-o", tmp_path / "a", "--count", 5, "--jpeg", 80, "--feather", 2, "--size", 64)
    splices = manifest(tmp_path / "a")["splices"]
    assert {(s["jpeg"], s["feather"]) for s in splices} == {(80, 2.0)}
    reference = io.BytesIO()
    Image.new("RGB", (8, 8)).save(reference, "JPEG", quality=80)
    for splice in splices:
        with Image.open(tmp_path / "a" / splice["image"]) as file:
            assert file.quantization == Image.open(reference).quantization
            assert max(file.size) == 64
    run(photos, "-o", tmp_path / "b", "--count", 5, "--jpeg", "none", "--feather", 0)
    splices = manifest(tmp_path / "b")["splices"]
    assert {(s["jpeg"], s["feather"]) for s in splices} == {(None, 0.0)}
    run(photos, "-o", tmp_path / "c", "--count", 5, "--preset", "hard")
    splices = manifest(tmp_path / "c")["splices"]
    assert {(s["jpeg"], s["host_jpeg"], s["scale"]) for s in splices} == {(None, None, 1.0)}


def test_a_folder_in_use_is_kept_unless_told_otherwise(run, photos, out):
    assert run(photos, "-o", out, "--count", 4).returncode == 0
    first = content(out)
    result = run(photos, "-o", out, "--count", 2)
    assert result.returncode == 2
    assert result.stderr.startswith(f"cpcapp make-splices: {out} is not empty; choose another")
    assert len(result.stderr.splitlines()) == 1
    assert content(out) == first
    (out / "images" / "mine.png").write_bytes(b"kept")
    assert run(photos, "-o", out, "--count", 2, "--seed", 9, "--force").returncode == 0
    assert len(manifest(out)["splices"]) == 2
    after = content(out)
    assert after.pop("images/mine.png") == b"kept"
    assert len(after) == 2 * 2 + 1


def test_going_on(run, photos, tmp_path, out):
    assert run(photos, "-o", out, "--count", 4).returncode == 0
    (out / "masks" / "splice00001.png").unlink()
    kept = out / "masks" / "splice00002.png"
    kept.write_bytes(b"made before")
    result = run(photos, "-o", out, "--count", 7, "--resume")
    assert result.returncode == 0, result.stderr
    assert "4 splices of 4 photos" in result.stdout
    assert "3 were there" in result.stdout
    assert kept.read_bytes() == b"made before"
    run(photos, "-o", tmp_path / "fresh", "--count", 7)
    fresh, resumed = content(tmp_path / "fresh"), content(out)
    del fresh["masks/splice00002.png"], resumed["masks/splice00002.png"]
    assert fresh == resumed
    # Asking for fewer keeps the others.
    assert run(photos, "-o", out, "--count", 2, "--resume").returncode == 0
    assert len(manifest(out)["splices"]) == 7


def test_going_on_with_something_else(run, photos, out):
    assert run(photos, "-o", out, "--count", 2).returncode == 0
    result = run(photos, "-o", out, "--resume", "--seed", 3)
    assert result.returncode == 2
    assert "was made with other seed; choose another folder, or give the same" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_photos_that_can_not_be_read_are_left_out_and_listed(run, photos, tmp_path, out):
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
    (photos / "empty.png").touch()
    result = run(photos, "-o", out, "--count", 3)
    assert result.returncode == 1
    assert "3 splices of 4 photos" in result.stdout
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("cpcapp make-splices: left out broken.jpg: ")
    assert lines[1].startswith("cpcapp make-splices: left out empty.png: ")
    assert manifest(out)["photos"] == ["0.png", "1.png", "2.png", "3.png"]
    result = run(photos / "0.png", photos / "broken.jpg", "-o", tmp_path / "none")
    assert result.returncode == 2
    assert "1 photos can be read, at least two are needed; broken.jpg: " in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "none").exists()


def test_the_folder_of_bsds_gives_things_and_not_its_test_photos(run, tmp_path, out):
    for number, split in enumerate(("train", "train", "val", "test")):
        for kind in ("images", "groundTruth"):
            (tmp_path / "bsds" / kind / split).mkdir(parents=True, exist_ok=True)
        write_photo(tmp_path / "bsds" / "images" / split / f"{number}.jpg", number)
        labels = np.ones((70, 90 + number), dtype=np.uint16)
        cv2.circle(labels, (40, 35), 20, 2, -1)
        truth = np.empty((1, 1), dtype=object)
        truth[0, 0] = {"Segmentation": labels}
        path = tmp_path / "bsds" / "groundTruth" / split / f"{number}.mat"
        savemat(path, {"groundTruth": truth})
    # Twice the same folder is once.
    result = run(tmp_path / "bsds", f"{tmp_path}/bsds/", "-o", out, "--count", 12)
    assert result.returncode == 0, result.stderr
    assert manifest(out)["photos"] == ["train/0", "train/1", "val/2"]
    assert "segments" in {splice["shape"] for splice in manifest(out)["splices"]}


def test_interrupting_leaves_whole_files_to_go_on_from(run, photos, out):
    command = [COMMAND, "make-splices", str(photos), "-o", str(out), "--count", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            while process.poll() is None and not list(out.glob("masks/splice00009.png")):
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGINT
    assert errors == b"cpcapp make-splices: stopped\n"
    assert not list(out.rglob("*.part"))
    done = len(manifest(out)["splices"])
    assert done >= 4  # all but those that were under way
    result = run(photos, "-o", out, "--count", done + 2, "--resume")
    assert result.returncode == 0, result.stderr
    assert f"{done} were there" in result.stdout
    assert len(manifest(out)["splices"]) == done + 2
