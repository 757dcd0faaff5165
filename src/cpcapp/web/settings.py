"""What the server allows: all of its limits in one place."""

from __future__ import annotations

import os
from dataclasses import dataclass

#: Where the server listens unless told otherwise: reachable from this computer only.
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8000

# The rest is for the system, the browser and the server.
_SHARE_OF_MEMORY = 0.7


@dataclass(frozen=True)
class Settings:
    """Limits of the server. The numbers were set by hand, for one person or a small office.

    Attributes
    ----------
    host : str
        Address that the server listens on.
    names : tuple of str
        Further names by which browsers may reach it.
    jobs : int
        Worker processes, each with one job at a time.
    max_bytes : int
        Of one uploaded file.
    max_pixels : int
        Of one photo.
    max_waiting : int
        Jobs that wait or are being uploaded, of all clients together.
    max_per_client : int
        The same for one address.
    job_seconds : float
        After that a job is ended.
    upload_seconds : float
        After that an upload is ended.
    stall_seconds : float
        An upload from which nothing comes for so long is ended.
    worker_bytes : int
        Memory that a worker may take beyond what it has when it starts.
    keep_seconds : float
        After that a result is removed.
    keep_bytes : int
        If all results take more than this on disk, the oldest are removed.
    max_kept : int
        The same by their number.

    Examples
    --------
    >>> Settings().host, Settings(host="0.0.0.0").is_open
    ('127.0.0.1', True)
    """

    host: str = LOOPBACK
    names: tuple[str, ...] = ()
    jobs: int = 1
    max_bytes: int = 100_000_000
    max_pixels: int = 60_000_000
    max_waiting: int = 64
    max_per_client: int = 16
    job_seconds: float = 1200.0
    upload_seconds: float = 600.0
    stall_seconds: float = 30.0
    worker_bytes: int = 6 << 30
    keep_seconds: float = 3600.0
    keep_bytes: int = 4 << 30
    max_kept: int = 500

    def __post_init__(self) -> None:
        for name in ("jobs", "max_bytes", "max_pixels", "max_waiting", "max_per_client"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("job_seconds", "keep_seconds", "worker_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")

    @property
    def is_open(self) -> bool:
        """Whether other computers can reach the server."""
        return self.host not in (LOOPBACK, "localhost", "::1")


def default_jobs() -> int:
    """Return how many jobs run at once: one photo can use four cores.

    >>> default_jobs() >= 1
    True
    """
    return max(1, min(4, (os.cpu_count() or 1) // 4))


def available_memory() -> int:
    """Return the memory that workers may take together: most of what this computer has.

    >>> available_memory() > 1 << 28
    True
    """
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 40
    return int(_SHARE_OF_MEMORY * total)
