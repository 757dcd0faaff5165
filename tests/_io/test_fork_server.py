"""Processes that are copies of one that is prepared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cpcapp._io import worker as _worker
from cpcapp._io.fork_server import CAN_FORK
from cpcapp._io.worker import Worker

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="this system copies no processes")

MODULE = """
import os, time
from cpcapp._io.worker import open_streams, receive, send

prepared = []

def prepare():
    prepared.append(os.getpid())

def main():
    source, target = open_streams()
    send(target, {"ready": True})
    while (received := receive(source)) is not None:
        request = received[0]
        if request.get("hang"):
            time.sleep(600)
        if request.get("crash"):
            os.abort()
        send(target, {"pid": os.getpid(), "server": os.getppid(), "prepared": prepared})
"""


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    """A module that tells who it is, by a name of its own."""
    name = f"forked_{os.getpid()}_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    _worker._fork_server(name)._close()


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition):
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_copies_are_on_their_own_and_prepared_once(module):
    first, second = Worker(module, forked=True), Worker(module, forked=True)
    one, two = (worker.ask({}, 30.0)[0] for worker in (first, second))
    assert one["pid"] != two["pid"]
    assert one["prepared"] == two["prepared"] == [one["server"]]
    assert first.ask({"crash": True}, 30.0) is None
    assert first.ask({}, 30.0) is None
    assert second.ask({}, 30.0)[0] == two
    del first
    assert wait_until(lambda: not is_running(one["pid"]))
    assert is_running(two["pid"])


def test_a_copy_that_hangs_is_ended(module):
    worker = Worker(module, forked=True)
    pid = worker.ask({}, 30.0)[0]["pid"]
    assert worker.ask({"hang": True}, 0.2) is None
    assert wait_until(lambda: not is_running(pid))
    assert Worker(module, forked=True).ask({}, 30.0)[0]["pid"] != pid


def test_another_server_comes_if_one_has_ended(module):
    found = Worker(module, forked=True).ask({}, 30.0)[0]
    os.kill(found["server"], signal.SIGKILL)
    assert Worker(module, forked=True).ask({}, 30.0)[0]["server"] != found["server"]


def test_a_module_that_is_not_there():
    worker = Worker("cpcapp.no_such_module", forked=True)
    assert not worker.is_ready
    assert worker.ask({}, 5.0) is None


def test_nothing_is_left_of_a_process_that_is_killed(module, tmp_path):
    code = (
        "import os, sys, threading; from cpcapp._io.worker import Worker\n"
        "worker = Worker(sys.argv[1], forked=True); found = worker.ask({}, 30.0)[0]\n"
        "threading.Thread(target=worker.ask, args=({'hang': True}, 600.0), daemon=True).start()\n"
        "print(found['pid'], found['server'], flush=True); sys.stdin.read()\n"
    )
    places = os.pathsep.join([str(tmp_path), *sys.path])
    parent = subprocess.Popen(
        [sys.executable, "-c", code, module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": places},
    )
    with parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2 and all(map(is_running, pids))
        parent.kill()
    # A process that ended and was not waited for by its new parent is still listed.
    assert wait_until(lambda: all(not is_running(pid) or is_zombie(pid) for pid in pids))


def is_zombie(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return text.rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
