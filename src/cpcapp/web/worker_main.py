"""What a worker process does: one job after another, each in a folder of its own.

Messages are those of `cpcapp._io.worker`. To one request there are several answers: how far the job
is, first of all that it has started, and its result.
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
from cpcapp.web.errors import PageError

#: Called with the share done, from 0 to 1, and what is being done, in a few words.
Report = Callable[[float, str], None]

# By how names of files end.
_MEDIA_TYPES = {
    ".csv": "text/csv",
    ".f32": "application/octet-stream",
    ".html": "text/html",
    ".jpg": "image/jpeg",
    ".json": "application/json",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".webp": "image/webp",
}
# Nobody sees more.
_REPORTS_PER_SECOND = 10.0
# Leave the processor to the server, which has to answer while jobs run.
_NICENESS = 5


class JobFiles:
    """The files in the folder of a job that a client may fetch, with their media types.

    >>> files = JobFiles(Path("/tmp/server/a1b2"))
    >>> files.offer("overlay.png"), files.types
    ('/api/jobs/a1b2/files/overlay.png', {'overlay.png': 'image/png'})
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.types: dict[str, str] = {}

    def offer(self, name: str) -> str:
        """Let clients fetch a file, and return its address."""
        self.types[name] = _MEDIA_TYPES[Path(name).suffix]
        return f"/api/jobs/{self.folder.name}/files/{name}"

    def add(self, name: str, content: bytes) -> str:
        """Write a file that clients may fetch, and return its address."""
        (self.folder / name).write_bytes(content)
        return self.offer(name)


def main() -> None:
    """Answer the requests of the server until it closes standard input, or ends."""
    source, target = open_streams()
    options = json.loads(sys.argv[1])
    os.nice(_NICENESS)
    _prepare(options)
    requests = _read_requests(source)
    with suppress(BrokenPipeError):  # the server has ended
        send(target, {"ready": os.getpid()})
        while True:
            message = requests.get()
            send(target, {"share": 0.0, "step": ""})
            send(target, _answer(message, _reporter(target)))


def _prepare(options: dict[str, Any]) -> None:
    """Import what takes long, share the cores, and bound the memory."""
    import cv2

    from cpcapp.web.photo_job import open_cached_model

    cv2.setNumThreads(max(1, (os.cpu_count() or 1) // options["jobs"]))
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


def _reporter(target: IO[bytes]) -> Report:
    """Return what sends progress, but not more often than anybody sees."""
    last_time, last_step = 0.0, ""

    def report(share: float, step: str) -> None:
        nonlocal last_time, last_step
        now = time.monotonic()
        if step != last_step or now - last_time >= 1.0 / _REPORTS_PER_SECOND:
            last_time, last_step = now, step
            send(target, {"share": round(min(max(share, 0.0), 1.0), 4), "step": step})

    return report


def _answer(message: dict[str, Any], report: Report) -> dict[str, Any]:
    """Do a job: what the client sent is in its folder, which gets what is made of it."""
    from cpcapp._io.threads import give_back_memory

    try:
        # Here, as what reads tables takes memory, and time to import.
        if message["kind"] == "photo":
            from cpcapp.web.photo_job import run_photo as run
        else:
            from cpcapp.web.table_job import run_tables as run
        result = run(Path(message["folder"]), message["request"], report)
        json.dumps(result, allow_nan=False)  # a fault of ours, found where it can be told
    except PageError as error:
        return {"failed": error.detail}
    except BrokenPipeError:
        raise
    except Exception as error:
        if _is_out_of_memory(error):
            text = "It needs more memory than a job may take."
            advice = "Make it smaller, or start the server with a larger --memory-gigabytes."
            return {"failed": PageError("too_much_memory", text, advice).detail}
        text = "The program made a mistake; the server's terminal has more."
        return {"failed": PageError("internal", text).detail, "trace": traceback.format_exc()}
    finally:
        give_back_memory()
    return {"done": result}


def _is_out_of_memory(error: Exception) -> bool:
    """Tell whether memory has ended; some libraries have errors of their own for it."""
    text = str(error).lower()
    phrases = ("insufficient memory", "bad_alloc", "bad allocation")
    return isinstance(error, MemoryError) or any(phrase in text for phrase in phrases)
