"""``cpcapp evaluate`` as a user runs it, with a model that looks for steps in brightness."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from cpcapp import __version__
from cpcapp.cli import main
from cpcapp.splicing.output.draw import PINK
from cpcapp.splicing.photo.read import read_image
from cpcapp.splicing.score.controls import CONTROLS
from cpcapp.splicing.score.protocols import boundary_band, score_map
from photo_folders import content, read, save

SHAPE = (48, 64)


class Steps:
    """A stand-in for a trained model, with what the command asks of one."""

    name, version, threshold = "steps", "7", 0.25
    with_region = False

    def localize(self, image):
        grey = image.pixels.mean(axis=2, dtype=np.float32) / 255
        step = np.abs(np.diff(grey, axis=1, append=grey[:, -1:]))
        region = grey if self.with_region else None
        return SimpleNamespace(boundary=step, edges=np.ones_like(step), region=region)


@pytest.fixture(autouse=True)
def model(monkeypatch):
    def load(path=None):
        return model

    model = Steps()
    monkeypatch.setattr("cpcapp.splicing.model.load_model", load)
    return model


@pytest.fixture
def run(run_command):
    return partial(run_command, "evaluate")


def splice(contrast, column=32):
    """Return a noisy photo whose right part is brighter, and the mask of that part."""
    pixels = np.random.default_rng(column).integers(80, 120, (*SHAPE, 3), dtype=np.uint8)
    pixels[:, column:] += np.uint8(contrast)
    mask = np.zeros(SHAPE, dtype=np.uint8)
    mask[:, column:] = 255
    return pixels, mask


@pytest.fixture
def dataset(tmp_path):
    """Three splices, from one that hides in the noise to one that can't be missed."""
    folder = tmp_path / "splices"
    for name, contrast in (("clear", 120), ("faint", 4), ("middle", 25)):
        pixels, mask = splice(contrast)
        save(folder / "images" / f"{name}.png", pixels)
        save(folder / "masks" / f"{name}.png", mask)
    save(folder / "authentic" / "other.png", splice(0)[0])
    return folder


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def expected(name, protocol):
    pixels, mask = splice({"clear": 120, "faint": 4, "middle": 25}[name])
    found = Steps().localize(read_image(pixels)).boundary
    return score_map(found, mask > 0, [protocol], threshold=0.25)[protocol]


def mean(protocol, metric):
    names = ("clear", "faint", "middle")
    return np.mean([getattr(expected(name, protocol), metric) for name in names])


def test_table(run, dataset):
    result = run(dataset)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no progress bar in a pipe
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "splices: 3 spliced photos scored; 1 authentic ones have no seam and count for verdicts "
        "only"
    )
    assert lines[2].split() == ["edge", "edge-r2", "edge-fixed"]
    assert lines[3].split() == ["F1", "MCC"] * 3
    rows = {line[:30].strip(): line[30:].split() for line in lines[4:]}
    assert rows["cPCA++ (steps)"] == [
        f"{mean(protocol, metric):.3f}"
        for protocol in ("edge", "edge-r2", "edge-fixed")
        for metric in ("f1", "mcc")
    ]
    assert list(rows)[1:] == [f"control: {name}" for name in CONTROLS]
    share = boundary_band(splice(0)[1] > 0).mean()
    assert rows["control: constant"][:2] == [f"{2 * share / (1 + share):.3f}", "0.000"]
    # Columns begin under their headings.
    assert lines[4].index(rows["cPCA++ (steps)"][0]) == lines[3].index("F1")


def test_json(run, dataset):
    result = run(dataset, "--json")
    assert result.returncode == 0
    found = json.loads(result.stdout)
    assert (found["version"], found["dataset"]) == (__version__, "splices")
    assert found["model"] == {"name": "steps", "version": "7"}
    assert (found["n_scored"], found["n_authentic"], found["problems"]) == (3, 1, [])
    assert list(found["methods"]) == ["cPCA++", *CONTROLS]
    scores = found["methods"]["cPCA++"]
    assert list(scores) == ["edge", "edge-r2", "edge-fixed"]
    assert list(found["methods"]["constant"]) == ["edge", "edge-r2"]
    for protocol, by_protocol in scores.items():
        assert by_protocol["mean"]["mcc"] == pytest.approx(mean(protocol, "mcc"))
        assert [image["name"] for image in by_protocol["images"]] == ["clear", "faint", "middle"]
    assert scores["edge-fixed"]["images"][0]["f1_threshold"] == 0.25
    alone = json.loads(run(dataset, "--json", "--no-controls").stdout)
    assert alone["methods"] == {"cPCA++": scores}


