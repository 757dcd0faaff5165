"""What a figure has to reach."""

from __future__ import annotations

from typing import Any

Results = dict[str, Any]


def at_most(name: str, value: float | None, limit: float) -> Results:
    reached = None if value is None else value <= limit
    return {"name": name, "value": value, "limit": f"at most {limit:g}", "reached": reached}


def at_least(name: str, value: float | None, limit: float) -> Results:
    reached = None if value is None else value >= limit
    return {"name": name, "value": value, "limit": f"at least {limit:g}", "reached": reached}
