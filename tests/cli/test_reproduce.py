"""``cpcapp reproduce`` as a user runs it."""

from __future__ import annotations

import json
import os
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
