"""Mutants that no test can notice, each with the reason."""

from __future__ import annotations

# By file, source line and change, so that lines may move.
EQUIVALENT: dict[tuple[str, str, str], str] = {}
