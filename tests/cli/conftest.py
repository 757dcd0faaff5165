"""What all tests of commands use."""

from __future__ import annotations

import subprocess

import pytest

from cpcapp.cli import main


@pytest.fixture
def run_command(capsys):
    """Run a command in this process, which is as good and starts at once."""

    def run(*arguments):
        try:
            returncode = main([*map(str, arguments)])
        except SystemExit as error:
            returncode = error.code
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, returncode, captured.out, captured.err)

    return run
