"""Servers for tests of the page: real sockets and real worker processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from cpcapp.web.server import PageServer, open_socket, server_folder, spell_address
from cpcapp.web.settings import Settings

EXAMPLES = Path(__file__).parents[1] / "src" / "cpcapp" / "splicing" / "examples"
# Long enough for a slow machine, and never reached on any other.
PATIENCE = 180.0


@dataclass
class Running:
    """A server within this process."""

    address: str
    folder: Path
    server: PageServer
    client: httpx.Client

    @property
    def workers(self) -> list[int]:
        return self.server.jobs.worker_ids

    def wait_for_worker(self) -> int:
        wait_until(lambda: self.workers)
        return self.workers[0]

    def health(self) -> dict[str, int]:
        return self.client.get("/api/health").json()

    def post(self, content: bytes, name: str = "photo.png", *, wait: bool = True, **fields: str):
        return self.client.post(
            f"/api/localize?wait={str(wait).lower()}",
            files={"file": (name, content)},
            data={"model": "filters", **fields},
        )


@contextmanager
def serving(**settings: object) -> Iterator[Running]:
    """Run a server in a thread."""
    started = threading.Event()
    options = replace(Settings(), **{"worker_bytes": 2 << 30, **settings})
    with server_folder() as folder, open_socket("127.0.0.1", 0) as listening:
        address = spell_address(listening).rstrip("/")
        server = PageServer(options, folder, started.set)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()
        assert started.wait(PATIENCE)
        try:
            with httpx.Client(base_url=address, timeout=PATIENCE) as client:
                yield Running(address, folder, server, client)
        finally:
            for process in server.jobs.worker_ids:
                with suppress(ProcessLookupError):  # it was killed a moment ago
                    os.kill(process, signal.SIGCONT)
            server.handle_exit(signal.SIGTERM, None)
            thread.join(PATIENCE)
    assert not thread.is_alive()


@contextmanager
def command(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``cpcapp serve`` in a process; give it and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cpcapp", "serve", "--no-browser", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://\S+", line):
                break
        else:
            raise AssertionError(f"no address: {said}{process.stderr.read()}")
        process.said = said
        yield process, found[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def wait_until(condition, seconds: float = PATIENCE):
    """Wait until something holds, and return it; fail if it never does."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found


def children_of(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in text.split()]


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
