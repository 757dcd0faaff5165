"""The installed command, run as a user runs it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "COMMAND"),
        (("dmeo",), "invalid choice"),
        (("demo", "--seed", "x"), "--seed"),
        (("demo", "--seed", "-1"), "--seed -1 must be at least 0"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(tmp_path, arguments, message):
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_that_can_not_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("demo", "--contrast", "-o", str(tmp_path / "file" / "x"))
    assert result.returncode == 2
    assert result.stderr.startswith("cpcapp demo: can't make the folder")
    assert len(result.stderr.splitlines()) == 1


def test_a_missing_extra_is_named_with_the_command_that_installs_it(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from cpcapp.cli import main; sys.exit(main(['demo', '--contrast']))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert result.returncode == 2
    assert result.stderr.strip() == (
        "cpcapp demo: needs matplotlib; install it with: pip install 'cpcapp[plot]'"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals work differently on Windows")
def test_interrupting_leaves_one_line(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from cpcapp.experiments import demo\n"
        "demo.compare_methods = lambda data: os.kill(os.getpid(), signal.SIGINT)\n"
        "from cpcapp.cli import main; sys.exit(main(['demo', '--contrast']))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert result.returncode == 128 + signal.SIGINT
    assert result.stderr == "cpcapp demo: stopped\n"


def test_no_memory_is_one_line(monkeypatch, capsys):
    def run_out(arguments):
        raise MemoryError

    monkeypatch.setattr("cpcapp.cli.demo.run", run_out)
    assert cpcapp.cli.main(["demo"]) == 2
    assert capsys.readouterr().err == "cpcapp demo: needs more memory than there is\n"
