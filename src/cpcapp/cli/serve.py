"""``cpcapp serve``: the local page."""

from __future__ import annotations

import argparse
import math
import os
import threading
import webbrowser
from typing import Any

from cpcapp.cli._errors import UserError, pick, require

HELP = "open the local page in a browser"
DESCRIPTION = """Open a page in the browser that finds where photos were spliced, and what is
special about one table against another. The page and its files come from this command, and nothing
leaves the computer. Programs can ask the same over HTTP: see /api/openapi.json at the printed
address. Ctrl-C ends it and removes all that was uploaded."""

# Of memory, for workers: the rest is for the system, the browser and the server.
_SHARE_OF_MEMORY = 0.7
_LIMITS = (
    *("jobs", "max_megabytes", "max_megapixels", "max_waiting", "max_per_client", "job_seconds"),
    *("memory_gigabytes", "keep_minutes", "disk_gigabytes"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add = parser.add_argument
    port = "port (default: 8000, or the next one that is free)"
    add("--port", type=int, metavar="PORT", help=port)
    host = """address to listen on (default: 127.0.0.1, this computer only). With another one,
    everybody on the network can use the page and send files to this computer: there is no login"""
    add("--host", default="127.0.0.1", metavar="ADDRESS", help=host)
    name = "a further name of this computer that browsers may use; may be repeated"
    add("--name", action="append", default=[], dest="names", metavar="NAME", help=name)
    add("--no-browser", action="store_true", help="do not open a browser")
    limits = parser.add_argument_group("limits")
    add = limits.add_argument
    jobs = "jobs at once; each takes memory of its own (default: one for every four cores)"
    add("--jobs", type=int, metavar="J", help=jobs)
    size = "largest file that may be sent (default: %(default)g)"
    add("--max-megabytes", type=float, default=100.0, metavar="N", help=size)
    pixels = "largest photo (default: %(default)g)"
    add("--max-megapixels", type=float, default=60.0, metavar="N", help=pixels)
    waiting = "files that may wait, of all clients (default: %(default)s)"
    add("--max-waiting", type=int, default=64, metavar="N", help=waiting)
    client = "files of one address that may wait (default: %(default)s)"
    add("--max-per-client", type=int, default=16, metavar="N", help=client)
    seconds = "longest time for one job (default: %(default)g)"
    add("--job-seconds", type=float, default=1200.0, metavar="N", help=seconds)
    memory = "memory that one job may take (default: %(default)g, or less if there is less)"
    add("--memory-gigabytes", type=float, default=6.0, metavar="N", help=memory)
    keep = "how long a result is kept after it was last looked at (default: %(default)g)"
    add("--keep-minutes", type=float, default=60.0, metavar="N", help=keep)
    disk = "disk that all results may take; the oldest go first (default: %(default)g)"
    add("--disk-gigabytes", type=float, default=4.0, metavar="N", help=disk)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    require("web", "fastapi", "uvicorn", "python_multipart", "jinja2", "safetensors")
    require("web", "cv2", "PIL", "simplejpeg")
    from cpcapp.web.server import open_socket, run_server, spell_address
    from cpcapp.web.settings import Settings

    _check(arguments)
    # One photo can use four cores.
    jobs = arguments.jobs or max(1, min(4, (os.cpu_count() or 1) // 4))
    memory = min(int(arguments.memory_gigabytes * (1 << 30)), _available_memory() // jobs)
    settings = Settings(
        names=tuple(arguments.names),
        jobs=jobs,
        max_bytes=max(1, int(arguments.max_megabytes * 1e6)),
        max_pixels=max(1, int(arguments.max_megapixels * 1e6)),
        worker_bytes=max(1, memory),
        keep_seconds=60.0 * arguments.keep_minutes,
        keep_bytes=int(arguments.disk_gigabytes * (1 << 30)),
        **pick(arguments, "host", "max_waiting", "max_per_client", "job_seconds"),
    )
    listening = _listen(open_socket, arguments)
    address = spell_address(listening)
    if settings.is_open:
        print(
            f"Others on the network can use this page and send photos to this computer (--host "
            f"{arguments.host}); there is no login.",
            flush=True,
        )
    print(f"cpcapp is at {address} (Ctrl-C ends it)", flush=True)
    run_server(settings, listening, None if arguments.no_browser else _open_later(address))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise `UserError` for numbers that make no sense."""
    for name in _LIMITS:
        value = getattr(arguments, name)
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"--{name.replace('_', '-')} {value} must be a number above 0")
    if arguments.port is not None and not 0 <= arguments.port <= 65535:
        raise UserError(f"--port {arguments.port} must be from 0 to 65535")


def _available_memory() -> int:
    """Return the memory that workers may take together: most of what this computer has."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 40
    return int(_SHARE_OF_MEMORY * total)


def _listen(open_socket: Any, arguments: argparse.Namespace) -> Any:
    where = arguments.host if arguments.port is None else f"{arguments.host}:{arguments.port}"
    try:
        return open_socket(arguments.host, arguments.port)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while ")[0]
        raise UserError(
            f"can't listen on {where}: {reason}; choose another --port or --host"
        ) from error


def _open_later(address: str) -> Any:
    """Return what opens a browser without waiting for it: some run as long as this does."""
    return threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start
