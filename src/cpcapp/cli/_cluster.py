"""The option ``--scheduler`` of commands that can use a Dask cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from cpcapp.cli._errors import require


def open_cluster(address: str | None) -> AbstractContextManager[Any]:
    """Give the client of a cluster, or None without an address."""
    if address is None:
        return nullcontext()
    require("dask", "distributed")
    from cpcapp.moments.dask import connect

    return connect(address)
