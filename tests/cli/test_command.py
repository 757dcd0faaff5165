"""The installed command, run as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from matplotlib.image import imread

import cpcapp.cli

COMMAND = str(Path(sysconfig.get_path("scripts")) / "cpcapp")


def run(*arguments, **options):
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, check=False, **options
    )


def test_help_and_version():
    assert "demo" in run("--help").stdout
    assert "--output" in run("demo", "--help").stdout
    assert run("--version").stdout.strip() == f"cpcapp {cpcapp.__version__}"
    module = subprocess.run(
        [sys.executable, "-m", "cpcapp", "--version"], capture_output=True, text=True, check=True
    )
    assert module.stdout == run("--version").stdout


def test_demo_writes_a_picture_and_shows_that_cpca_plus_plus_separates(tmp_path):
    result = run("demo", "--contrast", "-o", str(tmp_path / "new" / "folder"))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    indices = [float(v) for v in re.findall(r"cPCA\+\+ +adjusted Rand index +(\S+)", result.stdout)]
    assert len(indices) == 2
    assert min(indices) > 0.9
    picture = imread(tmp_path / "new" / "folder" / "contrast.png")
    assert picture.shape[0] > 400
    assert picture[..., :3].std() > 0.05  # something is drawn
