"""Who may ask the server, and what a browser may do with its answers.

A page on another site can make a visitor's browser send requests to this server, although it can't
read the answers. And its name can be made to point to this computer (DNS rebinding), and then it
could read them. So the name that a request is addressed to is checked, and requests that change
something are refused if they come from another site.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cpcapp.web.errors import LOGGER, ApiError, internal_error
from cpcapp.web.settings import Settings

_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# A name or an address, and maybe a port.
_HOST_FORM: Final = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z._-]+)(:[0-9]{1,5})?")
# Far more than a page has open at a time.
_MAX_REQUESTS: Final = 512

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


class AllowedHosts:
    """The names by which the server may be reached.

    Parameters
    ----------
    host : str
        Address that it listens on.
    names : iterable of str, optional
        Further names.

    Examples
    --------
    >>> hosts = AllowedHosts("127.0.0.1")
    >>> [hosts.allow(host) for host in ("localhost:8000", "[::1]:8000", "evil.example", "10.0.0.3")]
    [True, True, False, False]
    >>> AllowedHosts("0.0.0.0", ["press.example"]).allow("press.example:8000")
    True
    """

    def __init__(self, host: str, names: Iterable[str] = ()) -> None:
        self.names = {*_LOOPBACK_NAMES, *(name.lower() for name in names)}
        # An address can't be made to point elsewhere: only names can.
        self.any_address = host in _ANY_ADDRESS
        if self.any_address:
            own = socket.gethostname().lower()
            self.names |= {own, own.partition(".")[0], f"{own.partition('.')[0]}.local"}
        else:
            self.names.add(host.lower())

    def allow(self, header: str) -> bool:
        """Return whether a request may be addressed to this ``Host``."""
        match = _HOST_FORM.fullmatch(header.lower())
        if match is None:
            return False
        name = match[1].strip("[]")
        return name in self.names or (self.any_address and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Checks each request before anything else sees it, and adds headers to each answer.

    Parameters
    ----------
    app : ASGI application
    settings : Settings
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.hosts = AllowedHosts(settings.host, settings.names)
        self.n_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started, received = False, scope["method"] in _SAFE_METHODS

        async def receive_and_watch() -> Message:
            nonlocal received
            message = await receive()
            received = received or not message.get("more_body", False)
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if not received:  # or the rest would be read, however long it is
                    headers["Connection"] = "close"
            await send(message)

        self.n_requests += 1
        try:
            self._check(scope)
            await self.app(scope, receive_and_watch, send_with_headers)
        except ApiError as error:
            await error.answer()(scope, receive, send_with_headers)
        except Exception:
            LOGGER.exception("a request to %s failed", scope["path"][:200].encode("unicode_escape"))
            if not started:
                await internal_error()(scope, receive, send_with_headers)
        finally:
            self.n_requests -= 1

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.hosts.allow(hosts[0]):
            raise ApiError(
                421,
                "wrong_host",
                "This server is not known by the name that the request is addressed to.",
                "Use the address that `cpcapp serve` prints, or start it with --name.",
            )
        if self.n_requests > _MAX_REQUESTS:
            raise ApiError(503, "busy", "Too many requests at a time.", retry_after=5)
        if scope["method"] not in _SAFE_METHODS:
            _check_origin(headers, scope["scheme"], hosts[0])


def _check_origin(headers: Headers, scheme: str, host: str) -> None:
    """Refuse what a page of another site sends. Programs send neither of these headers."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    from_here = origin is None or origin.lower() == f"{scheme}://{host}".lower()
    if not from_here or site not in (None, "same-origin", "none"):
        raise ApiError(
            403,
            "cross_site",
            "Pages of other sites may not send anything to this server.",
            "Open the page of this server itself.",
        )
