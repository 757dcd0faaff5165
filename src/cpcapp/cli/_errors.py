"""How a command tells a user what to change, and what it left out."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cpcapp._io.files import FolderInUseError
from cpcapp._io.packages import require_packages
from cpcapp._io.text import printable

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


def require(extra: str, *modules: str) -> None:
    """Raise `UserError` with the command to run if an optional package is missing."""
    with user_errors():
        require_packages(extra, *modules)


def pick(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return options by the names of the library's parameters."""
    return {name: getattr(arguments, name) for name in names}


def check_at_least(arguments: argparse.Namespace, **lowest: float) -> None:
    """Refuse numbers of options, where they are given, below the lowest that makes sense."""
    for name, bound in lowest.items():
        value = getattr(arguments, name)
        if value is not None and value < bound:
            raise UserError(f"--{name} {value:g} must be at least {bound:g}")


def check_output(path: Path) -> None:
    """Refuse a file that could not be written at the end of a long job."""
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} to write to")


def print_left_out(command: str, problems: Collection[object]) -> int:
    """Name what was left out, on standard error; return the exit status."""
    for problem in problems:
        print(f"cpcapp {command}: left out {printable(problem)}", file=sys.stderr)
    return 1 if problems else 0


def spell_as_option(name: str, value: Any) -> str:
    """Return a parameter of the library as an option of the command.

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
def user_errors(in_use: str = "") -> Iterator[None]:
    """Turn errors of the library and of files into one line with options.

    ``in_use`` is the advice where a folder holds something that is not to be replaced.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except FolderInUseError as error:
        raise UserError(f"{error.reason}; {in_use}" if in_use else str(error)) from error
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise UserError(" ".join(f"{error.strerror or error}{where}".split())) from error
    except (ValueError, ImportError) as error:
        message = getattr(error, "message", None)
        text = str(error) if message is None else message.text(spell_as_option)
        raise UserError(" ".join(text.split())) from error