def test_surface_protocols_once_the_model_has_a_region(run, dataset, model):
    model.with_region = True
    found = json.loads(run(dataset, "--json").stdout)["methods"]
    assert list(found["cPCA++"])[3:] == ["surface", "surface-fixed"]
    assert found["cPCA++"]["surface"]["images"][0]["f1"] == 1.0
    assert list(found["constant"])[2:] == ["surface", "surface-fixed"]
    assert "surface-fixed" in run(dataset).stdout


def test_pictures_and_tables_in_a_folder(run, dataset, out):
    result = run(dataset, "-o", out, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert json.loads((out / "scores.json").read_bytes()) == report
    cases = sorted(path.name for path in (out / "cases").iterdir())
    assert cases == [
        f"000{rank}_{expected(name, 'edge').mcc:.3f}_{name}.png"
        for rank, name in enumerate(("clear", "middle", "faint"), start=1)
    ]
    assert set(content(out)) == {
        "scores.json",
        "scores.csv",
        "index.html",
        "best.png",
        "worst.png",
        *(f"cases/{name}" for name in cases),
    }
    assert not [path for path in out.iterdir() if path.is_dir() and path.name != "cases"]
    first = read(out / "cases" / cases[0])
    height, width = SHAPE
    panels = first[-height:]
    assert (panels[:, 31:33] == PINK).all()
    assert (panels[:, -width:][:, 31] > 150).all()  # the map, with the step that was found
    last = read(out / "cases" / cases[-1])
    np.testing.assert_array_equal(read(out / "best.png")[: len(first)], first)
    np.testing.assert_array_equal(read(out / "worst.png")[: len(last)], last)
    page = (out / "index.html").read_text()
    places = [page.index(f'src="cases/{name}"') for name in cases]
    assert places == sorted(places)
    assert "<td>cPCA++ (steps)</td>" in page
    assert f"<td>{mean('edge-fixed', 'mcc'):.3f}</td>" in page


def test_a_folder_in_use_is_kept_unless_told_otherwise(run, dataset, out):
    assert run(dataset, "-o", out).returncode == 0
    before = content(out)
    result = run(dataset, "-o", out, "--limit", 1)
    assert result.returncode == 2
    assert result.stderr.startswith(f"cpcapp evaluate: {out} is not empty; choose another folder")
    assert len(result.stderr.splitlines()) == 1
    assert content(out) == before
    (out / "cases" / "mine.png").write_bytes(b"kept")
    killed = out / "results.0123456789abcdef.part"
    save(killed / "unsorted" / "0.png", splice(0)[0])  # as a run that was killed leaves it
    assert run(dataset, "-o", out, "--limit", 1, "--force").returncode == 0
    after = content(out)
    assert after["cases/mine.png"] == b"kept"
    assert len(after) == 5 + 1 + 1
    assert after["scores.json"] != before["scores.json"]


def test_names_that_no_file_may_have(run, dataset, out, tmp_path):
    folder = tmp_path / "odd"
    odd = 'a <b> & "c"'
    for part in ("images", "masks"):
        save(folder / part / f"{odd}.png", splice(120)[part == "masks"])
    assert run(folder, "-o", out).returncode == 0
    (file,) = (out / "cases").iterdir()
    assert set(file.name.rpartition("_a_")[2]) <= set("abc_.png")
    page = (out / "index.html").read_text()
    assert "<b>" not in page
    assert "&amp; " in page


def test_photos_that_can_not_be_used_are_named(run, dataset, out):
    whole = (dataset / "images" / "middle.png").read_bytes()
    (dataset / "images" / "middle.png").write_bytes(whole[:-30])
    (dataset / "masks" / "clear.png").unlink()
    result = run(dataset, "-o", out)
    assert result.returncode == 1
    assert "1 spliced photos scored" in result.stdout
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("cpcapp evaluate: left out clear: masks/clear is missing")
    assert lines[1].startswith("cpcapp evaluate: left out middle: ")
    problems = json.loads((out / "scores.json").read_bytes())["problems"]
    assert [problem["name"] for problem in problems] == ["clear", "middle"]
    assert "Left out: middle" in (out / "index.html").read_text()


def test_the_limit_is_spread_and_the_jobs_change_nothing(run, dataset):
    for i in range(7):
        for part in ("images", "masks"):
            save(dataset / part / f"{i}.png", splice(40, 10 + i)[part == "masks"])
        save(dataset / "authentic" / f"{i}.png", splice(0, 10 + i)[0])
    found = json.loads(run(dataset, "--json", "--limit", 4, "--no-controls").stdout)
    assert (found["n_scored"], found["n_authentic"]) == (4, 4)
    images = found["methods"]["cPCA++"]["edge"]["images"]
    assert [image["name"] for image in images] == ["0", "2", "5", "clear"]
    one, three = (run(dataset, "--json", "--jobs", n, "--limit", 99).stdout for n in (1, 3))
    assert one == three
    assert json.loads(one)["n_scored"] == 10


def test_interrupting_leaves_no_half_results(run, dataset, out, model):
    pressed = threading.Lock()

    def stop(image):
        if pressed.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGINT)
        return Steps().localize(image)

    model.localize = stop
    result = run(dataset, "-o", out)
    assert result.returncode == 130
    assert result.stderr == "cpcapp evaluate: stopped\n"
    assert not out.exists()
    model.localize = Steps().localize
    assert run(dataset, "-o", out).returncode == 0


