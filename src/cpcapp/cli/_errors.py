"""How a command tells a user what to change."""

from __future__ import annotations

import importlib


class UserError(Exception):
    """A mistake of the user: shown as one line, without a traceback."""


def require(module: str, extra: str) -> None:
    """Raise `UserError` with the command to run if an optional package is missing."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"needs {module}; install it with: pip install 'cpcapp[{extra}]'"
        ) from error
