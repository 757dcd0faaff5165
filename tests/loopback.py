"""A file server on this machine that can break down on demand."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    content: bytes
    length: bool = True  # whether it says how long the file is
    status: int = 200
    break_after: int | None = None  # bytes after which the next connection breaks
    pause: float = 0.0  # seconds between two bytes
    stall: threading.Event | None = None  # if set, the next connection waits instead of breaking
    requests: int = 0
    sent: int = 0
    address: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests += 1
        if self.status != 200:
            handler.send_error(self.status)
            return
        handler.send_response(200)
        if self.length:
            handler.send_header("Content-Length", str(len(self.content)))
        handler.end_headers()
        if self.pause:
            self._drip(handler)
            return
        self.break_after, limit = None, self.break_after
        handler.wfile.write(self.content[:limit])
        handler.wfile.flush()
        self.sent += len(self.content[:limit])
        if limit is not None and self.stall is not None:
            self.stall.wait(60)
        handler.close_connection = True

    def _drip(self, handler: BaseHTTPRequestHandler) -> None:
        for byte in self.content:
            try:
                handler.wfile.write(bytes([byte]))
                handler.wfile.flush()
            except OSError:  # nobody listens any more
                break
            self.sent += 1
            time.sleep(self.pause)
        handler.close_connection = True


@contextmanager
def serving(content: bytes, **options):
    """Serve ``content`` at ``server.address``, whatever path is asked for."""
    server = Server(content, **options)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            with suppress(BrokenPipeError, ConnectionResetError):  # nobody listens any more
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
