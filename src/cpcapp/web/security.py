"""Who may ask the server, and what a browser may do with its answers: a middleware for each.

A page on another site can make a visitor's browser send requests to this server, although it can't
read the answers. And its name can be made to point to this computer (DNS rebinding), and then it
could read them. So the name that a request is addressed to is checked, and requests that change
something are refused if they come from another site.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cpcapp.web.errors import PageError
from cpcapp.web.settings import LINGER_BYTES, LINGER_SECONDS, MAX_REQUESTS

_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# A name or an address, and maybe a port.
_HOST_FORM: Final = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z._-]+)(:[0-9]{1,5})?")

#: Pages may load only what this server itself sends; nothing may frame them.
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
#: Files of a job: nothing in them may run or load, whatever they are.
FILE_POLICY: Final = "default-src 'none'; frame-ancestors 'none'; sandbox"

_HEADERS: Final = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class AnswerHeaders:
    """Tells browsers with each answer to be strict."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_strictly)


class CloseUnread:
    """Closes the connection after an answer to what was not read: else all of it would be.

    A client hears nothing while it sends, and a connection that is reset may lose the answer: so
    what still comes is thrown away for a moment, in which nothing counts the request any more.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        unread = scope["type"] == "http" and scope["method"] not in _SAFE_METHODS
        last: Message | None = None

        async def receive_and_note() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def send_all_but_the_end(message: Message) -> None:
            nonlocal last
            if unread and message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Connection"] = "close"
            elif unread and not message.get("more_body", False):
                last = {**message, "body": b""}
                message["more_body"] = True
            await send(message)

        try:
            await self.app(scope, receive_and_note, send_all_but_the_end)
        finally:
            if last is not None:
                n_bytes = 0
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINGER_SECONDS):
                        while unread and n_bytes < LINGER_BYTES:
                            n_bytes += len((await receive_and_note()).get("body", b""))
                await send(last)


class Check:
    """Answers with the `PageError` that a check raises, before anything else sees the request."""

    def __init__(self, app: ASGIApp, check: Callable[[Request], None]) -> None:
        self.app, self.check = app, check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self.app
        if scope["type"] == "http":
            try:
                self.check(Request(scope))
            except PageError as error:
                app = error.answer()
        await app(scope, receive, send)


class LoadLimit:
    """Bounds how many requests go on; pages and the health check are answered whatever does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.n_requests = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = scope.get("path", "")
        if not path.startswith("/api/") or path == "/api/health":
            return await self.app(scope, receive, send)
        if self.n_requests >= MAX_REQUESTS:
            error = PageError("busy", "Too many requests at a time.", retry_after=5)
            return await error.answer()(scope, receive, send)
        self.n_requests += 1
        try:
            return await self.app(scope, receive, send)
        finally:
            self.n_requests -= 1


class AllowedHosts:
    """The names by which the server may be reached, of ``host``, which it listens on, and more.

    Starlette's ``TrustedHostMiddleware`` knows names only: where the server listens on all
    addresses, each of them is allowed, as an address can't be made to point elsewhere.

    >>> hosts = AllowedHosts("127.0.0.1")
    >>> [hosts.allow(host) for host in ("localhost:8000", "[::1]:8000", "evil.example", "10.0.0.3")]
    [True, True, False, False]
    >>> AllowedHosts("0.0.0.0", ["press.example"]).allow("press.example:8000")
    True
    """

    def __init__(self, host: str, names: Iterable[str] = ()) -> None:
        self.names = {*_LOOPBACK_NAMES, host.lower(), *(name.lower() for name in names)}
        self.any_address = host in ("0.0.0.0", "::", "")
        if self.any_address:
            name = socket.gethostname().lower()
            short = name.partition(".")[0]
            self.names |= {name, short, f"{short}.local"}

    def allow(self, header: str) -> bool:
        """Return whether a request may be addressed to this ``Host``."""
        match = _HOST_FORM.fullmatch(header.lower())
        if match is None:
            return False
        name = match[1].strip("[]")
        if self.any_address:
            with suppress(ValueError):
                return bool(ipaddress.ip_address(name))
        return name in self.names

    def check(self, request: Request) -> None:
        """Refuse a request that is addressed to another name."""
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self.allow(hosts[0]):
            raise PageError(
                "wrong_host",
                "This server is not known by the name that the request is addressed to.",
                "Use the address that `cpcapp serve` prints, or start it with --name.",
            )


def check_origin(request: Request) -> None:
    """Refuse what a page of another site sends. Programs send neither of these headers."""
    if request.method in _SAFE_METHODS:
        return
    address = f"{request.scope['scheme']}://{request.headers['host']}".lower()
    origin = request.headers.get("origin", address).lower()
    site = request.headers.get("sec-fetch-site", "none")
    if origin != address or site not in ("same-origin", "none"):
        raise PageError(
            "cross_site",
            "Pages of other sites may not send anything to this server.",
            "Open the page of this server itself.",
        )
