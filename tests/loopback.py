"""A file server on this machine that can break down on demand."""

from __future__ import annotations

import hashlib
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    content: bytes
    ranges: bool = True  # whether parts can be asked for
    honours_if_range: bool = True
    validators: bool = True  # whether it sends an ETag
    length: bool = True  # whether it says how long the file is
    status: int = 200
    break_after: int | None = None  # bytes after which the next connection breaks
    stall: threading.Event | None = None  # if set, the next connection waits instead of breaking
    asked: list[str | None] = field(default_factory=list)  # the Range of each request
    sent: int = 0
    address: str = ""

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.content).hexdigest()}"'

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.asked.append(wanted)
        if self.status != 200:
            handler.send_error(self.status)
            return
        same = handler.headers.get("If-Range") in (None, self.etag) or not self.honours_if_range
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and same else 0
        if start and self.ranges:
            handler.send_response(206)
            last = len(self.content) - 1
            handler.send_header("Content-Range", f"bytes {start}-{last}/{len(self.content)}")
        else:
            start = 0
            handler.send_response(200)
        if self.validators:
            handler.send_header("ETag", self.etag)
        if self.length:
            handler.send_header("Content-Length", str(len(self.content) - start))
        handler.end_headers()
        body, self.break_after, limit = self.content[start:], None, self.break_after
        handler.wfile.write(body[:limit])
        handler.wfile.flush()
        self.sent += len(body[:limit])
        if limit is not None and self.stall is not None:
            self.stall.wait(60)
        handler.close_connection = True


@contextmanager
def serving(content: bytes, **options):
    """Serve ``content`` at ``server.address``, whatever path is asked for."""
    server = Server(content, **options)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.answer(self)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.address = f"http://127.0.0.1:{http.server_port}/file"
    try:
        yield server
    finally:
        if server.stall is not None:
            server.stall.set()
        http.shutdown()
        thread.join()
        http.server_close()
