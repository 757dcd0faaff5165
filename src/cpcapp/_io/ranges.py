"""Numbers that must lie in a range: settings as dataclasses, whose files may come from anybody."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any


def ranged(default: Any, low: float, high: float) -> Any:
    """Return a field of a dataclass whose value `check_ranges` wants from low to high."""
    return field(default=default, metadata={"range": (low, high)})


def check_ranges(options: Any) -> None:
    """Raise ``ValueError`` if a `ranged` field of a dataclass is out of its range, or NaN.

    A field whose default is a tuple must be two numbers of the range, the smaller one first.
    """
    for entry in fields(options):
        low, high = entry.metadata.get("range", (None, None))
        if low is None:
            continue
        value = getattr(options, entry.name)
        if isinstance(entry.default, tuple):
            try:
                first, last = value
                fits = low <= first <= last <= high
            except (TypeError, ValueError):
                fits = False
            wanted = f"two numbers from {low:g} to {high:g}, the smaller one first"
        else:
            fits, wanted = low <= value <= high, f"from {low:g} to {high:g}"
        if not fits:
            raise ValueError(f"{entry.name}={value} must be {wanted}")
