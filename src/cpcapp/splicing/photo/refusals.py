"""The error of a file that can't be read, and what it mostly says."""

from __future__ import annotations


class UnreadableError(ValueError):
    """A file can't be read. The message says why and what to do, but not which file."""


CUT_OFF = "is cut off; use a complete copy"
DAMAGED = "is damaged; use an undamaged copy"
