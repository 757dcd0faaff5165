"""What the server allows: all of its limits in one place."""

from __future__ import annotations

from dataclasses import dataclass

#: Where the server listens unless told otherwise: reachable from this computer only.
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8000

# Limits without an option, set by hand.
#: Requests that go on at a time: far more than a page has open.
MAX_REQUESTS = 512
#: Files and fields of a form; what is one too many is named if there are not more.
MAX_PARTS = 8
#: Of a field that is not a file: names of models and columns.
MAX_FIELD_BYTES = 64 << 10
#: Of a choice in JSON: names of some thousand columns.
MAX_JSON_BYTES = 4 << 20
#: What a form adds to its files.
FORM_BYTES = 1 << 20
#: What still comes after an answer is read, as far as this: a photo over a local network.
LINGER_SECONDS, LINGER_BYTES = 2.0, 16 << 20


@dataclass(frozen=True)
class Settings:
    """Limits of the server. The numbers were set by hand, for one person or a small office.

    >>> Settings().host, Settings(host="0.0.0.0").is_open
    ('127.0.0.1', True)
    """

    host: str = LOOPBACK
    #: Further names by which browsers may reach it.
    names: tuple[str, ...] = ()
    #: Worker processes, each with one job at a time.
    jobs: int = 1
    #: Of one uploaded file.
    max_bytes: int = 100_000_000
    #: Of one photo.
    max_pixels: int = 60_000_000
    #: Jobs that wait or are being uploaded, of all clients together and of one address.
    max_waiting: int = 64
    max_per_client: int = 16
    #: After that a job or an upload is ended, and an upload from which nothing comes for so long.
    job_seconds: float = 1200.0
    upload_seconds: float = 600.0
    stall_seconds: float = 30.0
    #: Memory that a worker may take beyond what it has when it starts.
    worker_bytes: int = 6 << 30
    #: After that a result is removed, and the oldest if all take so much of the disk, or are so
    #: many.
    keep_seconds: float = 3600.0
    keep_bytes: int = 4 << 30
    max_kept: int = 500

    @property
    def is_open(self) -> bool:
        """Whether other computers can reach the server."""
        return self.host not in (LOOPBACK, "localhost", "::1")
