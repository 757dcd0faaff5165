"""The option ``--scheduler`` of commands that can use a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cpcapp.cli._errors import require


@contextmanager
def open_cluster(address: str | None) -> Iterator[Any]:
    """Give the client of a cluster, or None without an address."""
    if address is None:
        yield None
        return
    require("distributed", "dask")
    from cpcapp.moments.dask import connect

    with connect(address) as client:
        yield client
