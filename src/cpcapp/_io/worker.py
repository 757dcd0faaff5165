"""Processes that do what might crash or never end, so that this one does neither.

One protocol for all of them: the process says that it is ready, and then answers each request. A
message is JSON, followed by the bytes of arrays: nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Arrays = Sequence[NDArray[Any]]
Answer = tuple[dict[str, Any], list[NDArray[Any]]]

# Packages may have to come from a slow disk.
START_SECONDS = 300.0
#: Bytes before the text of a message: its length.
PREFIX = 8


def encode(message: dict[str, Any], arrays: Arrays = ()) -> bytes:
    """Return the start of a message, which the bytes of its arrays follow."""
    described = [(array.dtype.str, array.shape) for array in arrays]
    text = json.dumps({**message, "arrays": described}, allow_nan=False).encode()
    return len(text).to_bytes(PREFIX, "little") + text


def send(stream: IO[bytes], message: dict[str, Any], arrays: Arrays = ()) -> None:
    """Write a message and arrays of numbers."""
    stream.write(encode(message, arrays))
    for array in arrays:
        stream.write(_bytes_of(np.ascontiguousarray(array)))
    stream.flush()


def receive(stream: IO[bytes]) -> Answer | None:
    """Read what `send` wrote; None where the stream ends."""
    size = stream.read(PREFIX)
    text = stream.read(int.from_bytes(size, "little")) if len(size) == PREFIX else b""
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


def command(module: str, *arguments: str) -> list[str]:
    """Return a command that calls ``main`` of a module and finds the same packages as here."""
    places = json.dumps([place or str(Path.cwd()) for place in sys.path])
    start = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    return [sys.executable, "-c", f"{start}from {module} import main; main()", places, *arguments]


def environment() -> dict[str, str]:
    """Return the variables of a process that computes with one thread."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class WorkerError(ValueError):
    """Why a process gives no answer, in one line.

    ``kind`` is "start" if it did not start, "stopped" if it crashed or took too long, and otherwise
    what it calls its error.
    """

    def __init__(self, reason: str, kind: str = "") -> None:
        super().__init__(reason)
        self.kind = kind


class Worker:
    """A process that answers messages; ``main`` of its module calls `answer_requests`.

    It ends with this object.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            command(module, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        self._requests: IO[bytes] = self._process.stdin  # type: ignore[assignment]  # a pipe
        self._answers: IO[bytes] = self._process.stdout  # type: ignore[assignment]  # a pipe
        weakref.finalize(self, _end, self._process, self._requests, self._answers)
        self._is_ready = self._wait(START_SECONDS) is not None

    def ask(self, request: dict[str, Any], seconds: float, arrays: Arrays = ()) -> Answer:
        """Return the answer, or raise `WorkerError`; after so many seconds the process is ended."""
        if not self._is_ready:
            raise WorkerError("the process that reads it did not start", "start")
        answer = None
        with self._lock, suppress(BrokenPipeError):
            send(self._requests, request, arrays)
            answer = self._wait(seconds)
        if answer is None:
            raise WorkerError(
                "it is damaged: reading it was stopped, because it crashed or took more than "
                f"{seconds:.0f} seconds; use an undamaged copy",
                "stopped",
            )
        if "error" in answer[0]:
            raise WorkerError(answer[0]["error"], answer[0].get("kind", ""))
        return answer

    def _wait(self, seconds: float) -> Answer | None:
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            return receive(self._answers)
        finally:
            timer.cancel()


def _end(process: subprocess.Popen[bytes], *pipes: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in pipes:
        with suppress(OSError):  # what was not written yet is of no use to an ended process
            pipe.close()


def answer_requests(
    answer: Callable[[dict[str, Any], list[NDArray[Any]]], tuple[dict[str, Any], Arrays]],
    prepare: Callable[[], object],
) -> None:
    """Answer the requests of a `Worker` until it ends.

    An error becomes ``{"error": reason}`` in one line, with its attribute ``kind`` if it has one.
    What takes long to import is imported by ``prepare``: its time does not count.
    """
    source, target = open_streams()
    prepare()
    send(target, {"ready": True})
    while (received := receive(source)) is not None:
        arrays: Arrays = ()
        try:
            message, arrays = answer(*received)
        except MemoryError:
            message = {"error": "it needs more memory than its size allows"}
        except Exception as error:  # libraries raise all kinds of errors on damaged files
            reason = " ".join(str(error).split())[:1000] or type(error).__name__
            message = {"error": reason, "kind": getattr(error, "kind", "")}
        send(target, message, arrays)
        del received, arrays


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
