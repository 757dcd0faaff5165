"""What the server still answers while clients keep it busy."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx

from cpcapp.web.settings import MAX_REQUESTS
from serving import EXAMPLES, PATIENCE, children_of, command, wait_until

SLOW = 530
PAGES = ("", "tables", "static/page.css", "api/health")


def test_slow_uploads_of_one_address_lock_nobody_out():
    """Only as many as may wait are read; the others are answered before they are sent."""
    with command("--port", "0") as (_, address), ExitStack() as stack:
        host, port = urlsplit(address).hostname, urlsplit(address).port
        head = (
            f"POST /api/localize HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 100000\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
        ).encode()
        uploads = [stack.enter_context(socket.create_connection((host, port))) for _ in range(SLOW)]
        for upload in uploads:
            upload.sendall(head)
        for path in PAGES:
            assert httpx.get(address + path, timeout=60).status_code == 200, path
        assert httpx.get(f"{address}api/health").json()["uploading"] == 16
        uploads[-1].settimeout(60)
        answer = b"".join(iter(lambda: uploads[-1].recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"connection: close" in answer.lower()


def test_who_listens_without_end_locks_nobody_out():
    """So many may follow a job that takes long; pages are for everybody."""
    with command("--port", "0", "--jobs", "1") as (process, address), ExitStack() as stack:
        host, port = urlsplit(address).hostname, urlsplit(address).port
        (worker,) = wait_until(lambda: children_of(process.pid))
        stack.callback(os.kill, worker, signal.SIGKILL)
        client = stack.enter_context(httpx.Client(base_url=address, timeout=PATIENCE))
        client.get("api/health")  # once it answers it no longer waits for the worker to start
        os.kill(worker, signal.SIGSTOP)
        photo = {"file": (EXAMPLES / "astronaut.jpg").read_bytes()}
        job = client.post("api/localize?wait=false", files=photo).json()["id"]
        head = f"GET /api/jobs/{job}/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        for _ in range(MAX_REQUESTS):
            listener = stack.enter_context(socket.create_connection((host, port)))
            listener.sendall(head)
            assert listener.recv(12) == b"HTTP/1.1 200"
        refused = client.get(f"api/jobs/{job}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
        assert int(refused.headers["retry-after"]) >= 1
        for path in PAGES:
            assert client.get(path).status_code == 200, path
