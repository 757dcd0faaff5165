"""Running the server: its address, its start and its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from cpcapp.web.app import make_app
from cpcapp.web.folders import ServerFolder, remove_old_folders
from cpcapp.web.jobs import JobQueue
from cpcapp.web.settings import DEFAULT_PORT, Settings

# If the usual port is taken, these many after it are tried.
_MORE_PORTS = 50
# Requests that are still answered when the server is stopped.
_LAST_SECONDS = 2


def open_socket(host: str, port: int | None = None) -> socket.socket:
    """Return a socket that listens.

    ``port``: exactly this one; 0 lets the system choose. Without it, the first of 8000, 8001, ...
    that is free.

    >>> with open_socket("127.0.0.1", 0) as listening:
    ...     listening.getsockname()[0]
    '127.0.0.1'
    """
    ports = range(DEFAULT_PORT, DEFAULT_PORT + _MORE_PORTS) if port is None else [port]
    last = ports[-1]
    for candidate in ports:
        try:
            return _listen(host, candidate)
        except OSError:
            if candidate == last:
                raise
    raise AssertionError


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


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
    remove_old_folders()
    folder = ServerFolder()
    # Raised once the server has ended: without a handler the process would end before the folder
    # is removed.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        server = build_server(settings, folder, on_start)
        asyncio.run(server.serve(sockets=[listening]))
    finally:
        folder.remove()
        listening.close()


def _exit_on_signal(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def build_server(
    settings: Settings, folder: ServerFolder, on_start: Callable[[], Any] | None = None
) -> PageServer:
    """Return a server that is not started yet."""
    jobs = JobQueue(settings, folder)
    config = uvicorn.Config(
        make_app(jobs),
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
    return PageServer(config, jobs, on_start)


class PageServer(uvicorn.Server):
    """Ends what waits for jobs before it waits for its connections to close."""

    def __init__(
        self, config: uvicorn.Config, jobs: JobQueue, on_start: Callable[[], Any] | None
    ) -> None:
        super().__init__(config)
        self.jobs, self._on_start = jobs, on_start

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