def test_verdicts(run, dataset, model):
    """Two spliced photos score higher than the authentic one, the faint one the same."""

    def localize(image):
        found = Steps().localize(image)
        found.score = float(found.boundary.max())
        found.p_value = 0.01 if found.score > 0.3 else 0.5
        return found

    model.localize = localize
    result = run(dataset)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == (
        "verdict: signs of splicing (p <= 0.05) in 33 % of 3 spliced photos and 0 % of 1 authentic "
        "ones, weak signs (p <= 0.15) in 0 % and 0 %, area under the ROC curve 0.833, area under "
        "the ROC curve over pairs of one size 0.833"
    )
    found = json.loads(run(dataset, "--json").stdout)["verdict"]
    assert [photo["name"] for photo in found["photos"]] == [
        *("clear", "faint", "middle"),
        "authentic/other",
    ]
    assert (found["auc"], found["alarms_on_authentic"]) == (pytest.approx(2.5 / 3), 0.0)
    broken = dataset / "authentic" / "other.png"
    broken.write_bytes(broken.read_bytes()[:-30])
    result = run(dataset)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1].endswith(
        "weak signs (p <= 0.15) in 0 %; no authentic ones"
    )
    assert result.stderr.startswith("cpcapp evaluate: left out authentic/other: ")


def test_published_data_sets(run, data_folder):
    found = json.loads(run(data_folder / "columbia_dev", "--json", "--limit", 2).stdout)
    assert (found["dataset"], found["n_scored"], found["n_authentic"]) == ("columbia", 2, 2)
    assert found["methods"]["error level analysis"]["edge"]["mean"]["mcc"] > 0.1
    options = ["--collection", "Nimble-WEB", "--limit", 1, "--json", "--no-controls"]
    result = run(data_folder / "nimble_sample", *options)
    assert result.returncode == 1  # some of its files are missing
    assert json.loads(result.stdout)["dataset"] == "nimble"


def test_opening_casia_shows_how_far_it_is(tmp_path, model, monkeypatch, capsys):
    """Its masks are computed first, which takes minutes for the whole set; on a terminal only."""
    host = np.random.default_rng(0).integers(90, 110, (120, 160, 3), dtype=np.uint8)
    save(tmp_path / "Au" / "Au_ani_00001.png", host)
    host[30:80, 40:100] = 200
    save(tmp_path / "Tp" / "Tp_D_CRN_M_N_ani00001_ani00002_10035.tif", host)
    shown, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        assert main(["evaluate", str(tmp_path), "--no-controls"]) == 0
        stderr.flush()
        text = os.read(shown, 100_000).decode()
    os.close(shown)
    assert re.match(r"\ropening \[#{30}\] 100 %", text), text
    assert "1 spliced photos scored" in capsys.readouterr().out
