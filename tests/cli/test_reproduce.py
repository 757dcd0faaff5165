"""``cpcapp reproduce`` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from cpcapp.cli import main

COMMAND = str(Path(sysconfig.get_path("scripts")) / "cpcapp")
FILES = {"report.html", "report.md", "report.json", "figures"}


def run(*arguments, **environment):
    return subprocess.run(
        [COMMAND, "reproduce", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CPCAPP_OFFLINE": "1", **environment},
    )


def test_a_report_of_real_data(data_folder, tmp_path):
    folder = tmp_path / "new" / "report"
    result = run("mice_protein", "--quick", "-o", folder, CPCAPP_DATA=str(data_folder))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no progress line in a pipe
    assert "1 of 1 experiments" in result.stdout
    assert str(folder / "report.html") in result.stdout
    assert {path.name for path in folder.iterdir()} == FILES
    found = json.loads((folder / "report.json").read_text())
    assert found["experiments"]["mice_protein"]["numbers"]["cPCA++"]["ari"] >= 0.78


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("CPCAPP_DATA", str(tmp_path))
    monkeypatch.setenv("CPCAPP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CPCAPP_OFFLINE", "1")


@pytest.mark.usefixtures("no_data")
def test_what_is_missing_is_named_and_the_rest_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("cpcapp.cli.reproduce.NAMES", ("needle", "mhealth"))
    assert main(["reproduce", "-o", str(tmp_path / "report")]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("needle: ")
    assert captured.err.startswith("cpcapp reproduce: mhealth was left out: ")
    assert len(captured.err.splitlines()) == 1
    assert "not here" in (tmp_path / "report" / "report.md").read_text()


@pytest.mark.usefixtures("no_data")
def test_an_experiment_that_can_not_be_made_at_all(tmp_path):
    result = run("leukemia", "-o", tmp_path / "report")
    assert result.returncode == 2
    assert result.stderr.startswith("cpcapp reproduce: ")
    assert "not here" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list((tmp_path / "report").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mice", "-o", "x"], "NAME 'mice' must be all or one of needle, synthetic, "),
        (["needle", "-o", "x", "--seed", "-1"], "--seed -1 must be at least 0"),
        (["needle"], "-o"),
    ],
)
def test_mistakes(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["reproduce", *arguments])
    except SystemExit as stop:  # argparse
        status = stop.code
    assert status == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_made(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["reproduce", "needle", "-o", str(tmp_path / "file" / "x")]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"cpcapp reproduce: can't make the folder {tmp_path}/file/x: ")
    assert len(errors.splitlines()) == 1


def test_a_place_that_can_not_be_written(tmp_path, capsys):
    (tmp_path / "report.md").mkdir()  # where a file should be
    assert main(["reproduce", "needle", "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"cpcapp reproduce: can't write to {tmp_path}: ")


def test_a_missing_extra_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["reproduce", "needle", "-o", str(tmp_path / "report")]) == 2
    assert capsys.readouterr().err == (
        "cpcapp reproduce: needs matplotlib; install it with: pip install 'cpcapp[reproduce]'\n"
    )
    assert not (tmp_path / "report").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals work differently on Windows")
def test_ctrl_c_leaves_one_line_and_no_half_report(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from cpcapp.experiments import needle\n"
        "needle.needle_moments = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)\n"
        "from cpcapp.cli import main\n"
        f"sys.exit(main(['reproduce', 'needle', '-o', {str(tmp_path / 'report')!r}]))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 128 + signal.SIGINT
    assert result.stderr == "cpcapp reproduce: stopped\n"
    assert list((tmp_path / "report").iterdir()) == []


def test_help_is_fast_and_names_the_experiments(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "CPCAPP_DATA" in text
    assert "mnist_over_grass" in text
    code = (
        "import sys, cpcapp.cli\n"
        "assert not {'sklearn', 'matplotlib', 'PIL', 'pooch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
