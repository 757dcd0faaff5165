"""Processes that do what might crash or never end, so that this one does neither.

A message is JSON, followed by the bytes of arrays: nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cpcapp._io.fork_server import CAN_FORK, ForkedProcess, ForkServer

Arrays = Sequence[NDArray[Any]]
Answer = tuple[dict[str, Any], list[NDArray[Any]]]

# Packages may have to come from a slow disk.
_START_SECONDS = 300.0


def send(stream: IO[bytes], message: dict[str, Any], arrays: Arrays = ()) -> None:
    """Write a message and arrays of numbers."""
    arrays = [np.ascontiguousarray(array) for array in arrays]
    described = [(array.dtype.str, array.shape) for array in arrays]
    text = json.dumps({**message, "arrays": described}).encode()
    stream.write(len(text).to_bytes(8, "little") + text)
    for array in arrays:
        stream.write(_bytes_of(array))
    stream.flush()


def receive(stream: IO[bytes]) -> Answer | None:
    """Read what `send` wrote; None where the stream ends."""
    size = stream.read(8)
    if len(size) < 8:
        return None
    text = stream.read(int.from_bytes(size, "little"))
    if not text.endswith(b"}"):
        return None
    message = json.loads(text)
    arrays = []
    for dtype, shape in message.pop("arrays"):
        array: NDArray[Any] = np.empty(shape, dtype)
        view = _bytes_of(array)
        while len(view):
            count = stream.readinto(view)  # type: ignore[attr-defined]
            if not count:
                return None
            view = view[count:]
        arrays.append(array)
    return message, arrays


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8).data)


class Worker:
    """A process that answers messages; it ends with this object.

    Parameters
    ----------
    module : str
        Its function ``main`` sends one message once it is ready, and then an answer to each.
    forked : bool, default=False
        Copy a process that has called ``prepare`` of the module, where the system can do that:
        the second worker of a module then starts at once.
    """

    def __init__(self, module: str, *, forked: bool = False) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | ForkedProcess | None
        if forked and CAN_FORK:
            self._process = _fork_server(module).start(_START_SECONDS)
        else:
            self._process = subprocess.Popen(
                _command(f"from {module} import main; main()"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        self.is_ready = False
        if self._process is not None:
            weakref.finalize(self, _end, self._process)
            self.is_ready = self._wait(_START_SECONDS) is not None

    def ask(self, request: dict[str, Any], seconds: float, arrays: Arrays = ()) -> Answer | None:
        """Return the answer; None if the process crashed, or was ended after so many seconds."""
        with self._lock, suppress(BrokenPipeError):
            if self._process is None:
                return None
            assert self._process.stdin is not None
            send(self._process.stdin, request, arrays)
            return self._wait(seconds)
        return None

    def _wait(self, seconds: float) -> Answer | None:
        assert self._process is not None
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            assert self._process.stdout is not None
            return receive(self._process.stdout)
        finally:
            timer.cancel()


def _command(code: str) -> list[str]:
    """Return a command that finds the same packages as here, wherever they were found."""
    places = json.dumps([place or str(Path.cwd()) for place in sys.path])
    start = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    return [sys.executable, "-c", start + code, places]


def _environment() -> dict[str, str]:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@cache
def _fork_server(module: str) -> ForkServer:
    code = f"from cpcapp._io.fork_server import serve; serve({module!r})"
    return ForkServer(_command(code), _environment())


def _end(process: subprocess.Popen[bytes] | ForkedProcess) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        # What was not written yet is of no use to a process that has ended.
        with suppress(OSError):
            if stream is not None:
                stream.close()


def open_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Return, within such a process, where requests come from and where answers go."""
    with suppress(ValueError):  # who is interrupted is the parent, which ends this process
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no message
    return sys.stdin.buffer, target


def limit_memory(n_bytes: int) -> None:
    """Let this process take so much memory more than it has, where the system can."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        n_bytes += pages * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
