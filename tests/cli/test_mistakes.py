"""What all commands answer to a mistake, to a missing package and to Ctrl-C: one line."""

from __future__ import annotations

import signal
import subprocess
import sys

import pandas as pd
import pytest

import stand_in
from cpcapp.splicing import model as model_file
from photo_folders import content, save, spliced_picture, write_splices

MISTAKES = {
    "demo": [
        ("--seed x", "--seed"),
        ("--seed -1", "--seed -1 must be at least 0"),
        ("--contrast -o file/x", "can't make the folder file/x: "),
    ],
    "reproduce": [
        ("mice -o x", "NAME 'mice' must be all or one of needle, synthetic, "),
        ("needle -o x --seed -1", "--seed -1 must be at least 0"),
        ("needle", "-o"),
        ("needle -o file/x", "can't make the folder file/x: "),
        ("needle -o report", "can't write to report: "),
    ],
    "localize": [
        ("", "PHOTO"),
        ("nowhere.jpg", "nowhere.jpg does not exist; give a file, a folder or a pattern"),
        ("*.nothing", "no image matches *.nothing"),
        ("spliced", "folder spliced holds no image"),
        ("photos --jobs 0", "--jobs 0 must be at least 1"),
        ("photos --model none", "can't use the model: there is no model file none; give"),
        ("photos -o photos/1.png", "can't make the folder photos/1.png: File exists"),
        ("photos --force --resume", "not allowed with"),
        ("photos --fast --model paper", "not allowed with"),
        ("photos --device cpu --scheduler tcp://a:1", "--device does not go with --scheduler"),
        ("photos --device cuda:99", "device='cuda:99' can't be used"),
        *(
            (f"photos --max-megapixels {limit}", "must be above 0 and at most 1000000")
            for limit in ("0", "-3", "nan", "inf", "1e9")
        ),
    ],
    "make-splices": [
        ("photos -o x --count 0", "--count 0 must be at least 1"),
        ("photos -o x --seed -1", "--seed -1 must be at least 0"),
        ("photos -o x --jobs 0", "--jobs 0 must be at least 1"),
        ("photos -o x --size 10", "--size 10 must be at least 32"),
        ("photos -o x --feather 500", "--feather 500 must be 0, or from 0.1 to 100"),
        ("photos -o x --feather nan", "--feather nan must be 0, or from 0.1 to 100"),
        ("photos -o x --jpeg 0", "'0' must be from 1 to 100, or none"),
        ("photos -o x --force --resume", "not allowed with"),
        ("nowhere -o x", "nowhere does not exist"),
        ("photos -o file", "can't make the folder"),
        ("photos -o photos --force", "choose another folder for the splices"),
    ],
    "train": [
        ("photos -o x --splices 0", "--splices 0 must be at least 1"),
        ("photos -o x --seed -1", "--seed -1 must be at least 0"),
        ("photos -o x --jobs 0", "--jobs 0 must be at least 1"),
        ("photos -o nowhere/x", "there is no folder nowhere to write to"),
        ("photos -o file", "file exists; choose another name, or --force to replace it"),
        ("photos -o photos --force", "photos is not a file; choose another name"),
        ("none -o x", "none is not a folder"),
        ("spliced photos -o x", "either spliced photos with masks or plain"),
        *(
            (f"spliced -o x --preset {preset} --network n", f"does not go with --preset {preset}")
            for preset in ("filters", "paper")
        ),
        (
            "spliced -o x --preset paper --device cuda:99",
            "device='cuda:99' can't be used here; use 'cpu', or",
        ),
    ],
    "train-edges": [
        ("photos -o x --trees 0", "--trees 0 must be at least 1"),
        ("photos -o x --samples 5", "--samples 5 must be at least 100"),
        ("photos -o x --jobs 0", "--jobs 0 must be at least 1"),
        ("photos -o x", "is not BSDS500"),
        ("photos -o none/x", "there is no folder"),
    ],
    "train-network": [
        ("none -o x", "none"),
        ("photos -o x --seconds 0", "--seconds 0 must be at least 1"),
    ],
    "evaluate": [
        ("spliced --limit 0", "--limit 0 must be at least 1"),
        ("spliced --jobs 0", "--jobs 0 must be at least 1"),
        ("spliced --kind columbia", "is not Columbia Uncompressed"),
        ("spliced --kind coco", "invalid choice: 'coco'"),
        ("spliced --collection Nimble-WEB", "has no reference"),
        ("spliced --collection WEB --kind pairs", "--collection is for Nimble, not for"),
        ("spliced --model other", "there is no model file other"),
        ("spliced --force", "--force replaces results in a folder; give it with -o DIR"),
        ("nowhere -o x", "nowhere is not a folder"),
        ("photos -o x", "has 4 authentic photos and no spliced one with a mask"),
        ("spliced -o file", "can't make the folder"),
    ],
}


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """A folder with photos, splices, a file, and a report whose page can't be written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_file, "load_model", stand_in.load_model)
    for seed in range(4):
        save(tmp_path / "photos" / f"{seed}.png", spliced_picture(seed)[0])
    write_splices(tmp_path / "spliced", 2)
    (tmp_path / "file").touch()
    (tmp_path / "report" / "report.md").mkdir(parents=True)
    return tmp_path


def assert_one_line(result, command, message):
    assert result.returncode == 2
    assert result.stdout == ""
    assert message in result.stderr
    if "usage" not in result.stderr:
        assert result.stderr.startswith(f"cpcapp {command}: ")
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [(name, *case) for name, cases in MISTAKES.items() for case in cases],
)
def test_a_mistake_is_one_line_and_changes_nothing(run_command, places, command, options, message):
    if command == "train-network" or "cuda" in options:
        pytest.importorskip("torch", reason="needs the extra torch")
    before = content(places)
    assert_one_line(run_command(command, *options.split()), command, message)
    after = content(places)
    assert {name: after[name] for name in after if "report/figures" not in name} == before
    assert not (places / "x").exists()


@pytest.mark.parametrize(
    ("missing", "extra", "words"),
    [
        ("matplotlib", "plot", "demo --contrast -o x"),
        ("matplotlib", "reproduce", "reproduce needle -o x"),
        ("reportlab", "report", "localize photos -o x --report"),
        ("torch", "torch", "localize photos -o x --device cuda"),
        ("torch", "torch", "train photos -o x --device cuda"),
        ("distributed", "dask", "localize photos -o x --scheduler tcp://a:1"),
        ("distributed", "dask", "train photos -o x --scheduler tcp://a:1"),
        ("pyarrow", "tables", "reduce file.parquet file.csv -o x"),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(
    run_command, places, monkeypatch, missing, extra, words
):
    monkeypatch.setitem(sys.modules, missing, None)
    result = run_command(*words.split())
    assert_one_line(result, words.split()[0], f"needs {missing}")
    assert result.stderr.endswith(f"; install it with: pip install 'cpcapp[{extra}]'\n")
    assert not (places / "x").exists()


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("experiments.demo.compare_methods", "demo --contrast -o x"),
        ("experiments.needle.needle_moments", "reproduce needle -o x"),
        ("tables.reduce.Reduction.scores", "reduce t.csv b.csv -o x"),
    ],
)
def test_ctrl_c_leaves_one_line_and_no_half_of_a_result(rng, places, where, words):
    for name in ("t", "b"):
        pd.DataFrame(rng.normal(size=(30, 3))).to_csv(places / f"{name}.csv", index=False)
    module, _, name = where.partition(".")[2].partition(".")
    code = (
        "import os, signal, sys\n"
        f"from cpcapp.{where.partition('.')[0]} import {module}\n"
        f"{module}.{name} = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\n"
        f"from cpcapp.cli import main; sys.exit(main({words.split()!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == f"cpcapp {words.split()[0]}: stopped\n"
    assert not list(places.glob("x/*"))


def test_no_memory_is_one_line(run_command, monkeypatch):
    def run_out(arguments):
        raise MemoryError

    monkeypatch.setattr("cpcapp.cli.demo.run", run_out)
    assert_one_line(run_command("demo"), "demo", "needs more memory than there is")
