"""What ``cpcapp reduce`` and ``cpcapp apply`` share."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cpcapp.cli._errors import UserError, require

if TYPE_CHECKING:
    from cpcapp.tables import Table


def names_in(options: Sequence[str]) -> list[str]:
    """Return the names in options that may be repeated, or hold several with commas.

    Examples
    --------
    >>> names_in(["a,b", 'c,"d,e"'])
    ['a', 'b', 'c', 'd,e']
    """
    found = (name.strip() for row in csv.reader(options) for name in row)
    return list(dict.fromkeys(name for name in found if name))


def open_tables(*paths: str) -> list[Table]:
    """Open tables; a missing package is named with the command that installs it."""
    for module in ("pyarrow", "safetensors"):
        require(module, "tables")
    if any(".h5ad" in path.lower() for path in paths):
        require("anndata", "tables")
    from cpcapp.tables import open_table

    return [open_table(path) for path in paths]


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn what a table, a model or a file answers into one line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise UserError(f"{error.strerror or error}:{where}".rstrip(":")) from error
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error
