"""``--scheduler`` of commands: photos on the workers of a real Dask cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from clusters import start_cluster
from cpcapp.cli import main
from cpcapp.splicing import load_model
from photo_folders import spliced_picture, write_splices


@pytest.fixture(scope="module")
def scheduler():
    with start_cluster() as cluster:
        yield cluster.scheduler_address


def write_photo(path, seed, size=(72, 96)):
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


@pytest.fixture
def pairs(tmp_path):
    """Spliced photos, their masks, an authentic photo and one that can't be read."""
    folder = tmp_path / "pairs"
    write_splices(folder, 20)
    (folder / "authentic").mkdir()
    Image.fromarray(spliced_picture(99)[0]).save(folder / "authentic" / "other.png")
    (folder / "authentic" / "broken.png").write_bytes(b"no image")
    return folder


def train_to(output, *arguments):
    command = ["train", *map(str, arguments), "-o", str(output), "--preset", "paper"]
    return main(command)


def test_train_gives_the_model_of_one_machine(scheduler, pairs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status = train_to("cluster.safetensors", "pairs", "--scheduler", scheduler)
    # The exit status says that a photo was left out.
    assert status == 1 and "left out authentic/broken: " in capsys.readouterr().err
    assert train_to("here.safetensors", "pairs") == 1
    there, here = (load_model(tmp_path / f"{name}.safetensors") for name in ("cluster", "here"))
    for one, other in zip(there.banks, here.banks, strict=True):
        np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-8)
        np.testing.assert_allclose(one.filters, other.filters, atol=1e-4)
    assert there.threshold == here.threshold
    assert there.facts["photos"] == here.facts["photos"]
    assert len(there.facts["problems"]) == len(here.facts["problems"]) == 1
    assert not (tmp_path / "cluster.safetensors.checkpoint").exists()


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for number in range(6):
        write_photo(folder / f"{number}.jpg", number)
    write_photo(folder / "more" / "deep.png", 9)
    (folder / "broken.jpg").write_bytes(b"no image")
    return folder


def localize(*arguments):
    return main(["localize", *map(str, arguments), "--fast"])


def files_of(folder):
    """Return all files of results; what takes time is left out of them."""
    return {
        path.name: re.sub(rb'("seconds": |,)[\d.]+(?=,)', b"", path.read_bytes())
        for path in folder.iterdir()
        if path.suffix in (".json", ".png", ".jpg")
    }


def test_localize_gives_the_results_of_here(scheduler, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert localize("photos", "-o", "there", "--scheduler", scheduler) == 1
    printed = capsys.readouterr()
    assert "6 of 7 photos in" in printed.out
    assert printed.err.startswith(f"cpcapp localize: {photos}/broken.jpg: is not a JPEG")
    assert localize(photos, "-o", "here") == 1
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    assert len(list((tmp_path / "there").glob("*.json"))) == 6
    page = (tmp_path / "there" / "index.html").read_text()
    assert page.count("<tr") == 7 and "1 could not be read" in page


def test_localize_goes_on(scheduler, photos, tmp_path, capsys):
    out = tmp_path / "out"
    go_on = ["-o", out, "--scheduler", scheduler]
    assert localize(photos / "0.jpg", photos / "1.jpg", *go_on) == 0
    assert localize(photos, *go_on) == 2
    assert "is there already" in capsys.readouterr().err
    (out / "1.boundary.png").unlink()
    assert localize(photos, *go_on, "--resume", "--recursive") == 1
    printed = capsys.readouterr().out
    assert printed.count("(already done)") == 1
    assert printed.count("(made again: was not complete)") == 1
    assert len(list(out.glob("*.json"))) == 7
    assert localize(photos / "0.jpg", *go_on, "--force", "--json", "--report") == 0
    assert json.loads(capsys.readouterr().out)[0]["report"] == str(out / "0.report.html")


def test_localize_that_is_stopped_keeps_what_is_done(scheduler, tmp_path, capsys):
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    for number in range(30):
        write_photo(photos / f"{number}.png", number, (150, 200))
    command = [sys.executable, "-m", "cpcapp", "localize", str(photos), "-o", str(out), "--fast"]
    command += ["--scheduler", scheduler]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert b"0.overlay.png" in process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        assert b"cpcapp localize: stopped" in process.communicate(timeout=60)[1]
        assert process.returncode == 130
    done = len(list(out.glob("*.json")))
    assert 1 <= done < 30
    assert len((out / "summary.csv").read_text().splitlines()) == done + 1
    assert localize(photos, "-o", out, "--scheduler", scheduler, "--resume") == 0
    assert capsys.readouterr().out.count("(already done)") == done


def test_mistakes_take_one_line(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cpcapp.moments.dask._PATIENCE", 1.0)
    nowhere = ["--scheduler", "tcp://127.0.0.1:1"]
    for command in (
        ["localize", photos, "-o", tmp_path / "out", *nowhere],
        ["train", photos, "-o", tmp_path / "model", *nowhere],
    ):
        assert main([str(word) for word in command]) == 2
        message = capsys.readouterr().err
        assert "no scheduler answers at tcp://127.0.0.1:1; start one with" in message
        assert message.count("\n") == 1
