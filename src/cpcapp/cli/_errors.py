"""How a command tells a user what to change."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Parameters whose option has another name.
_OPTIONS = {
    "background": "BACKGROUND",
    "background_values": "--background",
    "folder": "-o",
    "ids": "--id",
    "labels": "--label",
    "max_pixels": "--max-megapixels",
    "n_components": "-k",
    "output": "-o",
    "overwrite": "--force",
    "scores_format": "--format",
    "target_values": "--target",
}


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


def spell_as_option(name: str, value: Any) -> str:
    """Return a parameter of the library as an option of the command.

    Examples
    --------
    >>> spell_as_option("skip_bad_rows", True), spell_as_option("labels", ["my group"])
    ('--skip-bad-rows', "--label 'my group'")
    """
    option = _OPTIONS.get(name, "--" + name.replace("_", "-"))
    if value is None or value is True:
        return option
    names = [value] if not isinstance(value, list) else value
    text = ",".join(f'"{part}"' if "," in str(part) else str(part) for part in names)
    return f"{option} {shlex.quote(text)}"


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors of the library and of files into one line with options."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise UserError(" ".join(f"{error.strerror or error}{where}".split())) from error
    except (ValueError, ImportError) as error:
        raise UserError(_spell_error(error)) from error


def _spell_error(error: Exception) -> str:
    message = getattr(error, "message", None)
    text = str(error) if message is None else message.text(spell_as_option)
    return " ".join(text.split())
