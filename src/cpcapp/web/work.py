"""What a worker process does: one job after another, each in a folder of its own.

Messages are those of `cpcapp._io.worker`. To one request there are several answers: that the job
has started, how far it is, and its result.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from cpcapp._io.worker import limit_memory, open_streams, receive, send

#: Called with the share done, from 0 to 1, and what is being done, in a few words.
Report = Callable[[float, str], None]

# Nobody sees more.
_REPORTS_PER_SECOND = 10.0
# Leave the processor to the server, which has to answer while jobs run.
_NICENESS = 5


class JobError(Exception):
    """Why a job has no result, for the person who sent it.

    Parameters
    ----------
    code : str
        For programs.
    message : str
    help_text : str, optional
    """

    def __init__(self, code: str, message: str, help_text: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.help = code, message, help_text


def run_job(kind: str, folder: Path, request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Do a job.

    ``folder``: has what the client sent, and gets what is made of it. Nothing else is opened.

    The result, in types that JSON knows. ``files`` are the names in the folder that the client may
    fetch, each with its media type; it does not reach the client.
    """
    if kind == "photo":
        from cpcapp.web.photo_work import run_photo

        return run_photo(folder, request, report)
    if kind == "tables":
        from cpcapp.web.table_work import run_tables

        return run_tables(folder, request, report)
    raise ValueError(f"kind={kind!r} must be 'photo' or 'tables'")


def file_url(folder: Path, name: str) -> str:
    """Return where a client fetches a file of a job.

    >>> file_url(Path("/tmp/server/a1b2"), "overlay.png")
    '/api/jobs/a1b2/files/overlay.png'
    """
    return f"/api/jobs/{folder.name}/files/{name}"


def main() -> None:
    """Answer the requests of the server until it closes standard input, or ends."""
    source, target = open_streams()
    options = json.loads(sys.argv[1])
    with suppress(OSError, AttributeError):
        os.nice(_NICENESS)
    _prepare(options)
    requests = _read_requests(source)
    _send(target, {"ready": os.getpid()})
    while True:
        message = requests.get()
        _send(target, {"started": True})
        _send(target, _answer(message, _Reporter(target)))


def _prepare(options: dict[str, Any]) -> None:
    """Import what takes long, share the cores, and bound the memory."""
    import cv2

    from cpcapp.web.photo_work import open_cached_model

    cv2.setNumThreads(max(1, (os.cpu_count() or 1) // options["jobs"]))
    if options.get("model"):
        open_cached_model(options["model"])
    limit_memory(options["memory"])


def _read_requests(source: IO[bytes]) -> queue.SimpleQueue[dict[str, Any]]:
    """Read requests in a thread, so that the end of the server is noticed in a job too."""
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read() -> None:
        while (received := receive(source)) is not None:
            requests.put(received[0])
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return requests


def _send(target: IO[bytes], message: dict[str, Any]) -> None:
    try:
        send(target, message)
    except BrokenPipeError:  # the server has ended
        os._exit(0)


class _Reporter:
    """Sends progress, but not more often than anybody sees."""

    def __init__(self, target: IO[bytes]) -> None:
        self.target = target
        self.last, self.step = 0.0, ""

    def __call__(self, share: float, step: str) -> None:
        now = time.monotonic()
        if step != self.step or now - self.last >= 1.0 / _REPORTS_PER_SECOND:
            self.last, self.step = now, step
            _send(self.target, {"share": round(min(max(share, 0.0), 1.0), 4), "step": step})


def _answer(message: dict[str, Any], report: Report) -> dict[str, Any]:
    from cpcapp._io.threads import give_back_memory

    try:
        folder = Path(message["folder"])
        result = run_job(message["kind"], folder, message["request"], report)
        json.dumps(result, allow_nan=False)  # a fault of ours, found where it can be told
    except JobError as error:
        return _failed(error.code, error.message, error.help)
    except Exception as error:
        if _is_out_of_memory(error):
            advice = "Make it smaller, or start the server with a larger --memory-gigabytes."
            return _failed("too_much_memory", "It needs more memory than a job may take.", advice)
        answer = _failed("internal", "The program made a mistake; the server's terminal has more.")
        return {**answer, "trace": traceback.format_exc()}
    finally:
        give_back_memory()
    return {"done": result}


def _is_out_of_memory(error: Exception) -> bool:
    """Tell whether memory has ended; some libraries have errors of their own for it."""
    text = str(error).lower()
    phrases = ("insufficient memory", "bad_alloc", "bad allocation")
    return isinstance(error, MemoryError) or any(phrase in text for phrase in phrases)


def _failed(code: str, message: str, help_text: str = "") -> dict[str, Any]:
    return {"failed": {"code": code, "message": message, "help": help_text}}
