"""Nothing is lost if a step fails or the process is killed: a few steps of every command.

`benchmarks/faults.py` takes all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("fault_harness.py")
COMMANDS = ("reduce", "localize", "localize --report", "evaluate", "train")


@pytest.mark.skipif(sys.platform != "linux", reason="the harness forks, and kills its children")
def test_nothing_is_lost():
    """In a process of its own: it forks, which the threads of this one do not allow."""
    command = [sys.executable, HARNESS, *COMMANDS, "--sample", "2"]
    places = [str(HARNESS.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == []
    assert found["faults"] == 2 * len(COMMANDS)
