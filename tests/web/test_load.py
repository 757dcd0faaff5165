"""What the server still answers while clients keep it busy."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx

from serving import command

SLOW = 530


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
        for path in ("", "tables", "static/page.css", "api/health"):
            assert httpx.get(address + path, timeout=60).status_code == 200, path
        assert httpx.get(f"{address}api/health").json()["uploading"] == 16
        uploads[-1].settimeout(60)
        answer = b"".join(iter(lambda: uploads[-1].recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"connection: close" in answer.lower()
