"""Numbers that must lie in a range: settings as dataclasses, whose files may come from anybody."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any


def ranged(default: Any, low: float, high: float) -> Any:
    """Return a field of a dataclass whose value `check_ranges` wants from low to high."""
    return field(default=default, metadata={"range": (low, high)})


def check_ranges(options: Any) -> None:
    """Raise ``ValueError`` if a `ranged` field of a dataclass is out of its range, or NaN."""
    for entry in fields(options):
        low, high = entry.metadata.get("range", (None, None))
        if low is None:
            continue
        value = getattr(options, entry.name)
        if not low <= value <= high:
            raise ValueError(f"{entry.name}={value} must be from {low:g} to {high:g}")
