"""Public names, and errors that name the parameters of the library."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import cpcapp.tables
from cpcapp.tables import TableError

ROOT = Path(cpcapp.tables.__file__).parent


def test_the_library_knows_no_options():
    for path in ROOT.rglob("*.py"):
        assert re.findall(r"(?<![-\w])--[a-z]\S*", path.read_text()) == [], path


def test_public_names():
    classes = "AppliedRows Chunk Reduction Results Table TableError TableModel"
    functions = "apply_model load_model open_table reduce_tables write_results"
    assert cpcapp.tables.__all__ == f"{classes} {functions}".split()
    for name in cpcapp.tables.__all__:
        assert getattr(cpcapp.tables, name).__doc__
    assert set(cpcapp.tables.__all__) <= set(dir(cpcapp.tables))


def test_names_with_braces_are_no_parameters():
    error = TableError("column '{x}' is text", "use {labels} or {drop}", labels=["{x}"])
    assert str(error) == "column '{x}' is text; use labels=['{x}'] or drop"
    assert error.message.text(lambda name, value: f"<{name}>") == (
        "column '{x}' is text; use <labels> or <drop>"
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # from another process
