"""Running the server: its address, its folder, its start and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from cpcapp._io.files import make_locked_folder, remove_leftovers
from cpcapp.web.app import make_app
from cpcapp.web.jobs import JobQueue
from cpcapp.web.settings import DEFAULT_PORT, Settings

# If the usual port is taken, these many after it are tried.
_MORE_PORTS = 50
# Requests that are still answered when the server is stopped.
_LAST_SECONDS = 2
_FOLDER_NAME = "cpcapp-serve-files"


def open_socket(host: str, port: int | None = None) -> socket.socket:
    """Return a socket that listens.

    ``port``: exactly this one; 0 lets the system choose. Without it, the first of 8000, 8001, ...
    that is free.

    >>> with open_socket("127.0.0.1", 0) as listening:
    ...     listening.getsockname()[0]
    '127.0.0.1'
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = DEFAULT_PORT + _MORE_PORTS if port is None else port
    for candidate in range(DEFAULT_PORT if port is None else port, last + 1):
        try:
            listening = socket.create_server((host, candidate), family=family, backlog=1024)
        except OSError:
            if candidate == last:
                raise
        else:
            listening.setblocking(False)
            return listening
    raise AssertionError


def spell_address(listening: socket.socket) -> str:
    """Return the address to open on this computer."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def run_server(
    settings: Settings, listening: socket.socket, on_start: Callable[[], Any] | None = None
) -> None:
    """Serve until a signal ends the process. Nothing of it stays on disk."""
    logging.basicConfig(format="cpcapp serve: %(message)s")
    # Raised once the server has ended: without a handler the process would end before the folder
    # is removed.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    with listening, server_folder() as folder:
        server = PageServer(settings, folder, on_start)
        asyncio.run(server.serve(sockets=[listening]))


def _exit_on_signal(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


class PageServer(uvicorn.Server):
    """Ends what waits for jobs before it waits for its connections to close."""

    def __init__(
        self, settings: Settings, folder: Path, on_start: Callable[[], Any] | None = None
    ) -> None:
        self.jobs, self._on_start = JobQueue(settings, folder), on_start
        config = uvicorn.Config(
            make_app(self.jobs),
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            log_level="critical",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_LAST_SECONDS,
            h11_max_incomplete_event_size=64 << 10,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._on_start is not None:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; called by a signal, or from another thread."""
        self._loop.call_soon_threadsafe(self.jobs.stop_soon)
        super().handle_exit(sig, frame)


@contextmanager
def server_folder() -> Iterator[Path]:
    """Give a new folder that only this user can read; remove what killed servers left."""
    parent = Path(tempfile.gettempdir())
    remove_leftovers(parent, _FOLDER_NAME)
    folder, descriptor = make_locked_folder(parent, _FOLDER_NAME)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)
