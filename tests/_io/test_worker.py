"""Messages between processes, and processes that end."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cpcapp._io.worker import Worker, WorkerError, receive, send

MODULE = """
import os, time
from cpcapp._io.worker import answer_requests

class LocalError(ValueError):
    kind = "local"

def answer(request, arrays):
    print("no message")
    if "sleep" in request:
        time.sleep(request["sleep"])
    if "crash" in request:
        os.abort()
    if "error" in request:
        raise LocalError("two\\nlines")
    if "memory" in request:
        raise MemoryError
    return {"pid": os.getpid()}, [array + 1 for array in arrays]

def main():
    answer_requests(answer, lambda: print("nor is this"))
"""


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    """The name of a module that does as it is told."""
    name = f"child_{os.getpid()}_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def kind_of_error(worker, request, seconds=30.0, says=None):
    with pytest.raises(WorkerError, match=says) as caught:
        worker.ask(request, seconds)
    return caught.value.kind


def ends(pid):
    for _ in range(300):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0, 4), (5, 7)])
@pytest.mark.parametrize("dtype", ["<f8", ">f4", "|b1", "<i2"])
def test_what_is_sent_is_received(rng, shape, dtype):
    stream = io.BytesIO()
    array = rng.integers(0, 2, shape).astype(dtype)
    send(stream, {"text": "\u00e4"}, [array, array.T])
    whole = stream.getvalue()
    message, (one, two) = receive(io.BytesIO(whole))
    assert message == {"text": "\u00e4"}
    np.testing.assert_array_equal(one, array)
    np.testing.assert_array_equal(two, array.T)
    assert one.dtype == array.dtype
    for end in range(len(whole)):
        assert receive(io.BytesIO(whole[:end])) is None or array.size == 0


def test_a_process_that_does_not_start():
    assert kind_of_error(Worker("cpcapp.no_such_module"), {}) == "start"


def test_requests_errors_and_crashes(module):
    worker = Worker(module)
    message, (array,) = worker.ask({}, 30.0, [np.arange(3)])
    assert array.tolist() == [1, 2, 3]
    assert kind_of_error(worker, {"error": 1}, says="^two lines$") == "local"
    assert kind_of_error(worker, {"memory": 1}, says="more memory") == ""
    assert worker.ask({}, 30.0)[0] == message
    assert kind_of_error(worker, {"crash": 1}) == "stopped"
    assert kind_of_error(worker, {}) == "stopped"


def test_what_hangs_is_ended_and_nothing_outlives_the_object(module):
    worker = Worker(module)
    pid = worker.ask({}, 30.0)[0]["pid"]
    assert kind_of_error(worker, {"sleep": 600}, 0.2) == "stopped"
    del worker
    gc.collect()  # the error of pytest holds it in a cycle
    assert ends(pid)
    worker = Worker(module)
    pid = worker.ask({}, 30.0)[0]["pid"]
    del worker
    assert ends(pid)


def test_a_worker_ends_with_a_parent_that_is_killed(module, tmp_path):
    code = (
        "import sys; from cpcapp._io.worker import Worker; worker = Worker(sys.argv[1]);"
        "print(worker.ask({}, 30.0)[0]['pid'], flush=True); sys.stdin.read()"
    )
    places = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", code, module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": places},
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
    assert ends(pid)
